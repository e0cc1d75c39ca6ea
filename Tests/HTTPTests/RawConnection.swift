import Foundation
import NephosCore
import NephosHTTP
import Testing

/// A TCP connection that sends what a test says, whatever that is. Its calls wait: use it on a thread of its own.
final class RawConnection {
    private let descriptor: Int32
    /// Whether nothing came for 20 s when it was last waited for, and the connection is open still.
    private(set) var hasTimedOut = false

    init(_ port: Int) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else {
            throw CloudError(.networkFailure, "Nobody listens there.", details: ["errno": "\(errno)"])
        }
        var patience = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// - Returns: False: the other end has closed the connection.
    @discardableResult
    func send(_ text: String) -> Bool { send(bytes: Array(text.utf8)) }

    @discardableResult
    func send(bytes: [UInt8]) -> Bool {
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes {
                $0.baseAddress.map {
                    Foundation.send(descriptor, $0 + done, bytes.count - done, Int32(MSG_NOSIGNAL))
                } ?? 0
            }
            guard count > 0 else { return false }
            done += count
        }
        return true
    }

    /// Sends a request.
    func get(_ path: String, method: String = "GET", _ headers: [String] = []) {
        send((["\(method) \(path) HTTP/1.1", "Host: here"] + headers).joined(separator: "\r\n") + "\r\n\r\n")
    }

    /// What comes, up to so many bytes.
    ///
    /// - Returns: Nothing: the other end has closed the connection, or nothing has come for 20 s.
    func receive(max: Int = 1 << 16) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: max)
        let count = recv(descriptor, &bytes, max, 0)
        hasTimedOut = count < 0 && (errno == EAGAIN || errno == EINTR)
        return Array(bytes.prefix(Swift.max(0, count)))
    }

    /// All that comes until the connection is closed.
    func receiveAll() -> String {
        var bytes: [UInt8] = []
        while case let some = receive(), !some.isEmpty { bytes += some }
        return String(decoding: bytes, as: UTF8.self)
    }

    struct Answer {
        var status: Int
        var headers: [String: String]
        var body: [UInt8]
        var text: String { String(decoding: body, as: UTF8.self) }
    }

    private var buffer: [UInt8] = []

    /// The next answer; nil: the connection was closed before its end.
    func answer(hasBody: Bool = true) -> Answer? {
        var end: Int?
        while end == nil {
            end = buffer.firstRange(of: Array("\r\n\r\n".utf8))?.upperBound
            if end != nil { break }
            let some = receive()
            guard !some.isEmpty else { return nil }
            buffer += some
        }
        guard let end else { return nil }
        let lines = String(decoding: buffer[..<end], as: UTF8.self).components(separatedBy: "\r\n")
        buffer.removeFirst(end)
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            headers[line[..<colon].lowercased()] = line[line.index(after: colon)...].trimmingCharacters(
                in: .whitespaces)
        }
        let length = hasBody ? Int(headers["content-length"] ?? "0") ?? 0 : 0
        while buffer.count < length {
            let some = receive()
            guard !some.isEmpty else { return nil }
            buffer += some
        }
        let body = Array(buffer.prefix(length))
        buffer.removeFirst(length)
        return Answer(status: Int(lines[0].split(separator: " ")[1]) ?? 0, headers: headers, body: body)
    }
}

/// Runs what waits on a thread of its own.
func onThread<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try body() }) }
    }
}

/// A body that is made as it is asked for.
final class MadeBody: HTTPBodySource {
    private let piece: Int
    private let asked: @Sendable () -> Void

    init(piece: Int, asked: @escaping @Sendable () -> Void = {}) {
        self.piece = piece
        self.asked = asked
    }

    func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) {
        asked()
        completion(.success([UInt8](repeating: UInt8(ascii: "x"), count: piece)))
    }
}
