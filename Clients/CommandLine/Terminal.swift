import Foundation
import NephosCore

/// A person at a terminal.
enum Terminal {
    private static let bytesMax = 4096

    /// Whether standard output is a terminal.
    static var isOutput: Bool { isatty(STDOUT_FILENO) == 1 }

    /// The text on a terminal; empty for scripts.
    static func hint(_ text: @autoclosure () throws -> String) rethrows -> String { isOutput ? try text() : "" }

    /// The terminal's width in cells: `$COLUMNS`, else the terminal's own answer, else 80; nil: standard output is no
    /// terminal.
    static var width: Int? {
        guard isOutput else { return nil }
        if let columns = ProcessInfo.processInfo.environment["COLUMNS"].flatMap({ Int($0) }), columns > 0 {
            return columns
        }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }

    /// Asks for a line that is not shown while it is typed.
    ///
    /// The C library's `getpass` does not let Ctrl-C through.
    ///
    /// - Throws: ``CloudError`` `.operationCancelled` after Ctrl-C; `.invalidArguments` when nothing was typed, or the
    ///   input ended (Ctrl-D). The terminal shows again what is typed.
    static func readSecret(_ prompt: String, called what: String = "password") throws(CloudError) -> String {
        Interrupt.hold()
        defer { Interrupt.release() }
        var shown = termios()
        guard tcgetattr(0, &shown) == 0 else {
            throw CloudError(.invalidArguments, "This terminal cannot be asked for a \(what).")
        }
        var hidden = shown
        hidden.c_lflag &= ~tcflag_t(ECHO)
        // Stopped here, the shell would be left without an echo.
        hidden.c_cc.10 = 0
        // First, so that nothing is shown of what somebody types who is quick.
        tcsetattr(0, TCSAFLUSH, &hidden)
        _ = Standard.write(Array(prompt.utf8), to: 2)
        defer {
            tcsetattr(0, TCSAFLUSH, &shown)
            Standard.error("")
        }
        var line: [UInt8] = []
        while true {
            try Interrupt.check()
            // The signal may go to another thread, and not end a call that waits.
            var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
            guard poll(&input, 1, 100) > 0 else { continue }
            var byte: UInt8 = 0
            let count = read(0, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1 else {
                throw CloudError(.invalidArguments, "The input ended before a \(what) was typed.")
            }
            if byte == UInt8(ascii: "\n") { break }
            line.append(byte)
            guard line.count < bytesMax else { throw CloudError(.invalidArguments, "The \(what) is too long.") }
        }
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        guard !line.isEmpty else { throw CloudError(.invalidArguments, "No \(what) was typed.") }
        guard let text = String(validating: line, as: UTF8.self) else {
            throw CloudError(.invalidArguments, "The \(what) is not text in UTF-8.")
        }
        return text
    }
}
