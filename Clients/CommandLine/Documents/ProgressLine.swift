import Foundation
import NephosKit
import Synchronization

/// How far something is, how fast it goes and how long it will take, on a terminal, in one line that is written over.
final class ProgressLine: Sendable {
    /// Between two of them nobody sees more.
    private static let pause: Duration = .milliseconds(100)
    /// Where the terminal does not say how wide it is.
    private static let columns = 80

    private struct State {
        var meter = TransferMeter()
        var shown: ContinuousClock.Instant?
        var isDirty = false
        var done = 0
    }

    private let what: String
    private let isShown: Bool
    private let state = Mutex(State())

    /// - Parameters:
    ///   - what: What is done, such as `sending`.
    ///   - isShown: False: nobody wants it; nor is it shown where nobody sees it.
    init(_ what: String, isShown: Bool) {
        self.what = what
        self.isShown = isShown && isatty(2) == 1
    }

    /// - Parameter name: What of all of it is on its way.
    func show(done: Int, total: Int, name: String = "") {
        guard isShown, total > 0 else { return }
        state.withLock { state in
            let now = ContinuousClock.now
            let progress = state.meter.note(
                UInt64(clamping: done), of: UInt64(clamping: total), at: now)
            if let shown = state.shown, now - shown < Self.pause { return }
            state.shown = now
            state.isDirty = true
            let text = Self.text(what, progress, name)
            _ = Standard.write(Array("\r\u{1b}[K\(text.prefix(cells: Self.width - 1))".utf8), to: 2)
        }
    }

    /// So much more is done of all of it, or of more.
    func advance(by count: Int, of total: Int) {
        let done = state.withLock { state in
            state.done += count
            return state.done
        }
        show(done: done, total: max(total, done))
    }

    static func text(_ what: String, _ progress: TransferProgress, _ name: String) -> String {
        let percent = Double(progress.done) / Double(max(1, progress.total)) * 100
        let amount = String(
            format: "%@ %3.0f %%  %@ of %@", what, percent, describe(bytes: progress.done),
            describe(bytes: progress.total))
        let rate = progress.rate.map { describe(bytes: UInt64(min($0, 1e18))) + "/s" }
        let left = progress.timeLeft.map { describe(.seconds(max(1, ($0 / .seconds(1)).rounded()))) + " left" }
        return [amount, rate, left, name.isEmpty ? nil : inLine(name).cut(toCells: 40)].compactMap { $0 }
            .joined(separator: "  ")
    }

    private static var width: Int {
        var size = winsize()
        // TIOCGWINSZ, which Swift's Glibc module does not carry everywhere.
        guard ioctl(2, 0x5413, &size) == 0, size.ws_col > 1 else { return columns }
        return Int(size.ws_col)
    }

    func clear() {
        state.withLock { state in
            guard isShown, state.isDirty || state.shown == nil else { return }
            state.isDirty = false
            _ = Standard.write(Array("\r\u{1b}[K".utf8), to: 2)
        }
    }
}
