import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Calls that name no zone are of the whole database.
@Suite struct DatabaseTests {
    /// Two devices of an account that both have the zone `work`.
    private func withZone(
        _ body: (RecordCloud, RecordCloud.Device, RecordCloud.Device) async throws -> Void
    ) async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.zones.make("work")
            try await here.database.waitUntilSent()
            try await there.database.waitUntilCurrent()
            try await body(cloud, here, there)
        }
    }

    @Test func waitingForTheDatabaseIsWaitingForAllOfItsZones() async throws {
        try await withZone { _, here, there in
            here.setOffline(true)
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            let error = await #expect(throws: CloudError.self) {
                try await here.database.waitUntilSent(timeout: .seconds(5))
            }
            #expect(error?.code == .deadlineExceeded)
            try await here.database.waitUntilSent(zone: RecordZone.defaultName, timeout: .seconds(5))
            here.setOffline(false)
            try await here.database.waitUntilSent()
            #expect(try await here.database.scope(of: "work").status().pending.isEmpty)
            try await there.database.waitUntilCurrent()
            #expect(try await there.contents("work") == ["a": ["n": 1]])
        }
    }

    @Test func aSaveIntoAZoneThatIsNotMadeYetIsWaitedFor() async throws {
        try await withRecords { cloud in
            let here = try await cloud.openFirst()
            here.setOffline(true)
            try await here.database.zones.make("work")
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            here.setOffline(false)
            try await here.database.waitUntilSent(timeout: .seconds(120))
            #expect(try await here.database.record(RecordID("a", zone: "work"), from: .server)?["n"] == 1)
        }
    }

    @Test func theStatusIsThatOfAllZones() async throws {
        try await withZone { _, here, _ in
            try await here.database.waitUntilCurrent()
            #expect(try await here.database.status().isInSync)
            #expect("\(try await here.database.status())" == "in sync")
            here.setOffline(true)
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            try await here.database.save(Record("b", ["n": 1]))
            let status = try await here.database.status()
            #expect(status.pending.map(\.keys) == [["work/a"], ["b"]] && !status.isInSync)
            #expect("\(status)".contains("waiting: work/a ("))
            #expect(try await here.database.status(zone: "work").pending.map(\.keys) == [["a"]])
            #expect(try await here.database.recordCount() == 2)
            #expect(try await here.database.recordCount(zone: "work") == 1)
        }
    }

    @Test func conflictsAndRefusalsAreThoseOfAllZones() async throws {
        try await withZone { _, here, there in
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            try await here.settle("work")
            try await there.settle("work")
            for (device, n) in [(here, 2), (there, 3)] {
                device.setOffline(true)
                var record = try #require(try await device.database.record(RecordID("a", zone: "work")))
                record["n"] = .integer(Int64(n))
                try await device.database.save(record)
            }
            try await there.database.save(Record("child", zone: "work", ["n": 1]).belonging(to: "nobody"))
            for device in [here, there] {
                device.setOffline(false)
                try await device.database.waitUntilSent()
            }
            let conflicts = try await there.database.conflicts.list()
            #expect(conflicts.map(\.id) == [RecordID("a", zone: "work")])
            let text = try #require(conflicts.first).description
            #expect(text.contains("{n: 2}") && text.contains("{n: 3}"))
            #expect(try await there.database.conflicts.list(zone: RecordZone.defaultName).isEmpty)
            #expect(try await there.database.conflicts.rejected().map(\.id) == [RecordID("child", zone: "work")])
            #expect(try await there.database.conflicts.rejected(zone: RecordZone.defaultName).isEmpty)
            #expect(try await there.database.conflicts.dismissRejected() == [RecordID("child", zone: "work")])
            #expect(try await there.database.conflicts.rejected().isEmpty)
        }
    }

    @Test(.timeLimit(.minutes(5))) func changesAreToldOfAllZonesAlsoOfSuchAsCome() async throws {
        try await withZone { _, here, there in
            var changes = there.database.changes.makeAsyncIterator()
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            try await here.database.waitUntilSent()
            try await there.database.waitUntilCurrent()
            let first = await changes.next(where: { $0.zone == "work" && !$0.changed.isEmpty })
            #expect(first?.changed == [RecordID("a", zone: "work")])
            try await here.database.zones.make("late")
            try await here.database.save(Record("b", zone: "late", ["n": 1]))
            try await here.database.save(Record("c", ["n": 1]))
            try await here.database.waitUntilSent()
            try await there.database.waitUntilCurrent()
            let change = await changes.next(where: { $0.zone == "late" && !$0.changed.isEmpty })
            #expect(change?.changed == [RecordID("b", zone: "late")])
        }
    }

    @Test func aNewDeviceIsReadyWithAllZones() async throws {
        try await withZone { cloud, here, _ in
            try await here.database.save(Record("a", zone: "work", ["n": 1]))
            try await here.database.save(Record("b", ["n": 2]))
            try await here.database.waitUntilSent()
            let new = try await cloud.openFirst()
            try await new.database.ready()
            new.setOffline(true)
            #expect(try await new.contents("work") == ["a": ["n": 1]])
            #expect(try await new.contents() == ["b": ["n": 2]])
            // One that is made here is no reason to wait, nor is it that nobody answers.
            try await new.database.zones.make("mine")
            try await new.database.ready(timeout: .seconds(1))
            try await new.database.ready(zone: "work", timeout: .seconds(1))
            let error = await #expect(throws: CloudError.self) { try await new.database.ready(zone: "none") }
            #expect(error?.code == .zoneNotFound)
        }
    }

    @Test func whoeverWaitsForADatabaseEndsWithTheirTask() async throws {
        try await withRecords { cloud in
            let new = try await cloud.openFirst()
            new.setOffline(true)
            let waiting = Task { try await new.database.ready(timeout: .seconds(10_000)) }
            waiting.cancel()
            let error = await #expect(throws: CloudError.self) { try await waiting.value }
            #expect(error?.code == .operationCancelled)
        }
    }

    @Test(arguments: [false, true])
    func aNewRecordOverAnotherOfItsNameIsRefused(isSent: Bool) async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            if !isSent { here.setOffline(true) }
            let saved = try await here.database.save(Record("a", ["n": 1, "text": "long"]))
            if isSent { try await here.database.waitUntilSent() }
            let error = await #expect(throws: CloudError.self) {
                try await here.database.save(Record("a", ["n": 2]))
            }
            #expect(error?.code == .serverRecordChanged && error?.details["record"] == "a")
            #expect(try await here.contents() == ["a": ["n": 1, "text": "long"]])
            // Nothing else of the call is saved either.
            _ = await #expect(throws: CloudError.self) {
                try await here.database.modify(saving: [Record("b", ["n": 1]), Record("a", ["n": 2])], deleting: [])
            }
            #expect(try await here.contents().keys.sorted() == ["a"])
            // With the same content it is the same record, and nothing is sent.
            let waiting = try await here.database.status().pending.count
            let same = try await here.database.save(Record("a", ["n": 1, "text": "long"]))
            #expect(same.changeTag == saved.changeTag)
            #expect(try await here.database.status().pending.count == waiting)
            // Whoever means it says so.
            try await here.database.save(Record("a", ["n": 2]), policy: .changedKeys)
            #expect(try await here.contents() == ["a": ["n": 2, "text": "long"]])
            here.setOffline(false)
            try await here.settle()
            #expect(try await here.contents() == ["a": ["n": 2, "text": "long"]])
            #expect(try await here.database.conflicts.list().isEmpty)
        }
    }

    /// The save of the changed fields waits here while what others have saved of the record comes.
    @Test func whileChangedKeysWaitTheOtherFieldsAreTheNewest() async throws {
        try await withRecords { cloud in
            let (here, there) = (try await cloud.open(), try await cloud.open())
            try await here.database.save(Record("a", ["mine": 1, "theirs": 1, "both": 1]))
            try await here.settle()
            try await there.settle()
            here.setOffline(true)
            var record = try #require(try await here.database.record(RecordID("a")))
            record["mine"] = 2
            record["both"] = 2
            try await here.database.save(record, policy: .changedKeys)
            var other = try #require(try await there.database.record(RecordID("a")))
            other["theirs"] = 3
            other["both"] = 3
            other["new"] = 3
            try await there.database.save(other)
            try await there.settle()
            // It can be read there now, and nothing can be stored.
            try cloud.simulation.use { try $0.faults.fail("records.commit", times: .max) }
            here.setOffline(false)
            try await here.database.waitUntilCurrent(timeout: .seconds(120))
            #expect(try await here.database.status().pending.count == 1)
            let seen = try #require(try await here.database.record(RecordID("a")))
            #expect(seen.isPending && seen.fields == ["mine": 2, "theirs": 3, "both": 2, "new": 3])
            let found = try await here.database.records(matching: RecordQuery(QueryPredicate(parsing: "new == 3")))
            #expect(found.map(\.fields) == [seen.fields])
            try cloud.simulation.use { try $0.faults.clear() }
            try await here.settle()
            try await there.settle()
            #expect(try await there.contents() == ["a": seen.fields])
            #expect(try await here.database.conflicts.list().isEmpty)
        }
    }

    @Test func aRecordDescribesItself() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            here.setOffline(true)
            let saved = try await here.database.save(Record("a", ["title": "one", "count": 1]))
            #expect("\(saved)" == "a (Note) {count: 1, title: \"one\"}, waiting")
        }
    }
}

extension Record {
    fileprivate func belonging(to parent: String) -> Record {
        var record = self
        record.parent = parent
        return record
    }
}

extension AsyncIteratorProtocol where Failure == Never {
    /// The next that is such.
    fileprivate mutating func next(where isSuch: (Element) -> Bool) async -> Element? {
        while let element = await next(isolation: nil) { if isSuch(element) { return element } }
        return nil
    }
}
