import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Large requests wait for their turn, and nobody waits for them but who sent them.
@Suite struct TurnTests {
    /// What is sent at one time arrives at one time, and is taken as one group.
    private func makeCloud(seed: UInt64) throws -> TestCloud {
        let cloud = try TestCloud(seed: seed)
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        return cloud
    }

    private func wholePull(_ guest: Guest) -> WireReadChanges {
        var pull = WireReadChanges()
        pull.scope = guest.session.accessToken.app.storeID
        return pull
    }

    private func pulled(_ guest: Guest) throws -> [String] {
        let replies = guest.takeReplies().compactMap { try? $0.decoded(as: WireReadChangesReply.self) }
        return try #require(replies.first { $0.complete }).items.map(\.key)
    }

    /// Of 20 calls by its bytes.
    private func largePush(_ guest: Guest) -> WirePushKeys {
        guest.push([guest.write("large", .string(String(repeating: "x", count: 80_000)))])
    }

    private func sequences(_ guests: [Guest]) throws -> [UInt64] {
        try guests.map { try #require($0.takeReplies().first).decoded(as: WirePushKeysReply.self).token.sequence }
    }

    @Test func aSmallRequestGoesBeforeALargeOneThatCameWithIt() throws {
        let cloud = try makeCloud(seed: 21)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let small = try Guest(of: cloud, seed: 2)
        for guest in [large, small] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        try large.send(largePush(large))
        try small.send(small.push([small.write("small", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(try sequences([small, large]) == [3, 4])
    }

    /// As many are read at one time as there are threads for it; the others wait.
    @Test func aReadWhoseTurnComesTooLateIsNotCarriedOut() throws {
        let cloud = try makeCloud(seed: 29)
        defer { cloud.close() }
        let guests = try (1...6).map { try Guest(of: cloud, seed: $0) }
        for guest in guests { #expect(try guest.ask(largePush(guest)).code == nil) }
        cloud.network.offloadTime = .seconds(1)
        for guest in guests.prefix(4) { try guest.send(wholePull(guest)) }
        cloud.network.run(for: .milliseconds(100))
        for (guest, timeout) in zip(guests.suffix(2), [Duration.milliseconds(500), .seconds(5)]) {
            try guest.send(wholePull(guest), timeout: timeout)
        }
        cloud.network.run(for: .seconds(5))
        #expect(
            guests.map { $0.takeReplies().map(\.code) } == [[nil], [nil], [nil], [nil], [.deadlineExceeded], [nil]])
    }

    /// One large value is much, also where few items are asked for.
    @Test(arguments: [0, 1]) func aLargeValueIsReadBesideTheLoop(_ itemsMax: UInt32) throws {
        let cloud = try makeCloud(seed: 26)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(largePush(guest)).code == nil)
        let after = try guest.pull().get().token
        #expect(try guest.ask(largePush(guest)).code == nil)
        cloud.network.offloadTime = .seconds(1)
        for from in [WireChangeToken(), after] {
            var pull = wholePull(guest)
            pull.after = from
            pull.itemsMax = itemsMax
            if itemsMax > 0 { pull.bytesMax = 1000 }
            _ = guest.takeReplies()
            try guest.send(pull)
            cloud.network.run(for: .milliseconds(500))
            #expect(guest.takeReplies().isEmpty)
            cloud.network.run(for: .seconds(1))
            let reply = try #require(guest.takeReplies().first).decoded(as: WireReadChangesReply.self)
            #expect(reply.items.map(\.key) == ["large"])
        }
    }

    /// A pull of more than a little is read off the loop, from a state that has all that was stored before it.
    @Test func aLargePullIsReadBesideTheLoop() throws {
        let cloud = try makeCloud(seed: 26)
        defer { cloud.close() }
        cloud.network.offloadTime = .milliseconds(300)
        let large = try Guest(of: cloud)
        let small = try Guest(of: cloud, seed: 2)
        let value = PropertyValue.string(String(repeating: "x", count: 1000))
        #expect(try large.ask(large.push((0..<100).map { large.write("\($0)", value) })).code == nil)
        try large.send(wholePull(large))
        try small.send(small.push([small.write("small", 1)]))
        cloud.network.run(for: .milliseconds(100))
        #expect(small.takeReplies().map(\.code) == [nil] && large.takeReplies().isEmpty)
        // It waits behind the pull, and does not change what that answers.
        try large.send(large.push([large.write("after", 1)]))
        cloud.network.run(for: .milliseconds(100))
        #expect(large.takeReplies().isEmpty)
        cloud.network.run(for: .milliseconds(500))
        let replies = large.takeReplies()
        try #require(replies.count == 2)
        let pulled = try replies[0].decoded(as: WireReadChangesReply.self)
        #expect(pulled.complete && pulled.items.count == 101)
        #expect(try replies[1].decoded(as: WirePushKeysReply.self).previousSequence == pulled.token.sequence)
    }

    @Test func manyPullsOfOneConnectionAreAllAnsweredInTheirOrder() throws {
        let cloud = try makeCloud(seed: 27)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let value = PropertyValue.string(String(repeating: "x", count: 1000))
        #expect(try guest.ask(guest.push((0..<50).map { guest.write("\($0)", value) })).code == nil)
        for number in 0..<40 {
            try guest.send(wholePull(guest))
            try guest.send(guest.push([guest.write("number", .integer(Int64(number)))]))
        }
        cloud.network.run(for: .seconds(2))
        let replies = guest.takeReplies()
        try #require(replies.count == 80)
        for number in 1..<40 {
            let items = try replies[2 * number].decoded(as: WireReadChangesReply.self).items
            #expect(items.first { $0.key == "number" }?.value.integer == Int64(number - 1))
        }
    }

    @Test func whatAConnectionSendsAfterALargeRequestIsCarriedOutAfterIt() throws {
        let cloud = try makeCloud(seed: 22)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil)
        try guest.send(wholePull(guest))
        try guest.send(guest.push([guest.write("after", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(try pulled(guest) == ["k"])
        #expect(try guest.pull().get().items.count == 2)
    }

    @Test func manyShortWritesInManyPushesDoNotShareOneGroup() throws {
        let cloud = try makeCloud(seed: 24)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let small = try Guest(of: cloud, seed: 2)
        for guest in [large, small] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        func groups() throws -> UInt64 {
            try cloud.makeOperator().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.keyValue), as: WireCheckHealthReply.self
            ).counters["groups"] ?? 0
        }
        let before = try groups()
        // Small by their bytes, and 500 rows each.
        let push = large.push((0..<250).map { large.write("\($0)", .boolean(true)) })
        for _ in 0..<20 { try large.send(push) }
        try small.send(small.push([small.write("small", 1)]))
        cloud.network.run(for: .seconds(1))
        #expect(small.takeReplies().count == 1)
        #expect(large.takeReplies().count == 20)
        #expect(try groups() - before >= 20)
    }

    /// What waits has no share in the group that others join.
    @Test func aMiddlingRequestWaitsForNoLargeOneThatCameWithIt() throws {
        let cloud = try makeCloud(seed: 25)
        defer { cloud.close() }
        let large = try Guest(of: cloud)
        let middling = try Guest(of: cloud, seed: 2)
        for guest in [large, middling] { #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil) }
        try large.send(largePush(large))
        // 3 calls.
        try middling.send(
            middling.push((0..<24).map { middling.write("\($0)", .string(String(repeating: "x", count: 40))) }))
        cloud.network.run(for: .seconds(1))
        #expect(try sequences([middling, large]) == [3, 4])
    }

    @Test func whatWaitsForItsTurnIsBounded() throws {
        let cloud = try makeCloud(seed: 23)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("k", 1)])).code == nil)
        // More than a store may hold: each costs its bytes, and is then refused.
        let value = PropertyValue.string(String(repeating: "x", count: 1_200_000))
        let push = guest.push([guest.write("large", value)])
        for _ in 0..<60 { try guest.send(push) }
        cloud.network.run(for: .seconds(5))
        let codes = guest.takeReplies().map(\.code)
        // 16 MiB of one account.
        #expect(codes.count { $0 == .quotaExceeded } == 13)
        #expect(codes.count { $0 == .serviceBusy } == 47)
        #expect(try guest.pull().code == nil)
    }

    /// Accounts take turns at what is read off the loop.
    @Test func anAccountsManyReadsKeepNobodyElseWaiting() throws {
        let cloud = try makeCloud(seed: 27)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let many = try Guest(of: cloud)
        let one = try Guest(of: cloud, account: "other", seed: 2)
        for guest in [many, one] { #expect(try guest.ask(largePush(guest)).code == nil) }
        let connections = try (0..<140).map { _ in
            let connection = try cloud.makeRawClient(many.client.keys)
            try connection.send(request("CheckHealth", WireCheckHealth(), many), to: .requests(.keyValue))
            return connection
        }
        cloud.network.run(for: .seconds(1))
        for connection in connections { connection.clear() }
        cloud.network.offloadTime = .milliseconds(100)
        for connection in connections {
            try connection.send(request("ReadChanges", wholePull(many), many), to: .requests(.keyValue))
        }
        cloud.network.run(for: .milliseconds(10))
        let before = cloud.network.now
        #expect(try one.pull().code == nil)
        // Four are being read; they were there before.
        #expect(cloud.network.now - before < .milliseconds(250))
        cloud.network.run(for: .seconds(10))
        let codes = connections.flatMap { $0.replies.filter { $0.id != nil }.map(\.code) }
        #expect(codes.count { $0 == nil } == 128)
        #expect(codes.count { $0 == .serviceBusy } == 12)
        // Those places are free again.
        for connection in connections.prefix(128) {
            connection.clear()
            try connection.send(request("ReadChanges", wholePull(many), many), to: .requests(.keyValue))
        }
        cloud.network.run(for: .seconds(10))
        for connection in connections.prefix(128) {
            #expect(connection.replies.filter { $0.id != nil }.map(\.code) == [nil])
        }
    }

    /// What waits behind an account's reads, and the reads themselves, are bounded in bytes, and others are not
    /// concerned.
    @Test func whatWaitsForAnAccountsReadsIsBounded() throws {
        let cloud = try makeCloud(seed: 28)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let many = try Guest(of: cloud)
        let one = try Guest(of: cloud, account: "other", seed: 2)
        for guest in [many, one] { #expect(try guest.ask(largePush(guest)).code == nil) }
        // A field that nobody knows, of 65,000 bytes.
        let large = try Frame([0x92, 0xf4, 0x03, 0xe8, 0xfb, 0x03] + [UInt8](repeating: 1, count: 65_000))
            .decode(WireReadChanges.self)
        var pull = wholePull(many)
        pull.unknownFields = large.unknownFields
        let connections = try (0..<120).map { _ in
            let connection = try cloud.makeRawClient(many.client.keys)
            try connection.send(request("CheckHealth", WireCheckHealth(), many), to: .requests(.keyValue))
            return connection
        }
        cloud.network.run(for: .seconds(1))
        // As much the second time: what was held is given back.
        for _ in 0..<2 {
            cloud.network.offloadTime = .milliseconds(200)
            for connection in connections { connection.clear() }
            for connection in connections {
                try connection.send(request("ReadChanges", pull, many), to: .requests(.keyValue))
            }
            cloud.network.run(for: .milliseconds(20))
            for connection in connections[20..<60] {
                try connection.send(request("ReadChanges", pull, many), to: .requests(.keyValue))
            }
            cloud.network.run(for: .milliseconds(20))
            let refused = connections.flatMap(\.replies).filter { $0.code == .serviceBusy }.count
            #expect(refused == 160 - (8 << 20) / Frame(encoding: pull).count)
            try one.send(wholePull(one))
            cloud.network.run(for: .seconds(20))
            #expect(one.takeReplies().map(\.code) == [nil])
            #expect(connections.flatMap(\.replies).count { $0.id != nil && $0.code == nil } == 160 - refused)
        }
    }

    private func request(_ method: String, _ body: some SwiftProtobuf.Message, _ guest: Guest) -> NephosBus.Message {
        RequestEnvelope(
            method: method, id: guest.operation(), accessToken: guest.session.accessToken.token,
            body: Frame(encoding: body)
        ).encoded()
    }
}
