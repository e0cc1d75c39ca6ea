import Foundation
import Synchronization
import Testing

/// Carries connections to a server byte for byte, and stops where a test wants:
/// in the middle of a message, or of what a peer should read.
final class Relay: Sendable {
    struct Flow {
        /// Bytes that still go to the server; then nothing more does.
        var toServer = Int.max
        /// Whether anything goes to the client.
        var toClient = true
    }

    /// POLLRDHUP, which Swift's Glibc module does not carry.
    private static let otherEndClosed: Int16 = 0x2000

    let endpoint: String
    private let listener: Int32
    private let target: UInt16
    /// Bytes of the kernel's buffer for what the server sends; nil: as many as it likes.
    private let receiveBuffer: Int32?
    private let flow = Mutex(Flow())
    private let isOver = Mutex(false)
    /// How often a connection ended at the server's side.
    private let cuts = Mutex(0)

    var cutCount: Int { cuts.withLock { $0 } }

    init(to target: String, receiveBuffer: Int32? = nil) throws {
        self.receiveBuffer = receiveBuffer
        self.target = try #require(target.split(separator: ":").last.flatMap { UInt16($0) })
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = Self.loopback(0)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listener
        let bound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && listen(descriptor, 16) == 0
                    && getsockname(descriptor, $0, &size) == 0
            }
        }
        try #require(bound)
        endpoint = "tcp://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
        Thread.detachNewThread { [self] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0 else { return }
                Thread.detachNewThread { [self] in carry(client) }
            }
        }
    }

    func set(_ change: @Sendable (inout Flow) -> Void) { flow.withLock { change(&$0) } }

    func close() {
        isOver.withLock { $0 = true }
        shutdown(listener, Int32(SHUT_RDWR))
        Foundation.close(listener)
    }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        return address
    }

    private func carry(_ client: Int32) {
        let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer {
            Foundation.close(client)
            Foundation.close(server)
        }
        if var size = receiveBuffer {
            setsockopt(server, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
        }
        var address = Self.loopback(target)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(server, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else { return }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while !isOver.withLock({ $0 }) {
            let flow = flow.withLock { $0 }
            var polled = [
                pollfd(fd: client, events: flow.toServer > 0 ? Int16(POLLIN) : 0, revents: 0),
                pollfd(fd: server, events: flow.toClient ? Int16(POLLIN) : Self.otherEndClosed, revents: 0),
            ]
            guard poll(&polled, 2, 5) > 0 else { continue }
            if polled[1].revents & (Self.otherEndClosed | Int16(POLLHUP | POLLERR)) != 0 {
                return cuts.withLock { $0 += 1 }
            }
            if polled[0].revents != 0 {
                let count = recv(client, &buffer, min(buffer.count, flow.toServer), 0)
                guard count > 0, sendAll(server, buffer, count) else { return }
                if flow.toServer != .max { self.flow.withLock { $0.toServer -= count } }
            }
            if flow.toClient, polled[1].revents != 0 {
                let count = recv(server, &buffer, buffer.count, 0)
                guard count > 0, sendAll(client, buffer, count) else {
                    return cuts.withLock { $0 += 1 }
                }
            }
        }
    }

    private func sendAll(_ descriptor: Int32, _ bytes: [UInt8], _ count: Int) -> Bool {
        var sent = 0
        while sent < count {
            let result = bytes.withUnsafeBytes {
                send(descriptor, $0.baseAddress.map { $0 + sent }, count - sent, Int32(MSG_NOSIGNAL))
            }
            guard result > 0 else { return false }
            sent += result
        }
        return true
    }
}
