import Foundation
import Synchronization
import Testing

/// A terminal that takes down what is written to it.
final class Screen: Sendable {
    let name: String
    private let terminal: Int32
    private let kept: Int32
    private let written = Mutex<[UInt8]>([])

    init(columns: UInt16) throws {
        terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        try #require(terminal >= 0)
        // TIOCSPTLCK, TIOCGPTN and TIOCSWINSZ, which Swift's Glibc module does not carry.
        var number: Int32 = 0
        try #require(ioctl(terminal, 0x4004_5431, &number) == 0 && ioctl(terminal, 0x8004_5430, &number) == 0)
        name = "/dev/pts/\(number)"
        kept = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
        var size = winsize(ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0)
        try #require(kept >= 0 && ioctl(terminal, 0x5414, &size) == 0)
        Thread.detachNewThread { [terminal, self] in
            var buffer = [UInt8](repeating: 0, count: 4096)
            while true {
                let count = read(terminal, &buffer, buffer.count)
                guard count > 0 else { return }
                written.withLock { $0 += buffer[..<count] }
            }
        }
    }

    func close() {
        Foundation.close(kept)
        Foundation.close(terminal)
    }

    /// What was written so far.
    var text: String { String(decoding: written.withLock { $0 }, as: UTF8.self) }

    /// What was in the line, one after the other.
    var lines: [String] { text.components(separatedBy: "\r\u{1b}[K") }
}
