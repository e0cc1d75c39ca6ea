import Foundation
import Testing

@testable import NephosZeroMQ

/// What is done to a connection by its descriptor, which may be another's by then.
@Suite(.serialized) struct ConnectionWatchTests {
    /// Accepts connections from addresses of this machine.
    private final class Listener {
        private let descriptor: Int32
        private let port: in_port_t
        private var accepted: Set<Int32> = []

        init(at host: String = "127.0.0.1") throws {
            var address = Self.address(host, 0)
            let descriptor = socket(Int32(address.ss_family), Int32(SOCK_STREAM.rawValue), 0)
            // For both versions, as libzmq listens.
            var none: Int32 = 0
            setsockopt(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, &none, socklen_t(MemoryLayout<Int32>.size))
            try #require(Self.with(&address) { bind(descriptor, $0, $1) } == 0 && listen(descriptor, 16) == 0)
            var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
            try #require(Self.with(&address) { pointer, _ in getsockname(descriptor, pointer, &size) } == 0)
            self.descriptor = descriptor
            port = withUnsafeBytes(of: address) { $0.loadUnaligned(as: sockaddr_in.self).sin_port }
        }

        deinit { for one in accepted.union([descriptor]) { Glibc.close(one) } }

        /// - Parameter port: In the network's order. It stands in the same place for both versions.
        static func address(_ host: String, _ port: in_port_t) -> sockaddr_storage {
            var address = sockaddr_storage()
            withUnsafeMutableBytes(of: &address) { bytes in
                if host.contains(":") {
                    var own = sockaddr_in6()
                    (own.sin6_family, own.sin6_port) = (sa_family_t(AF_INET6), port)
                    inet_pton(AF_INET6, host, &own.sin6_addr)
                    bytes.storeBytes(of: own, as: sockaddr_in6.self)
                } else {
                    var own = sockaddr_in()
                    (own.sin_family, own.sin_port) = (sa_family_t(AF_INET), port)
                    inet_pton(AF_INET, host, &own.sin_addr)
                    bytes.storeBytes(of: own, as: sockaddr_in.self)
                }
            }
            return address
        }

        private static func with(
            _ address: inout sockaddr_storage, _ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Int32
        ) -> Int32 {
            let isVersion6 = Int32(address.ss_family) == AF_INET6
            let size = isVersion6 ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
            return withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(size)) }
            }
        }

        /// Two ends of a connection.
        func connect(from host: String = "127.0.0.1") throws -> (theirs: Int32, ours: Int32) {
            var source = Self.address(host, 0)
            var target = Self.address(host.contains(":") ? "::1" : "127.0.0.1", port)
            let theirs = socket(Int32(source.ss_family), Int32(SOCK_STREAM.rawValue), 0)
            let isBound = Self.with(&source) { bind(theirs, $0, $1) }
            let isConnected = Self.with(&target) { Glibc.connect(theirs, $0, $1) }
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

    /// At a socket for both versions of IP, peers of version 4 have addresses of version 6.
    @Test(arguments: [
        (at: "127.0.0.1", one: "127.0.0.1", another: "127.0.0.2"), (at: "::", one: "127.0.0.1", another: "127.0.0.2"),
        (at: "::", one: "::1", another: "127.0.0.1"),
    ])
    func oneAddressHasHalfOfTheDescriptors(_ hosts: (at: String, one: String, another: String)) throws {
        let listener = try Listener(at: hosts.at)
        let limits = ConnectionLimits(unreadPerConnectionMax: 1 << 20, unreadMax: 1 << 20)
        // As many as it has to be for the numbers that this process uses already, and others take meanwhile: all are
        // there before the first is counted.
        let first = try listener.accept(from: hosts.one)
        let another = try listener.accept(from: hosts.another)
        var ofOne = [first]
        var share = Int(first) + 100
        while ofOne.count < share + 2 || Int(max(another, ofOne.max() ?? 0)) >= 2 * share {
            if ofOne.count >= share + 2 { share *= 2 }
            try #require(share < 4000)
            ofOne.append(try listener.accept(from: hosts.one))
        }
        let room = DescriptorRoom(limit: 64 + 2 * share)
        var watch = ConnectionWatch(table: ConnectionTable(), room: room)
        defer { Glibc.close(watch.epoll) }
        func open(_ descriptor: Int32) { watch.opened(descriptor, under: limits, isAccepted: true, now: .zero) }
        #expect(room.connectionsPerAddressMax == share)
        for descriptor in ofOne.prefix(share) { open(descriptor) }
        #expect(limits.cutCount == 0)
        open(ofOne[share])
        #expect(limits.cutCount == 1)
        open(another)
        #expect(limits.cutCount == 1)
        // Whose end is told makes room.
        for descriptor in [ofOne[share], first] {
            watch.closed(descriptor)
            listener.close(descriptor)
        }
        open(ofOne[share + 1])
        #expect(limits.cutCount == 1)
    }

    /// Whoever has one address of version 6 has as many as there are.
    @Test func anAddressOfVersion6CountsByItsFirstHalf() {
        func isOne(_ host: String, _ other: String) -> Bool {
            PeerAddress(Listener.address(host, 1)) == PeerAddress(Listener.address(other, 2))
        }
        #expect(isOne("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"))
        #expect(!isOne("2001:db8:1:2::1", "2001:db8:1:3::1") && !isOne("2001:db8:1:2::1", "2001:db9:1:2::1"))
        #expect(isOne("::ffff:192.0.2.1", "192.0.2.1") && !isOne("::ffff:192.0.2.1", "::ffff:192.0.2.2"))
        #expect(!isOne("::ffff:192.0.2.1", "::1") && !isOne("192.0.2.1", "192.0.2.2"))
        #expect(PeerAddress(sockaddr_storage()) == nil)
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
