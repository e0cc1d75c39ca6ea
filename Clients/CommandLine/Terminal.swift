import Core
import Foundation

/// A person at a terminal.
enum Terminal {
    private static let bytesMax = 4096

    /// Asks for a line that is not shown while it is typed.
    ///
    /// The C library's `getpass` does not let Ctrl-C through.
    ///
    /// - Throws: ``CloudError`` `.operationCancelled` after Ctrl-C; the terminal shows again what is typed.
    static func readSecret(_ prompt: String) throws(CloudError) -> String {
        Interrupt.hold()
        defer { Interrupt.release() }
        var shown = termios()
        guard tcgetattr(0, &shown) == 0 else {
            throw CloudError(.invalidArguments, "This terminal cannot be asked for a password.")
        }
        var hidden = shown
        hidden.c_lflag &= ~tcflag_t(ECHO)
        // Stopped here, the shell would be left without an echo.
        hidden.c_cc.10 = 0
        _ = Standard.write(Array(prompt.utf8), to: 2)
        tcsetattr(0, TCSAFLUSH, &hidden)
        defer {
            tcsetattr(0, TCSAFLUSH, &shown)
            Standard.error("")
        }
        var line: [UInt8] = []
        while line.count < bytesMax {
            try Interrupt.check()
            // The signal may go to another thread, and not end a call that waits.
            var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
            guard poll(&input, 1, 100) > 0 else { continue }
            var byte: UInt8 = 0
            let count = read(0, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1, byte != UInt8(ascii: "\n") else { break }
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }
}
