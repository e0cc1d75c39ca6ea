import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

@testable import NephosBulk

/// What is bounded, and that others are served while somebody tries.
@Suite struct BoundsTests {
    @Test func wrongBytesAreNotStored() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        try mover.send(frame(good, content(1), as: id(of: content(2))))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.failure.code == .invalidArguments)
        #expect(try house.chunkCount(of: mover.account) == 0)
    }

    /// What a device holds open, others of its account can still open.
    @Test func noDeviceTakesAllUploadsOfItsAccount() throws {
        let house = try BulkHouse()
        let (greedy, other) = (try TestBulk(of: house.cloud), try TestBulk(of: house.cloud))
        func open(_ number: Int, _ mover: TestBulk) throws {
            var id = [UInt8](repeating: 0, count: 16)
            (id[0], id[1]) = (UInt8(number & 255), UInt8(number >> 8))
            _ = try ticket(house.open(mover, upload: id, bytes: 4096))
        }
        for number in 0..<100 { try open(number, greedy) }
        let error = #expect(throws: CloudError.self) { try open(100, greedy) }
        #expect(error?.code == .serviceBusy && error?.retryAfter != nil)
        try open(0, greedy)
        try open(1000, other)
    }

    @Test func moreThanTheCreditIsRefusedAndTheRestIsStored() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let reply = try house.open(mover, upload: upload(1), bytes: 16 << 20)
        let size = 1 << 20
        let within = Int(reply.creditBytes) / size
        for number in 0..<within + 2 {
            try mover.send(frame(ticket(reply), number: UInt64(number), content(number, count: size)))
        }
        house.cloud.network.run(within: .seconds(30)) { mover.frames.count == within + 2 }
        let refused = mover.frames.filter { $0.kind == .refused }
        #expect(refused.map(\.number).sorted() == [UInt64(within), UInt64(within + 1)])
        #expect(refused.allSatisfy { $0.failure.code == .limitExceeded })
        #expect(try house.chunkCount(of: mover.account) == Int64(within))
        // The credit has come back.
        mover.clear()
        try mover.send(frame(ticket(reply), content(100)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
    }

    @Test func aPlanThatIsFullIsToldBeforeTheFirstByte() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        #expect(code { _ = try house.open(mover, upload: upload(1), bytes: 6_000_000_000) } == .quotaExceeded)
        #expect(try house.used(by: mover.account) == 0)
        // What is reserved counts, whoever reserves it.
        _ = try house.open(mover, upload: upload(1), bytes: 3_000_000_000)
        let other = try TestBulk(of: house.cloud)
        #expect(code { _ = try house.open(other, upload: upload(2), bytes: 3_000_000_000) } == .quotaExceeded)
        try house.close(mover, upload: upload(1))
        _ = try house.open(other, upload: upload(2), bytes: 3_000_000_000)
    }

    @Test func whatAnUploadHasNoRoomForIsNotWritten() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 100_000))
        func send(_ chunk: [UInt8]) throws -> BulkFrame? {
            mover.clear()
            try mover.send(frame(good, chunk))
            house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
            return mover.frames.first
        }
        #expect(try send(content(1))?.kind == .stored)
        let place = HoldStore.Place(mover.account)
        let written = try house.store.segments(in: place.partition).map(\.length)
        #expect(try send(content(2))?.failure.code == .quotaExceeded)
        #expect(try house.store.segments(in: place.partition).map(\.length) == written)
        // A repeat needs none.
        #expect(try send(content(1))?.kind == .stored)
        #expect(try house.used(by: mover.account) == 100_000)
        // With more room it goes on.
        _ = try house.open(mover, upload: upload(1), bytes: 200_000)
        #expect(try send(content(2))?.kind == .stored)
    }

    @Test func whoAsksForEverythingDoesNotKeepAnotherWaiting() throws {
        let house = try BulkHouse()
        let greedy = try TestBulk(of: house.cloud)
        let chunks = (0..<8).map { content($0, count: 1 << 20) }
        let client = try greedy.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        try house.cloud.createAccount("other")
        let modest = try TestBulk(of: house.cloud, account: "other")
        let own = try modest.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(99)], with: own).allSatisfy { $0.isSuccess })

        // Gigabytes, with credit without an end.
        let ids = chunks.map { id(of: $0) }
        let good = try ticket(house.open(greedy))
        try greedy.send(BulkFrame.control(.credit, good, number: .max))
        for number in 0..<3000 {
            try greedy.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: ids[number % 8]))
        }
        house.cloud.network.run(for: .milliseconds(5))
        let start = house.cloud.network.now
        #expect(try house.fetch([id(of: content(99))], with: own).first?.get() == content(99))
        #expect(house.cloud.network.now - start < .milliseconds(200))
        // Beyond the bound of requests it is told so.
        #expect(greedy.frames.contains { $0.kind == .refused && $0.failure.code == .serviceBusy })
        #expect(greedy.frames.count { $0.kind == .chunk } < 1500)
    }

    @Test func framesThatAreRefusedAreAnsweredWithinABudget() throws {
        let house = try BulkHouse()
        let (mover, other) = (try TestBulk(of: house.cloud), try TestBulk(of: house.cloud))
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        let chunk = id(of: content(1))
        for _ in 0..<20 {
            for number in 0..<1000 {
                try mover.send(BulkFrame.control(.get, .none, number: UInt64(number), chunk: chunk))
            }
            house.cloud.network.run(for: .milliseconds(100))
        }
        // 4000 at once, and 400 a second.
        let refused = mover.frames.count { $0.kind == .refused }
        #expect((4000...5000).contains(refused), "\(refused)")
        // What is good is served, of that device and of others.
        try mover.send(frame(good, number: 7, content(2)))
        house.cloud.network.run(within: .seconds(5)) { mover.frames.last?.kind == .stored }
        #expect(mover.frames.last?.kind == .stored)
        try other.send(BulkFrame.control(.get, .none, number: 1, chunk: id(of: content(1))))
        house.cloud.network.run(within: .seconds(5)) { !other.frames.isEmpty }
        #expect(other.frames.first?.failure.code == .tokenExpired)
        // It is told again when it has waited.
        house.cloud.network.run(for: .seconds(10))
        mover.clear()
        try mover.send(BulkFrame.control(.get, .none, number: 1, chunk: id(of: content(1))))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.failure.code == .tokenExpired)
    }

    @Test func nothingIsSentBeyondTheCreditThatADeviceGives() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let chunks = (0..<10).map { content($0) }
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 2 << 20))
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let good = try ticket(house.open(mover))
        for (number, chunk) in chunks.enumerated() {
            try mover.send(BulkFrame.control(.get, good, number: UInt64(number), chunk: id(of: chunk)))
        }
        func give(_ credit: UInt64) throws -> Int {
            try mover.send(BulkFrame.control(.credit, good, number: credit))
            house.cloud.network.run(for: .seconds(1))
            return mover.frames.count { $0.kind == .chunk }
        }
        house.cloud.network.run(for: .seconds(1))
        #expect(mover.frames.isEmpty)
        #expect(try give(99_999) == 0)
        #expect(try give(250_000) == 2)
        // Credit does not go back.
        #expect(try give(100) == 2)
        #expect(try give(1_000_000) == 10)
    }

    private func holder(_ number: Int, of account: String) throws -> Room.Holder {
        let key = try #require(PublicKey(bytes: [UInt8](repeating: UInt8(number), count: 32)))
        return Room.Holder(account: AccountID(account), key: key)
    }

    /// Whoever has many devices has no more of it than whoever has one.
    @Test func roomIsSharedAmongAccountsFirst() throws {
        var configuration = Transfers.Configuration()
        configuration.roomBytes = 16 << 20
        let house = try BulkHouse(configuration: configuration)
        try house.cloud.createAccount("other")
        let one = try TestBulk(of: house.cloud, account: "other")
        let many = try (0..<3).map { _ in try TestBulk(of: house.cloud) }
        func offer(_ count: Int, from first: Int, _ mover: TestBulk) throws {
            let good = try ticket(house.open(mover, upload: upload(UInt8(first)), bytes: 16 << 20))
            for number in first..<first + count {
                try mover.send(frame(good, number: UInt64(number), content(number, count: 1 << 20)))
            }
            house.cloud.network.run(for: .milliseconds(20))
        }
        func refused(_ mover: TestBulk) -> Int { mover.frames.count { $0.failure.code == .serviceBusy } }
        // What comes is held for a while.
        house.cloud.network.offloadTime = .seconds(20)
        try offer(1, from: 1, one)
        for (index, mover) in many.enumerated() { try offer(8, from: 20 * (index + 1), mover) }
        try offer(7, from: 10, one)
        #expect(many.map(refused).reduce(0, +) == 16)
        #expect(refused(one) == 2)
    }

    @Test func aKeyHasItsShareWithinItsAccount() throws {
        var room = Room(perKeyMax: 8 << 20, max: 16 << 20)
        let own = try (0..<3).map { try holder($0, of: "one") }
        let other = try holder(9, of: "other")
        #expect(room.take(1 << 20, for: other) == .taken)
        while room.take(1 << 20, for: own[0]) == .taken {}
        // Over half of the account's share: the next one has less, but some.
        room.give(2 << 20, of: own[0])
        #expect(room.take(1 << 20, for: own[1]) == .taken)
        #expect(room.take(1 << 20, for: own[0]) == .beyondAll)
        #expect(room.take(1 << 20, for: own[2]) == .taken)
    }

    @Test func roomIsSharedAmongThoseWhoWantIt() throws {
        let keys = try (0..<8).map { try holder($0, of: "account \($0)") }
        var room = Room(perKeyMax: 8 << 20, max: 16 << 20)
        #expect((0..<8).allSatisfy { _ in room.take(1 << 20, for: keys[0]) == .taken })
        #expect(room.take(1, for: keys[0]) == .beyondOwn)
        // The second has half of it but for the last part, and the third waits for nobody.
        var count = 0
        while room.take(1 << 20, for: keys[1]) == .taken { count += 1 }
        #expect(count == 6)
        #expect(room.take(1 << 20, for: keys[2]) == .taken)
        room.give(6 << 20, of: keys[0])
        #expect(room.total == 9 << 20)
        // Who holds more than a share waits, who holds none does not.
        #expect(room.take(1 << 20, for: keys[1]) != .taken)
        #expect(keys[3...].allSatisfy { room.take(1 << 20, for: $0) == .taken })
    }

    @Test func whoHoldsNothingFindsRoomHoweverMuchAFewWant() throws {
        let keys = try (0..<12).map { try holder($0, of: "account \($0)") }
        var room = Room(perKeyMax: 8 << 20, max: 64 << 20)
        let greedy = keys[..<9]
        // They take again at once what is given back.
        for turn in 0..<100 {
            for key in greedy { while room.take(1 << 20, for: key) == .taken {} }
            room.give(1 << 20, of: greedy[turn % greedy.count])
        }
        for key in greedy { while room.take(1 << 20, for: key) == .taken {} }
        #expect(keys[9...].allSatisfy { room.take(1 << 20, for: $0) == .taken })
    }
}
