import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// What records do while their disk is full, and after.
@Suite(.serialized) struct FullDiskTests {
    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whileTheDiskIsFullRecordsAreDeletedAndNoneIsAddedAndAfterwardsEverythingIsTaken() throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/records.sqlite")
        let house = try RecordHouse(engine: engine)
        let (here, there) = (try house.device(), try house.device())
        let text = WireRecordField.OneOf_Value.string(String(repeating: "x", count: 60_000))
        try here.index("Note(kept)")
        for number in 0..<8 { try here.save("r\(number)", ["text": text, "kept": .integer(1)]) }
        try here.makeZone("Work")
        house.cloud.network.run(for: .seconds(5))
        #expect(!engine.isShortOfRoom)

        try disk.fill()
        var full: CloudError.Code?
        for number in 0..<1000 where full == nil {
            full = code {
                try here.save("r\(number % 8)", ["text": text, "n": .integer(Int64(number))], policy: .allKeys)
            }
        }
        #expect(full == .storageFailure && engine.isShortOfRoom)
        func saysSo() throws -> Bool {
            let health: WireCheckHealthReply = try house.cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.records))
            return health.shortOfRoom
        }
        #expect(try saysSo())

        // Nothing is added: no record, no zone, no index, and nothing beside what is deleted.
        #expect(code { try here.save("small", ["n": .integer(1)]) } == .storageFailure)
        #expect(code { try here.makeZone("Home") } == .storageFailure)
        #expect(code { try here.index("Note(n)") } == .storageFailure)
        #expect(code { try here.modify([.delete("r7"), .save("new", ["a": text, "b": text])]) } == .storageFailure)
        // What was there is there.
        #expect(try there.list().count == 8)
        // What makes room is taken: deletions, what takes less room than what it replaces, the end of a zone or index.
        for number in 0..<4 { try there.delete("r\(number)") }
        let kept = try house.rows(of: "record_history")
        try there.save("r4", ["text": .string("short")], policy: .allKeys)
        #expect(try there.modify([.delete("r5"), .save("new", ["n": .integer(5)])]).codes == [nil, nil])
        // What is overwritten is not kept meanwhile: it would take the room that was made.
        #expect(try house.rows(of: "record_history") == kept)
        try here.deleteZone("Work")
        try here.index(removing: ["Note(kept)"])
        #expect(try Set(there.list().keys) == ["r4", "r6", "r7", "new"])
        #expect(try Set(here.zones().keys).contains("Work") == false)

        // Once there is room nobody has to start anything again.
        try disk.empty()
        try here.save("small", ["n": .integer(1)])
        #expect(try !engine.isShortOfRoom && !saysSo())
        try here.index("Note(n)")
        try here.makeZone("Home")
        for number in 0..<40 {
            try here.save("r\(number % 8)", ["text": text, "n": .integer(Int64(number))], policy: .allKeys)
        }
        house.cloud.network.run(for: .seconds(10))
        // Checked against its digest.
        #expect(try there.list().count == 10)
        #expect(try here.query("n == 39", limit: 2) == ["r7"])
        let counted = try there.list().reduce(0) {
            $0 + $1.value.countedBytes(ItemName($1.key), encoded: try $1.value.serializedData().count)
        }
        #expect(try house.used(of: here.mover.account) >= Int64(counted))
    }
}
