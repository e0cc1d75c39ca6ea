import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

@testable import NephosContent

/// Who is let in, for how long, and what is said to everybody else.
@Suite struct TicketTests {
    private func send(_ frame: Frame, _ mover: TestBulk, _ house: BulkHouse) throws -> BulkFrame? {
        mover.clear()
        try mover.send(frame)
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        return mover.frames.first
    }

    @Test func theTicketOfAnotherDeviceIsNone() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let thief = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        for request in [frame(good, content(1)), BulkFrame.control(.get, good, number: 1, chunk: id(of: content(1)))] {
            let answer = try #require(try send(request, thief, house))
            #expect(answer.kind == .refused)
            #expect(answer.failure.code == .tokenExpired)
        }
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try send(frame(good, content(1)), mover, house)?.kind == .stored)
    }

    @Test func aTicketThatThereNeverWasIsRefused() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        var generator = SplitMix64(seed: 5)
        let answer = try #require(try send(frame(BulkTicket(using: &generator), number: 7, content(1)), mover, house))
        #expect(answer.failure.code == .tokenExpired)
        #expect(answer.number == 7)
        #expect(answer.chunk == id(of: content(1)))
    }

    @Test func aTicketEndsWithItsAccessToken() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let reply = try house.open(mover, upload: upload(1), bytes: 1 << 20)
        house.cloud.network.run(for: .milliseconds(Int64(reply.lifetimeMilliseconds) - 2000))
        #expect(try send(frame(ticket(reply), content(1)), mover, house)?.kind == .stored)
        house.cloud.network.run(for: .seconds(3))
        #expect(try send(frame(ticket(reply), content(2)), mover, house)?.failure.code == .tokenExpired)
    }

    @Test func aTicketEndsWhenTheKeyThatSignedItsTokenEndsBeforeIt() throws {
        let house = try BulkHouse()
        let client = try house.cloud.makeClient()
        var request = WireSignIn()
        (request.accountName, request.password, request.deviceName) = (TestCloud.accountName, TestCloud.password, "d")
        let session: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
        let app = session.accessToken.app
        let honest = try house.open(
            TestBulk(of: house.cloud, client, accessToken: session.accessToken.token), upload: upload(2), bytes: 1 << 20
        )
        let mover = TestBulk(
            of: house.cloud, client,
            accessToken: try house.cloud.makeToken(
                account: AccountID(session.accountID), device: DeviceID(session.device.deviceID),
                app: AppID(app.appID), entitlements: Entitlements(app), key: client.keys.publicKey,
                lifetime: .seconds(86_400)))
        let lasting = try house.open(mover, upload: upload(1), bytes: 1 << 20)
        #expect(try send(frame(ticket(lasting), content(1)), mover, house)?.kind == .stored)
        try house.cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        house.cloud.network.run(for: .seconds(2))
        #expect(try send(frame(ticket(lasting), content(2)), mover, house)?.failure.code == .tokenExpired)
        // Tokens that identity has signed end before their key.
        #expect(try send(frame(ticket(honest), content(3)), mover, house)?.kind == .stored)
    }

    @Test func whoWaitsUnderATicketIsToldThatItHasRunOut() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let reply = try house.open(mover)
        // Without credit nothing comes.
        try mover.send(BulkFrame.control(.get, ticket(reply), number: 1, chunk: id(of: content(1))))
        house.cloud.network.run(for: .milliseconds(Int64(reply.lifetimeMilliseconds) - 2000))
        #expect(mover.frames.isEmpty)
        house.cloud.network.run(for: .seconds(15))
        #expect(mover.frames.map(\.failure.code) == [.tokenExpired])
        #expect(mover.frames.first?.chunk == ChunkID.none)
        #expect(try mover.frames.first?.ticket == ticket(reply))
    }

    @Test func whoWaitsUnderATicketIsToldThatItMadeRoom() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let first = try ticket(house.open(mover))
        try mover.send(BulkFrame.control(.get, first, number: 1, chunk: id(of: content(1))))
        for _ in 0..<15 { _ = try house.open(mover) }
        #expect(mover.frames.isEmpty)
        _ = try house.open(mover)
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.map(\.failure.code) == [.tokenExpired])
        #expect(mover.frames.first?.ticket == first)
    }

    @Test func aRevokedDeviceIsStoppedInTheMiddle() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        #expect(try send(frame(good, content(1)), mover, house)?.kind == .stored)
        mover.clear()
        var request = WireRevokeDevice()
        request.accountName = TestCloud.accountName
        request.deviceID = mover.device.rawValue
        try house.cloud.operate("RevokeDevice", request, as: WireRevokeDeviceReply.self)
        house.cloud.network.run(for: .seconds(1))
        // It is told without having asked.
        let told = try #require(mover.frames.first)
        #expect(told.failure.code == .deviceRevoked)
        #expect(told.chunk == .none)
        #expect(try send(frame(good, content(2)), mover, house)?.failure.code == .tokenExpired)
        #expect(code { _ = try house.open(mover) } == .deviceRevoked)
        #expect(try house.chunkCount(of: mover.account) == 1)
    }

    /// What is asked for in large requests waits for its turn, and the revocation does not.
    @Test func noTicketIsGivenForARequestThatWaitedWhileItsDeviceWasRevoked() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let boss = try TestBulk(of: house.cloud)
        _ = try house.open(mover)
        let network = house.cloud.network
        network.run(for: .seconds(1))
        network.faults.latency = .milliseconds(1)...(.milliseconds(1))
        // A field that nobody knows, of 65,000 bytes.
        let large = try Frame([0x7a, 0xe8, 0xfb, 0x03] + [UInt8](repeating: 1, count: 65_000))
            .decode(WireOpenTransfer.self)
        let start = network.now
        var request = WireRevokeDevice()
        request.deviceID = mover.device.rawValue
        let revoked = try boss.client.begin(
            "RevokeDevice", request, at: .requests(.identity), accessToken: boss.accessToken)
        // What follows reaches the service at one time with what identity says of it, and before.
        network.run(within: .seconds(1)) { network.now >= start + .milliseconds(1) }
        let answers = try (0..<60).map { _ in
            try mover.client.begin("OpenTransfer", large, at: .requests(.documents), accessToken: mover.accessToken)
        }
        network.run(for: .seconds(2))
        #expect(try revoked.result?.get() != nil)
        let tickets = try answers.compactMap { try? $0.result?.get() }
            .map { try ticket($0.decode(WireOpenTransferReply.self)) }
        // Some had their turn before, and some after.
        #expect(!tickets.isEmpty && tickets.count < 60)
        for one in tickets {
            let answer = try send(BulkFrame.control(.get, one, number: 1, chunk: id(of: content(1))), mover, house)
            #expect(answer?.failure.code == .tokenExpired)
        }
    }

    @Test func aLockedAccountIsStoppedToo() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        #expect(try send(frame(good, content(1)), mover, house)?.kind == .stored)
        mover.clear()
        var request = WireLockAccount()
        request.accountName = TestCloud.accountName
        request.locked = true
        try house.cloud.operate("LockAccount", request, as: WireLockAccountReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.first?.failure.code == .accountTemporarilyUnavailable)
        #expect(try send(frame(good, content(2)), mover, house)?.failure.code == .tokenExpired)
    }

    @Test func anAppThatMayUseNoDocumentsGetsNoTicket() throws {
        let house = try BulkHouse()
        var app = WireApp()
        app.appID = "TEAM.notes"
        app.storeID = "TEAM.notes"
        app.capabilities = [.keyValue]
        try house.cloud.createApp(app)
        let mover = try TestBulk(of: house.cloud, app: "TEAM.notes")
        #expect(code { _ = try house.open(mover) } == .missingEntitlement)
        // Nor does it end what another app of the account has open.
        let other = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(other, upload: upload(1), bytes: 1 << 20))
        #expect(code { try house.close(mover, upload: upload(1)) } == .missingEntitlement)
        try other.send(frame(good, content(1)))
        house.cloud.network.run(for: .seconds(1))
        #expect(other.frames.map(\.kind).contains(.stored))
    }

    @Test func whatIsNoFrameIsRefusedAndTheOthersAreServed() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        let whole = frame(good, number: 3, content(1)).bytes
        func changed(_ place: Int, _ byte: UInt8) -> Frame {
            var bytes = whole
            bytes[place] = byte
            return Frame(bytes)
        }
        let bad: [(Frame, CloudError.Code)] = [
            (Frame([1]), .malformedRequest),
            (Frame([UInt8](whole.prefix(63))), .malformedRequest),
            (Frame([UInt8](whole.prefix(64))), .malformedRequest),
            (Frame([UInt8](whole.dropLast())), .malformedRequest),
            (changed(0, 0), .incompatibleVersion),
            (changed(0, 200), .incompatibleVersion),
            (changed(0, 2), .malformedRequest),
            (changed(0, 4), .malformedRequest),
            (changed(1, 2), .incompatibleVersion),
            (changed(2, 1), .invalidArguments),
            (changed(2, 2), .incompatibleVersion),
            (changed(3, 1), .malformedRequest),
            (BulkFrame.control(.stored, good), .malformedRequest),
            (BulkFrame.control(.credit, good, number: 1, encoding: .zstandard), .incompatibleVersion),
        ]
        for (request, expected) in bad {
            #expect(try send(request, mover, house)?.failure.code == expected)
        }
        #expect(try send(Frame(whole), mover, house)?.kind == .stored)
    }
}
