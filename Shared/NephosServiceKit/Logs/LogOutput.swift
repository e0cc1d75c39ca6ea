private import Foundation
internal import Synchronization

/// Where lines of a log go. What it does not take at once is lost: nobody waits for a disk that is full, or for whoever
/// reads a pipe and has stopped. SIGPIPE is ignored by whoever has one.
final class LogOutput: Sendable {
    static let standard = LogOutput(1)
    static let error = LogOutput(2)
    /// So much a pipe or a socket takes that says it takes something.
    private static let pieceBytesMax = 4096
    private static let lineEnd: [UInt8] = [0x0a]

    private let descriptor: Int32
    /// Whether the last line was not written to its end. By whoever writes: two that look whether there is room may
    /// both find the last of it.
    private let isCut = Mutex(false)

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    func write(_ line: [UInt8]) {
        isCut.withLock { isCut in
            // What comes after half a line is none of its own.
            if isCut, put(Self.lineEnd) == 0 { return }
            isCut = (1..<line.count).contains(put(line))
        }
    }

    /// - Returns: How many bytes were written.
    private func put(_ bytes: [UInt8]) -> Int {
        bytes.withUnsafeBytes { bytes in
            var done = 0
            while done < bytes.count {
                var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard poll(&state, 1, 0) > 0, state.revents & Int16(POLLOUT) != 0 else { break }
                let piece = UnsafeRawBufferPointer(rebasing: bytes.dropFirst(done).prefix(Self.pieceBytesMax))
                let count = Foundation.write(descriptor, piece.baseAddress, piece.count)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                done += count
            }
            return done
        }
    }
}
