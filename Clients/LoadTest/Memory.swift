import Foundation
import NephosCore

/// How much memory a process has, in bytes; 0 where that cannot be known.
struct Memory {
    /// Its id, or `self`.
    private let process: String

    init(of process: pid_t? = nil) { self.process = process.map { "\($0)" } ?? "self" }

    var resident: Int { status("VmRSS:") }
    /// At most since ``forgetPeak()``, or since it began.
    var peak: Int { status("VmHWM:") }

    func forgetPeak() {
        let file = open("/proc/\(process)/clear_refs", O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { return }
        _ = write(file, "5", 1)
        close(file)
    }

    private func status(_ name: String) -> Int {
        let text = (try? String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix(name) }
        return line.flatMap { $0.split { !$0.isNumber }.first }.flatMap { Int($0) }.map { $0 * 1024 } ?? 0
    }
}

extension Duration {
    var seconds: Double { Double(nanoseconds) / 1e9 }
}
