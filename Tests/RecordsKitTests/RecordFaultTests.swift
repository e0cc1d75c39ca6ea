import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Lost replies, servers that come back from old copies, plans that are full, other accounts.
@Suite struct RecordFaultTests {
    @Test func aLostReplyIsNoConflict() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("a", ["n": 0]))
            try await here.settle()
            for count in 1...3 {
                try cloud.simulation.use { try $0.faults.fail("records.send") }
                var record = try #require(try await here.database.record(RecordID("a")))
                record["n"] = .integer(Int64(count))
                try await here.database.save(record)
                try await here.settle()
            }
            #expect(try cloud.simulation.use { try $0.faults.count("records.send") } == 3)
            #expect(try await here.contents() == ["a": ["n": 3]])
            #expect(try await here.database.conflicts.list().isEmpty)
            #expect(try await here.proves())
        }
    }

    @Test func whatARestoredServerHasLostIsSavedAgain() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("old", ["n": 0]))
            try await one.settle()
            try await two.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            try await one.database.save(Record("new", ["n": 1]))
            var record = try #require(try await one.database.record(RecordID("old")))
            record["n"] = 2
            try await one.database.save(record)
            try await one.database.zones.make("work")
            try await one.database.save(Record("w", zone: "work", ["n": 3]))
            try await one.settle("work")
            try await one.settle()
            try await two.settle()
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            for device in [one, two] {
                device.database.synchronize(zone: "work")
                try await device.database.waitUntilCurrent(timeout: .seconds(120))
            }
            for device in [one, two, one, two] {
                try await device.settle()
                try await device.settle("work")
            }
            for device in [one, two] {
                #expect(try await device.contents() == ["new": ["n": 1], "old": ["n": 2]])
                #expect(try await device.contents("work") == ["w": ["n": 3]])
                #expect(try await device.database.conflicts.list().isEmpty)
                #expect(try await device.database.conflicts.rejected().isEmpty)
                #expect(try await device.proves())
                #expect(try await device.proves("work"))
            }
        }
    }

    @Test func anOlderCopyTakesNoNewerOnesPlaceOnARestoredServer() async throws {
        try await withRecords { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.database.save(Record("a", ["n": 0]))
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .records) }
            for count in 1...2 {
                var record = try #require(try await one.database.record(RecordID("a")))
                record["n"] = .integer(Int64(count))
                try await one.database.save(record)
                try await one.settle()
                if count == 1 { try await two.settle() }
                two.setOffline(true)
            }
            try cloud.simulation.use { try $0.restore(copy, of: .records) }
            for _ in 0..<2 { try await one.settle() }
            two.setOffline(false)
            for device in [two, one, two] { try await device.settle() }
            for device in [one, two] {
                #expect(try await device.contents() == ["a": ["n": 2]])
                #expect(try await device.proves())
            }
            // Which of both is the later one the second device cannot know; the service can, by what it once said of both.
            for device in [one, two] { #expect(try await device.database.conflicts.list().isEmpty) }
        }
    }

    /// However much it is: it was on this disk before it was refused.
    @Test func nothingOfWhatIsRefusedIsDropped() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("small", ["n": 1]))
            try await here.settle()
            try cloud.setPlan(bytes: 64 << 10)
            let data = Data(repeating: 7, count: 900 << 10)
            for number in 0..<6 { try await here.database.save(Record("\(number)", ["data": .data(data)])) }
            try await here.settle()
            let refused = try await here.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == (0..<6).map { "\($0)" })
            #expect(refused.allSatisfy { $0.record?["data"] == data })
        }
    }

    @Test func whatThePlanHasNoRoomForIsKeptAndListed() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("small", ["n": 1]))
            try await here.settle()
            try cloud.setPlan(bytes: 64 << 10)
            let changes = here.database.changes
            let data = Data(repeating: 7, count: 200 << 10)
            try await here.database.save(Record("large", ["data": .data(data)]))
            try await here.settle()
            let refused = try await here.database.conflicts.rejected()
            #expect(refused.map(\.id.name) == ["large"] && refused.first?.error.code == .quotaExceeded)
            #expect(refused.first?.record?["data"] == data)
            #expect(try await here.contents() == ["small": ["n": 1]])
            for await change in changes {
                #expect(change.reason == .quotaViolationChange && change.error?.code == .quotaExceeded)
                #expect(change.changed == [RecordID("large")])
                break
            }
            #expect(try await here.database.conflicts.dismissRejected() == [RecordID("large")])
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.proves())
        }
    }

    @Test func anotherAccountSeesNothingOfIt() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("a", ["n": 1]))
            try await here.settle()
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            let connection = try cloud.simulation.use { try $0.connection }
            try await here.session.signIn(
                connection: connection, account: "other", password: TestCloud.password, deviceName: "x")
            let error = await #expect(throws: CloudError.self) { try await here.database.record(RecordID("a")) }
            #expect(error?.code == .notSignedIn)
            let other = try await here.session.recordContainer(app: RecordCloud.app).privateDatabase
            try await other.waitUntilCurrent()
            #expect(try await other.recordCount() == 0)
            try await other.save(Record("a", ["n": 2]))
            try await other.waitUntilSent()
            #expect(try await other.scope(of: RecordZone.defaultName).verify().agrees)
        }
    }

    @Test(arguments: [false, true]) func whatNobodyHasDecidedIsNotGivenUpBecauseAnotherSignsIn(
        _ isConflict: Bool
    ) async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.save(Record("a", ["n": 1]))
            try await here.settle()
            try await there.settle()
            if isConflict {
                here.setOffline(true)
                try await here.database.delete(RecordID("a"))
                var record = try #require(try await there.database.record(RecordID("a")))
                record["n"] = 2
                try await there.database.save(record)
                try await there.settle()
                here.setOffline(false)
            } else {
                try cloud.setPlan(bytes: 64 << 10)
                try await here.database.save(Record("large", ["data": .data(Data(repeating: 7, count: 200 << 10))]))
            }
            try await here.settle()
            #expect(try await here.database.conflicts.list().count == (isConflict ? 1 : 0))
            #expect(try await here.database.conflicts.rejected().count == (isConflict ? 0 : 1))
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            let connection = try cloud.simulation.use { try $0.connection }
            func signIn(discards: Bool = false) async throws {
                try await here.session.signIn(
                    connection: connection, account: "other", password: TestCloud.password, deviceName: "x",
                    discardsUnsent: discards)
            }
            try await here.session.signOut()
            let error = await #expect(throws: CloudError.self) { try await signIn() }
            #expect(error?.code == .constraintViolation && error?.details["refused"] == "1")
            try await signIn(discards: true)
            #expect(try here.session.account?.accountName == "other")
        }
    }

    @Test func tooMuchAtOnceIsRefusedBeforeAnythingIsQueued() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            let many = (0...400).map { Record("r\($0)", ["n": 1]) }
            let large = Record("large", ["data": .data(Data(count: (1 << 20) + 1))])
            let three = (0..<3).map { Record("l\($0)", ["data": .data(Data(count: 900 << 10))]) }
            for records in [many, [large], three] {
                let error = await #expect(throws: CloudError.self) {
                    try await here.database.modify(saving: records, deleting: [])
                }
                #expect(error?.code == .limitExceeded)
            }
            let error = await #expect(throws: CloudError.self) {
                try await here.database.save(Record("a", ["_system": 1]))
            }
            #expect(error?.code == .invalidArguments)
            #expect(try await here.database.status().pending.isEmpty)
            #expect(try await here.database.recordCount() == 0)
        }
    }

    @Test func aSaveThatNamesALaterRecordDoesNotOvertakeIt() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            try await here.database.save(Record("target", ["n": 0]))
            try await here.settle()
            here.setOffline(true)
            let child = try await here.database.save(Record("child", ["n": 0]))
            var other = try await here.database.save(Record("other", ["n": 0]))
            try await here.database.save(Record("parent", ["n": 0]))
            try await here.database.delete(RecordID("target"))
            var moved = child
            moved.parent = "parent"
            try await here.database.save(moved)
            other["to"] = .reference(RecordReference("target", deletesSelf: true))
            try await here.database.save(other)
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.database.conflicts.rejected().isEmpty)
            #expect(try await here.contents().keys.sorted() == ["child", "other", "parent"])
            #expect(try await here.database.record(RecordID("child"))?.parent == "parent")
            #expect(try await here.proves())
        }
    }
}
