import Foundation
import Testing

@testable import ZeroMQBus

/// What is done to a connection by its descriptor, which may be another's by then.
@Suite(.serialized) struct ConnectionWatchTests {
    /// Accepts connections from addresses of this machine.
    private final class Listener {
        private let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        private var port: in_port_t = 0
        private var accepted: Set<Int32> = []

        init() throws {
            var address = Self.address("127.0.0.1", 0)
            let isBound = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isNamed = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
            }
            try #require(isBound == 0 && isNamed == 0 && listen(descriptor, 16) == 0)
            port = address.sin_port
        }

        deinit { for one in accepted.union([descriptor]) { Glibc.close(one) } }

        private static func address(_ host: String, _ port: in_port_t) -> sockaddr_in {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port
            inet_pton(AF_INET, host, &address.sin_addr)
            return address
        }

        /// Two ends of a connection.
        func connect(from host: String = "127.0.0.1") throws -> (theirs: Int32, ours: Int32) {
            let theirs = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            var (source, target) = (Self.address(host, 0), Self.address("127.0.0.1", port))
            let size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isBound = withUnsafePointer(to: &source) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(theirs, $0, size) }
            }
            let isConnected = withUnsafePointer(to: &target) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(theirs, $0, size) }
            }
            let ours = accept(descriptor, nil, nil)
            try #require(isBound == 0 && isConnected == 0 && ours >= 0)
            accepted.insert(ours)
            return (theirs, ours)
        }

        /// Whose other end is closed at once: the kernel still says whose it was.
        func accept(from host: String = "127.0.0.1") throws -> Int32 {
            let ends = try connect(from: host)
            Glibc.close(ends.theirs)
            return ends.ours
        }

        func close(_ ours: Int32) {
            Glibc.close(ours)
            accepted.remove(ours)
        }

        private func accept(_ descriptor: Int32, _ address: UnsafeMutablePointer<sockaddr>?, _ size: Int?) -> Int32 {
            Glibc.accept(descriptor, address, nil)
        }
    }

    @Test func oneAddressHasHalfOfTheDescriptors() throws {
        let listener = try Listener()
        let limits = ConnectionLimits(unreadPerConnectionMax: 1 << 20, unreadMax: 1 << 20)
        let first = try listener.accept()
        // As large as it has to be for the numbers that this process uses already.
        let room = DescriptorRoom(limit: 64 + 2 * (Int(first) + 100))
        var watch = ConnectionWatch(table: ConnectionTable(), room: room)
        defer { Glibc.close(watch.epoll) }
        func open(_ descriptor: Int32) { watch.opened(descriptor, under: limits, isAccepted: true, now: .zero) }
        #expect(room.connectionsPerAddressMax == Int(first) + 100)
        open(first)
        for _ in 1..<room.connectionsPerAddressMax { open(try listener.accept()) }
        #expect(limits.cutCount == 0)
        let oneMore = try listener.accept()
        open(oneMore)
        #expect(limits.cutCount == 1)
        open(try listener.accept(from: "127.0.0.2"))
        #expect(limits.cutCount == 1)
        // Whose end is told makes room.
        for descriptor in [oneMore, first] {
            watch.closed(descriptor)
            listener.close(descriptor)
        }
        open(try listener.accept())
        #expect(limits.cutCount == 1)
    }

    @Test func someDescriptorsAreKeptForTheProcessItself() throws {
        let listener = try Listener()
        let limits = ConnectionLimits(unreadPerConnectionMax: 1 << 20, unreadMax: 1 << 20)
        let descriptor = try listener.accept()
        for (limit, cuts) in [(Int(descriptor) + 65, 0), (Int(descriptor) + 64, 1)] {
            // What it connects to itself is never cut for that.
            for isAccepted in [false, true] {
                var watch = ConnectionWatch(table: ConnectionTable(), room: DescriptorRoom(limit: limit))
                defer { Glibc.close(watch.epoll) }
                watch.opened(descriptor, under: limits, isAccepted: isAccepted, now: .zero)
                #expect(limits.cutCount == (isAccepted ? cuts : 0))
            }
        }
    }

    @Test func aLaterConnectionUnderTheSameNumberIsLeftAlone() throws {
        let listener = try Listener()
        let limits = ConnectionLimits(unreadPerConnectionMax: 0, unreadMax: 0)
        let (early, later) = (try listener.connect(), try listener.connect())
        defer { for descriptor in [early.theirs, later.theirs] { Glibc.close(descriptor) } }
        let connection = try #require(Connection(descriptor: early.ours, limits: limits))
        #expect(connection.counters() != nil && connection.hasSentAll)
        try #require(dup2(later.ours, early.ours) == early.ours)

        #expect(connection.counters() == nil && !connection.hasSentAll)
        connection.cut()
        #expect(limits.cutCount == 0)
        var byte: UInt8 = 7
        #expect(write(later.theirs, &byte, 1) == 1 && read(early.ours, &byte, 1) == 1 && byte == 7)
        let other = try #require(Connection(descriptor: early.ours, limits: limits))
        #expect(!other.isSame(as: connection))
        other.cut()
        #expect(limits.cutCount == 1 && read(later.theirs, &byte, 1) <= 0)
    }
}
