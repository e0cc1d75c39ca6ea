import NephosBus
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosWire
import Testing

/// What a service learns of another one's events, whatever is lost between them.
struct FollowerTests {
    private func write(_ count: Int, on house: TestHouse, from start: Int = 0) throws {
        let client = try house.client()
        for index in start..<start + count {
            _ = try #require(client.ask(createAccount("\(index)"), on: house.bus)).get()
        }
        client.close()
    }

    private func tokens(_ house: TestHouse) -> [UInt64] {
        house.notifications.handled.filter { $0.notification != nil }.map(\.position.sequence)
    }

    private func lag(_ house: TestHouse) throws -> UInt64? {
        let client = try house.client(to: .notifications)
        let body = try #require(client.ask(WireCheckHealth(), on: house.bus)).get()
        return try body.decode(WireCheckHealthReply.self).followerLag["identity"]
    }

    @Test func eventsArriveOnceAndInOrder() throws {
        let house = try TestHouse(withFollower: true)
        house.bus.settle()
        try write(5, on: house)
        house.bus.run(for: .seconds(3))
        #expect(tokens(house) == [1, 2, 3, 4, 5])
    }

    @Test func lateFollowerCatchesUp() throws {
        var house = try TestHouse()
        try write(5, on: house)
        try house.startFollower()
        // It asks again once it is connected.
        house.bus.run(for: .seconds(1))
        // Five changes of one scope, told as one.
        #expect(tokens(house) == [5])
        #expect(house.notifications.restarts == [NotebookService.scope.partition])
        #expect(try house.notifications.handled[0].notification?.decoded().changes.isEmpty == true)
    }

    @Test func aCursorThatMayLagIsStoredWhenTheServiceCloses() throws {
        var house = try TestHouse()
        try house.startFollower(cursorDelay: .seconds(60))
        house.bus.settle()
        try write(3, on: house)
        #expect(tokens(house) == [1, 2, 3])
        let select = SQL("SELECT MAX(sequence) FROM follow_cursors")
        func stored() throws -> Int64? {
            try house.notificationsEngine.write { try $0.first(select) { $0.integer(0) } }
        }
        #expect(try stored() == 0)
        house.notificationsHost?.close()
        #expect(try stored() == 3)
    }

    @Test func gapIsClosedByTheNextEvent() throws {
        let house = try TestHouse(withFollower: true)
        try write(2, on: house)
        house.bus.losesEvents = true
        try write(2, on: house, from: 2)
        house.bus.losesEvents = false
        try write(1, on: house, from: 4)
        #expect(tokens(house) == [1, 2, 5])
    }

    @Test func lostLastEventIsNoticedByTheHeartbeat() throws {
        let house = try TestHouse(withFollower: true)
        try write(2, on: house)
        house.bus.losesEvents = true
        try write(1, on: house, from: 2)
        house.bus.losesEvents = false
        #expect(tokens(house) == [1, 2])
        house.bus.run(for: .seconds(1.5))
        #expect(tokens(house) == [1, 2, 3])
        #expect(try lag(house) == 0)
    }

    @Test func followerThatHearsNothingAsksByItself() throws {
        let house = try TestHouse(withFollower: true)
        try write(1, on: house)
        house.bus.losesEvents = true
        try write(1, on: house, from: 1)
        house.bus.run(for: .seconds(7))
        #expect(tokens(house) == [1, 2])
    }

    @Test func cursorSurvivesARestart() throws {
        var house = try TestHouse(withFollower: true)
        try write(3, on: house)
        house.notificationsHost?.close()
        try write(2, on: house, from: 3)
        try house.startFollower()
        house.bus.run(for: .seconds(1))
        #expect(tokens(house) == [1, 2, 3, 5])
        // Neither the very first event nor the restart made it begin anew.
        #expect(house.notifications.restarts.isEmpty)
    }

    @Test func newEpochStartsOver() throws {
        let house = try TestHouse(withFollower: true)
        try write(3, on: house)
        let restarts = house.notifications.restarts.count
        let key = try #require(SipHash(key: [UInt8](repeating: 3, count: 16)))
        let now = Timestamp(milliseconds: 1)
        try house.identityEngine.write { transaction in
            let history = try Feed.beginRun(in: transaction, key: key, at: now, random: 1)
            _ = try Feed.beginEpoch(in: transaction, shownBy: .zero, history, at: now, random: 2)
        }
        let epoch = try house.identityEngine.write { try Feed(over: $0).position(ofPartition: 0).epoch }
        try write(1, on: house, from: 3)
        house.bus.run(for: .seconds(2))
        #expect(house.notifications.restarts.count == restarts + 1)
        #expect(house.notifications.handled.last?.position.epoch == epoch)
        #expect(house.notifications.handled.last?.notification?.token.sequence == 4)
    }

    @Test func failedCommitIsFollowedAgain() throws {
        let house = try TestHouse(withFollower: true)
        try write(1, on: house)
        house.notificationsEngine.failsCommits = true
        try write(1, on: house, from: 1)
        #expect(try lag(house) != nil)
        house.notificationsEngine.failsCommits = false
        house.bus.run(for: .seconds(3))
        #expect(tokens(house).last == 2)
        #expect(try lag(house) == 0)
    }

    @Test func eventThatCannotBeHandledHoldsUpNobody() throws {
        let house = try TestHouse(withFollower: true)
        try write(1, on: house)
        house.notifications.refusesEvents = true
        try write(1, on: house, from: 1)
        house.notifications.refusesEvents = false
        try write(1, on: house, from: 2)
        #expect(tokens(house) == [1, 3])
    }

    @Test func deviceRevokedAtIdentityIsRefusedElsewhere() throws {
        let house = try TestHouse(withFollower: true)
        let keys = try KeysOnly().makeKeyPair()
        let client = try house.client(keys, to: .notifications)
        let token = try house.token(for: keys)
        #expect(client.ask(WireWhoAmI(), on: house.bus, token: token)?.code == nil)
        var request = WireRevokeDevice()
        request.deviceID = "dev_one"
        let administration = try house.client(house.operatorKeys)
        _ = try #require(administration.ask(request, on: house.bus)).get()
        house.bus.run(for: .seconds(1.5))
        #expect(client.ask(WireWhoAmI(), on: house.bus, token: token)?.code == .deviceRevoked)
    }
}
