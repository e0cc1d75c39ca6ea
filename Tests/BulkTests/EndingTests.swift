import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosBulk

/// What ends tickets and accounts, and what is left then.
@Suite struct EndingTests {
    private func count(_ table: String, of account: AccountID, in house: BulkHouse) throws -> Int64 {
        let sql = SQL("SELECT COUNT(*) FROM \(table) WHERE owner = ?1")
        return try house.cloud.storage(of: .documents).write {
            try $0.first(sql, [.text(account.rawValue)]) { $0.integer(0) } ?? -1
        }
    }

    private func send(_ frame: Frame, _ mover: TestBulk, _ house: BulkHouse) throws -> BulkFrame? {
        mover.clear()
        try mover.send(frame)
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        return mover.frames.first
    }

    @Test func aClosedAccountIsStoppedInTheMiddleAndLeavesNoRow() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        #expect(try send(frame(good, content(1)), mover, house)?.kind == .stored)
        #expect(try count("content_written", of: mover.account, in: house) == 1)
        // It has written to a public database too, which is in another partition.
        let elsewhere = SQL("INSERT INTO content_written VALUES (?1, ?2, 1, 1)")
        _ = try house.cloud.storage(of: .documents).write {
            let partition = (ScopeName(mover.account, ItemName("")).partition + 1) % partitionCount
            try $0.execute(elsewhere, [.integer(Int64(partition)), .text(mover.account.rawValue)])
        }
        mover.clear()
        var request = WireCloseAccount()
        request.accountName = TestCloud.accountName
        try house.cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.map(\.failure.code) == [.notAuthenticated])
        #expect(mover.frames.first?.chunk == ChunkID.none)
        #expect(try send(frame(good, content(2)), mover, house)?.failure.code == .tokenExpired)
        house.cloud.network.run(for: .seconds(10))
        for table in ["content_written", "content_chunks", "content_holds", "content_owners"] {
            #expect(try count(table, of: mover.account, in: house) == 0)
        }
    }

    /// Owners behind it have their turn, and it does not come again.
    @Test func aDamagedEndingKeepsNoOthersWaiting() throws {
        let house = try BulkHouse()
        let storage = try house.cloud.storage(of: .documents)
        let insert = SQL("INSERT INTO content_endings VALUES (?1, ?2, 'T.a', ?3, 0)")
        _ = try storage.write {
            try $0.execute(insert, [.integer(1), .text("acc_one"), .blob([0])])
            try $0.execute(insert, [.integer(2), .text("acc_two"), .blob(id(of: content(1)).bytes)])
        }
        house.cloud.network.run(for: .seconds(130))
        #expect(
            try storage.write { try $0.first(SQL("SELECT COUNT(*) FROM content_endings"), []) { $0.integer(0) } } == 0)
    }

    /// Also in the very group in which the removal of others finds that nothing is left.
    @Test func anUploadThatEndsWheneverIsRemovedAtOnce() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        house.cloud.network.faults.latency = .milliseconds(1)...(.milliseconds(1))
        for step in 0..<60 {
            let (first, second) = (upload(UInt8(2 * step)), upload(UInt8(2 * step + 1)))
            for (number, id) in [first, second].enumerated() {
                let good = try ticket(house.open(mover, upload: id, bytes: 1 << 20))
                #expect(try send(frame(good, content(number, count: 1000)), mover, house)?.kind == .stored)
            }
            try house.close(mover, upload: first)
            house.cloud.network.run(for: .milliseconds(Int64(step)))
            try house.close(mover, upload: second)
            house.cloud.network.run(for: .milliseconds(500))
            #expect(try house.chunkCount(of: mover.account) == 0, "after \(step) ms")
        }
    }

    @Test func anAppThatMayNoLongerUseDocumentsIsStoppedInTheMiddle() throws {
        let house = try BulkHouse()
        var app = WireApp()
        app.appID = "TEAM.notes"
        app.storeID = "TEAM.notes"
        app.capabilities = [.keyValue, .documents]
        try house.cloud.createApp(app)
        let mover = try TestBulk(of: house.cloud, app: "TEAM.notes")
        let other = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        let others = try ticket(house.open(other, upload: upload(2), bytes: 1 << 20))
        #expect(try send(frame(good, content(1)), mover, house)?.kind == .stored)
        mover.clear()
        var update = WireUpdateApp()
        update.appID = "TEAM.notes"
        update.capabilities.values = [.keyValue]
        try house.cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.map(\.failure.code) == [.tokenExpired])
        #expect(try send(frame(good, content(2)), mover, house)?.failure.code == .tokenExpired)
        #expect(code { _ = try house.open(mover) } == .missingEntitlement)
        // Another app of the account goes on.
        #expect(try send(frame(others, content(3)), other, house)?.kind == .stored)
    }

    @Test func whatAnAccountAsksForIsBoundedOverAllItsTickets() throws {
        let house = try BulkHouse()
        try house.cloud.createAccount("other")
        let mover = try TestBulk(of: house.cloud)
        let other = try TestBulk(of: house.cloud, account: "other")
        let chunk = id(of: content(1))
        // Without credit all of them wait.
        for _ in 0..<9 {
            let good = try ticket(house.open(mover))
            for number in 0..<1000 {
                try mover.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: chunk))
            }
            house.cloud.network.run(for: .milliseconds(100))
        }
        #expect(mover.frames.count == 9000 - Sending.requestsOfAccountMax)
        #expect(mover.frames.allSatisfy { $0.failure.code == .serviceBusy })
        let good = try ticket(house.open(other))
        try other.send(BulkFrame.control(.credit, good, number: 1 << 20))
        #expect(
            try send(BulkFrame.control(.get, good, number: 1, chunk: id(of: content(1))), other, house)?.failure.code
                == .unknownItem)
    }

    @Test func aDamagedChunkIsNotWrittenByWhoHasWrittenTooMuch() throws {
        var configuration = Transfers.Configuration()
        configuration.writtenADayPlans = 0
        configuration.writtenADayLeast = 2 << 20
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 8 << 20))
        #expect(try send(frame(good, content(1, count: 1 << 20)), mover, house)?.kind == .stored)
        try house.damageAll(of: mover.account)
        #expect(try send(frame(good, content(2, count: 1_000_000)), mover, house)?.kind == .stored)
        let before = try house.diskBytes(of: mover.account)
        #expect(
            try send(frame(good, content(1, count: 1 << 20)), mover, house)?.failure.code == .requestRateLimited)
        #expect(try house.diskBytes(of: mover.account) == before)
    }

    /// The clock was ten years ahead when it was noted.
    @Test func whatWasNotedInTheFutureIsForgottenWithinADayToo() throws {
        var configuration = Transfers.Configuration()
        configuration.writtenADayPlans = 0
        configuration.writtenADayLeast = 2 << 20
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 8 << 20))
        for number in 0..<2 {
            let isStored = try send(frame(good, content(number, count: 1_000_000)), mover, house)?.kind == .stored
            #expect(isStored)
        }
        let ahead = SQL("UPDATE content_written SET noted_at = noted_at + 315360000000")
        _ = try house.cloud.storage(of: .documents).write { try $0.execute(ahead, []) }
        func sendOne() throws -> BulkFrame? {
            let late = try TestBulk(of: house.cloud)
            return try send(
                frame(ticket(house.open(late, upload: upload(1), bytes: 8 << 20)), content(9, count: 1_000_000)), late,
                house)
        }
        #expect(try sendOne()?.failure.code == .requestRateLimited)
        house.cloud.skip(.seconds(19 * 3600))
        house.cloud.network.run(for: .seconds(3600))
        #expect(try sendOne()?.kind == .stored)
    }

    /// What the loop of content knows of uploads goes with their tickets.
    @Test func uploadsWithoutTicketsAreForgotten() throws {
        let house = try BulkHouse()
        let network = SimulatedNetwork(seed: 1)
        defer { network.close() }
        let transport = InProcessTransport(network)
        let account = AccountID("account")
        let work = ChunkWork(
            store: house.store, snapshots: try house.cloud.storage(of: .documents).snapshots, roomKeptBytes: 0)
        let keys = try transport.makeKeyPair()
        let made = Made()
        _ = try transport.startLoop(named: "content") { loop in
            let door = try BulkDoor(
                loop: loop, endpoint: "tcp://127.0.0.1:7999", keys: keys, work: work, room: Room(perKeyMax: 1, max: 1)
            ) { _, _ in }
            made.door = door
            for number in 0..<10 {
                let ticket = try makeTicket(number, of: account, key: keys.publicKey)
                door.add(ticket, Upload.Standing(reserved: 1, filled: 0), Writing(bytes: 0, bytesMax: 1))
            }
        }
        // Ten uploads, and their account.
        #expect(made.door?.knownCount == 11)
        network.run(for: .seconds(100))
        #expect(made.door?.knownCount == 11)
        network.run(for: .seconds(100))
        #expect(made.door?.knownCount == 0)
    }

    /// The service's own loop tells of a ticket and then answers; the loop of content may have looked for what it is told
    /// before that, and take the device's first frames from its socket after it.
    @Test func framesThatOvertakeTheirTicketAreTaken() throws {
        let house = try BulkHouse()
        let network = SimulatedNetwork(seed: 1)
        defer { network.close() }
        let transport = InProcessTransport(network)
        let work = ChunkWork(
            store: house.store, snapshots: try house.cloud.storage(of: .documents).snapshots, roomKeptBytes: 0)
        let (keys, device) = (try transport.makeKeyPair(), try transport.makeKeyPair())
        let ticket = try makeTicket(1, of: AccountID("account"), key: device.publicKey)
        let made = Made()
        let endpoint = "tcp://127.0.0.1:7999"
        _ = try transport.startLoop(named: "content") { loop in
            let hooked = HookedLoop(loop)
            let door = try BulkDoor(
                loop: hooked, endpoint: endpoint, keys: keys, work: work, room: Room(perKeyMax: 1, max: 1)
            ) { _, _ in }
            hooked.beforeHandling = { [unowned hooked] messages in
                guard messages.contains(where: { !$0.isProbe }) else { return }
                let bound = LoopBound(door, to: hooked)
                hooked.handle.execute { loop in bound.withValue(on: loop) { $0.add(ticket, nil, nil) } }
            }
            made.door = door
            made.loop = hooked
        }
        _ = try transport.startLoop(named: "device") { loop in
            made.socket = try loop.makeRequestSocket(
                RequestSocketOptions(endpoints: [endpoint], serverKey: keys.publicKey, keys: device)
            ) { made.frames += $0.map { BulkFrame($0[0]) } }
        }
        network.run(for: .seconds(1))
        made.frames = []
        // In one batch, and in their order.
        _ = made.socket?.send([BulkFrame.control(.credit, ticket.id, number: 1 << 20)])
        _ = made.socket?.send([BulkFrame.control(.get, ticket.id, number: 5, chunk: id(of: content(1)))])
        network.run(for: .seconds(1))
        #expect(made.frames.map(\.failure.code) == [.unknownItem])
    }

    /// However small chunks are: what of them waits for the service's loop is bounded, and that has its rest.
    @Test func rowsOfManySmallChunksLeaveTheServiceItsTime() throws {
        let house = try BulkHouse()
        let network = SimulatedNetwork(seed: 1)
        defer { network.close() }
        let transport = InProcessTransport(network)
        let work = ChunkWork(
            store: house.store, snapshots: try house.cloud.storage(of: .documents).snapshots, roomKeptBytes: 0)
        let (keys, device) = (try transport.makeKeyPair(), try transport.makeKeyPair())
        let ticket = try makeTicket(1, of: AccountID("account"), key: device.publicKey)
        let made = Made()
        let endpoint = "tcp://127.0.0.1:7999"
        _ = try transport.startLoop(named: "content") { loop in
            let room = Room(perKeyMax: 8 << 20, max: 64 << 20)
            let door = try BulkDoor(loop: loop, endpoint: endpoint, keys: keys, work: work, room: room) {
                made.batches.append(($0.chunks.count, $1))
            }
            door.add(ticket, Upload.Standing(reserved: 64 << 20, filled: 0), Writing(bytes: 0, bytesMax: 1 << 40))
            made.door = door
        }
        _ = try transport.startLoop(named: "device") { loop in
            made.socket = try loop.makeRequestSocket(
                RequestSocketOptions(endpoints: [endpoint], serverKey: keys.publicKey, keys: device)
            ) { made.frames += $0.map { BulkFrame($0[0]) } }
        }
        network.run(for: .seconds(1))
        for number in 0..<400 {
            _ = made.socket?.send([frame(ticket.id, number: UInt64(number), content(number, count: 24))])
        }
        func commit(_ batch: (count: Int, done: @Sendable (Receiving.Committed) -> Void)) {
            batch.done(.init(errors: Array(repeating: nil, count: batch.count)))
        }
        // The first ones are small, since they are begun at once.
        for _ in 0..<3 {
            network.run(for: .milliseconds(100))
            // Nothing is committed: no more is begun.
            #expect(made.batches.count == 3 && made.batches.allSatisfy { $0.count <= 32 })
            for batch in made.batches { commit(batch) }
            made.batches = []
        }
        network.run(for: .milliseconds(400))
        #expect(made.batches.map(\.count) == [32, 32, 32])
        let taken = network.now
        commit(made.batches.removeFirst())
        network.run(within: .seconds(10)) { made.batches.count == 3 }
        // It rests as long as that has taken.
        #expect(network.now - taken > .milliseconds(200) && network.now - taken < .milliseconds(401))
        while made.frames.count < 400, network.now < .seconds(60) {
            for batch in made.batches { commit(batch) }
            made.batches = []
            network.run(for: .milliseconds(20))
        }
        #expect(made.frames.count { $0.kind == .stored } == 400)
    }

    private func makeTicket(_ number: Int, of account: AccountID, key: PublicKey) throws -> Ticket {
        var generator = SplitMix64(seed: UInt64(number))
        let caller = Caller(
            account: account, device: DeviceID("device"), app: AppID("app"),
            entitlements: Entitlements(store: nil, containers: []), expires: Timestamp(milliseconds: 0), keyID: "key")
        return Ticket(
            id: BulkTicket(using: &generator), key: key, caller: caller, at: .ofTest(Owner(account)),
            sealer: try ChunkSealer(key: [UInt8](repeating: 1, count: 32), owner: Owner(account)),
            upload: Upload(
                account: account, owner: Owner(account),
                id: try #require(ReservationID(bytes: upload(UInt8(number))))),
            lifetime: .seconds(120))
    }

    // Unchecked: a simulation has one thread.
    private final class Made: @unchecked Sendable {
        var door: BulkDoor?
        var loop: HookedLoop?
        var socket: (any RequestSocket)?
        var frames: [BulkFrame] = []
        var batches: [(count: Int, done: @Sendable (Receiving.Committed) -> Void)] = []
    }
}
