import Foundation
import NephosBus
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

    private static func limits(admitsRosterAlone: Bool = false) -> ConnectionLimits {
        ConnectionLimits(unreadPerConnectionMax: 1 << 20, unreadMax: 1 << 20, admitsRosterAlone: admitsRosterAlone)
    }

    /// Opens accepted connections and says which were cut.
    private final class Watched {
        private let table = ConnectionTable()
        private var watch: ConnectionWatch
        private var connections: [Int32: Connection] = [:]

        init(_ room: ConnectionRoom) { watch = ConnectionWatch(table: table, room: room) }

        deinit { Glibc.close(watch.epoll) }

        @discardableResult
        func open(_ descriptor: Int32, under limits: ConnectionLimits, at now: Duration = .zero) -> Int32 {
            watch.opened(descriptor, under: limits, isAccepted: true, now: now)
            connections[descriptor] = table[descriptor]
            return descriptor
        }

        func identify(_ descriptor: Int32) { connections[descriptor]?.noteIdentified() }
        func close(_ descriptor: Int32) { watch.closed(descriptor) }

        /// A connection that was cut reads its own end.
        func isCut(_ descriptor: Int32) -> Bool {
            var byte: UInt8 = 0
            return recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT) | Int32(MSG_PEEK)) == 0
        }
    }

    /// Connections whose other ends stay open until the test ends.
    private final class Ends {
        private let listener: Listener
        private var theirs: [Int32] = []

        init(at host: String = "127.0.0.1") throws { listener = try Listener(at: host) }

        deinit { for one in theirs { Glibc.close(one) } }

        func accept(from host: String = "127.0.0.1") throws -> Int32 {
            let ends = try listener.connect(from: host)
            theirs.append(ends.theirs)
            return ends.ours
        }
    }

    /// At a socket for both versions of IP, peers of version 4 have addresses of version 6.
    @Test(arguments: [
        (at: "127.0.0.1", one: "127.0.0.1", another: "127.0.0.2"), (at: "::", one: "127.0.0.1", another: "127.0.0.2"),
        (at: "::", one: "::1", another: "127.0.0.1"),
    ])
    func theAddressWithMostConnectionsMakesRoom(_ hosts: (at: String, one: String, another: String)) throws {
        let (ends, limits) = (try Ends(at: hosts.at), Self.limits())
        let watched = Watched(ConnectionRoom(connectionsMax: 8))
        let another = watched.open(try ends.accept(from: hosts.another), under: limits)
        var ofOne: [Int32] = []
        for _ in 0..<7 { ofOne.append(watched.open(try ends.accept(from: hosts.one), under: limits)) }
        #expect(limits.cutCount == 0)
        for _ in 0..<3 { ofOne.append(watched.open(try ends.accept(from: hosts.one), under: limits)) }
        // Its oldest go, though the other is older; whoever comes gets in.
        #expect(ofOne.map(watched.isCut) == [true, true, true] + Array(repeating: false, count: 7))
        let later = watched.open(try ends.accept(from: hosts.another), under: limits)
        #expect(limits.cutCount == 4 && watched.isCut(ofOne[3]) && !watched.isCut(another) && !watched.isCut(later))
        // Whose end is told makes room.
        watched.close(ofOne[4])
        watched.open(try ends.accept(from: hosts.one), under: limits)
        #expect(limits.cutCount == 4)
    }

    @Test func identifiedConnectionsStayWhileStrangersMakeRoom() throws {
        let (ends, limits) = (try Ends(), Self.limits())
        let watched = Watched(ConnectionRoom(connectionsMax: 8))
        let known = try (0..<6).map { _ in watched.open(try ends.accept(), under: limits) }
        known.forEach(watched.identify)
        for number in 0..<20 {
            let stranger = watched.open(try ends.accept(from: "127.0.0.\(2 + number % 3)"), under: limits)
            #expect(!watched.isCut(stranger), "\(number)")
        }
        #expect(known.allSatisfy { !watched.isCut($0) })
        // A quarter is left to strangers: beyond it, one of the identified goes, of the address that has most.
        let another = watched.open(try ends.accept(from: "127.0.0.9"), under: limits)
        for one in known { watched.identify(one) }
        watched.identify(another)
        let later = watched.open(try ends.accept(from: "127.0.0.8"), under: limits)
        #expect(!watched.isCut(another) && !watched.isCut(later))
        #expect(known.count(where: watched.isCut) == 1 && watched.isCut(known[0]))
    }

    @Test func rosterConnectionsAreIdentifiedAfterTheHandshakeTime() throws {
        let ends = try Ends()
        let (events, requests) = (Self.limits(admitsRosterAlone: true), Self.limits())
        let watched = Watched(ConnectionRoom(connectionsMax: 4))
        let followers = try (0..<2).map { _ in watched.open(try ends.accept(), under: events) }
        for _ in 0..<6 { watched.open(try ends.accept(), under: requests, at: .seconds(6)) }
        #expect(events.cutCount == 0 && requests.cutCount == 4)
        #expect(followers.allSatisfy { !watched.isCut($0) })
        // Half of a handshake is nobody.
        let half = watched.open(try ends.accept(), under: events, at: .seconds(7))
        for _ in 0..<3 { watched.open(try ends.accept(), under: requests, at: .seconds(8)) }
        #expect(watched.isCut(half) && followers.allSatisfy { !watched.isCut($0) })
    }

    @Test func connectionsAreBoundedByMemoryAndByDescriptors() {
        func room(_ descriptors: Int, _ memory: Int, _ work: LoopWork) -> Int {
            ConnectionRoom(descriptors: descriptors, memoryBytes: memory, for: work).connectionsMax
        }
        // Both loops together: half of the memory, at 160 KiB each.
        #expect(room(65_536, 2 << 30, .requests) == 4914 && room(65_536, 2 << 30, .content) == 1638)
        #expect(room(65_536, 768 << 20, .requests) == 1842)
        // No limit: fifteen sixteenths of the descriptors, less those of the process itself.
        #expect(room(1088, .max, .requests) == 720 && room(1088, .max, .content) == 240)
        #expect(room(0, 0, .requests) == 1)
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
        let limits = Self.limits()
        let descriptor = try listener.accept()
        for (limit, cuts) in [(Int(descriptor) + 65, 0), (Int(descriptor) + 64, 1)] {
            // What it connects to itself is never cut for that.
            for isAccepted in [false, true] {
                let room = ConnectionRoom(descriptors: limit, memoryBytes: .max, for: .requests)
                var watch = ConnectionWatch(table: ConnectionTable(), room: room)
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
