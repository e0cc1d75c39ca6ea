import Foundation
import NephosCore
import NephosHTTP
import NephosKit
import NephosTestKit
import Testing

@testable import NephosWeb

struct RecordCallsTests {
    /// Anna's own device and a browser of hers.
    private struct Scene {
        let house: WebHouse
        let browser: Browser
        let database: RecordDatabase

        init() async throws {
            house = try await WebHouse()
            browser = try await Browser.signedIn(house)
            database = try await house.device.recordContainer().privateDatabase
            try await database.ready(zone: RecordZone.defaultName)
        }

        /// Saves on the device, and waits until the browser's side has it.
        @discardableResult
        func save(_ record: Record) async throws -> Record {
            let saved = try await database.save(record)
            try await database.waitUntilSent(zone: record.id.zone)
            let tag = saved.changeTag?.base64EncodedString()
            try await house.wait { try await self.get(record.id.name)["changeTag"] as? String == tag }
            return saved
        }

        func get(_ name: String) async throws -> [String: Any] {
            try await browser.call("records.get", ["name": name]).object("record")
        }

        /// The device's record, once it has the browser's change.
        func deviceRecord(_ name: String) async throws -> Record? {
            try await database.waitUntilCurrent(zone: RecordZone.defaultName)
            return try await database.record(RecordID(name))
        }
    }

    private static func fields(_ record: [String: Any]) -> [String: [String: Any]] {
        let fields = record["fields"] as? [[String: Any]] ?? []
        return Dictionary(fields.compactMap { field in (field["name"] as? String).map { ($0, field) } }) { $1 }
    }

    private static func names(_ answer: Browser.Answer) -> [String] {
        answer.list("records").compactMap { $0["name"] as? String }
    }

    private static let values: [String: RecordValue] = [
        "integer": .integer(.max), "negative": .integer(.min), "real": .real(0.1), "whole": .real(3),
        "infinite": .real(-.infinity), "string": "\u{1F600} \"x\"\n", "date": .date(RecordDate(nanoseconds: 1)),
        "data": .data(Data([0, 255])), "location": .location(RecordLocation(latitude: 52.5, longitude: -13)),
        "high": .location(RecordLocation(latitude: 1, longitude: 2, altitude: 3.5)),
        "reference": .reference(RecordReference("b", deletesSelf: true)),
        "strings": .strings(["a\"", ""]), "integers": .integers([.max, -1]), "reals": .reals([1, 0.5]),
        "dates": .dates([RecordDate(nanoseconds: -1)]), "datas": .datas([Data([7])]), "none": .integers([]),
        "references": .references([RecordReference("b")]),
        "owners": .references([RecordReference("b", deletesSelf: true), RecordReference("c")]),
        "locations": .locations([RecordLocation(latitude: 1, longitude: 2)]),
    ]

    @Test func valuesOfTheDeviceAreTypedTextsAndComeBack() async throws {
        let scene = try await Scene()
        try await scene.save(Record(RecordID("a"), type: "Note", fields: Self.values))
        let fields = Self.fields(try await scene.get("a"))
        #expect(fields["integer"]?["value"] as? String == "9223372036854775807")
        #expect(fields["real"]?["value"] as? String == "0.1")
        #expect(fields["date"]?["value"] as? String == "1970-01-01T00:00:00.000000001Z")
        #expect(fields["reference"]?["value"] as? String == "b")
        #expect(fields["strings"]?["value"] as? String == #"["a\"", ""]"#)
        #expect(fields["location"]?["value"] as? String == "52.5, -13.0")
        #expect(fields["none"]?["type"] as? String == "integers")
        #expect(fields["data"]?["size"] as? Int == 2)
        var saved: [String: any Sendable] = [:]
        for (name, field) in fields {
            var one: [String: any Sendable] = ["type": field["type"] as? String, "value": field["value"] as? String]
            if field["deletesSelf"] as? Bool == true { one["deletesSelf"] = true }
            saved[name] = one
        }
        let answer = try await scene.browser.call("records.save", ["name": "copy", "type": "Note", "fields": saved])
        #expect(answer.status == 200, "\(String(decoding: answer.body, as: UTF8.self))")
        #expect(try await scene.deviceRecord("copy")?.fields == Self.values)
    }

    @Test func aRecordOfTheBrowserIsChangedAndDeletedThere() async throws {
        let scene = try await Scene()
        let made = try await scene.browser.call(
            "records.save", ["type": "Note", "fields": ["title": ["type": "string", "value": "one"]]])
        let record = made.object("record")
        let name = try #require(record["name"] as? String)
        #expect(record["modified"] is [String: Any])
        #expect(try await scene.deviceRecord(name)?["title"] == "one")
        let changed = try await scene.browser.call(
            "records.save",
            [
                "name": name, "changeTag": record["changeTag"] as? String,
                "fields": ["title": NSNull() as any Sendable, "size": ["type": "real", "value": "2"]],
            ])
        #expect(changed.status == 200)
        #expect(try await scene.deviceRecord(name)?.fields == ["size": .real(2)])
        #expect(try await scene.browser.call("records.delete", ["name": name]).status == 200)
        #expect(try await scene.deviceRecord(name) == nil)
        #expect(try await scene.browser.call("records.get", ["name": name]).error == "unknownItem")
    }

    @Test(arguments: [
        ("integer", "1.5"), ("integer", "9223372036854775808"), ("real", "x"), ("date", "today"), ("data", "?"),
        ("location", "1"), ("location", "1, x"), ("integers", "[1, 2.5]"), ("strings", "[1"), ("strings", "{}"),
        ("reference", ""), ("asset", "a"), ("assets", "[]x"), ("", ""), ("s", "[1]"),
    ])
    func aTextThatIsNotOfTheTypeIsNotSaved(_ type: String, _ text: String) async throws {
        #expect(throws: CloudError.self) { try TypedText(type: type, text: text).fieldValue }
    }

    @Test func pagesHaveEachRecordOnce() async throws {
        let scene = try await Scene()
        for number in 1...7 {
            try await scene.database.save(
                Record(RecordID("r\(number)"), type: "Note", fields: ["n": .integer(Int64(-number % 4))]))
        }
        try await scene.database.save(Record(RecordID("other"), type: "Other"))
        try await scene.database.waitUntilSent(zone: RecordZone.defaultName)
        try await scene.house.wait { try await scene.get("other")["name"] != nil }
        func all(_ arguments: [String: any Sendable]) async throws -> [[String]] {
            var (pages, arguments) = ([[String]](), arguments)
            repeat {
                let answer = try await scene.browser.call("records.query", arguments)
                try #require(answer.status == 200)
                pages.append(Self.names(answer))
                arguments["after"] = answer.json["next"] as? String
            } while arguments["after"] != nil
            return pages
        }
        let named = try await all(["type": "Note", "limit": 3])
        #expect(named == [["r1", "r2", "r3"], ["r4", "r5", "r6"], ["r7"]])
        let sorted = try await all([
            "type": "Note", "limit": 3, "sort": [["field": "n", "isDescending": true] as [String: any Sendable]],
        ])
        #expect(sorted == [["r4", "r1", "r5"], ["r2", "r6", "r3"], ["r7"]])
        let chosen = try await all(["predicate": "n == -3 OR _recordName == 'other'", "limit": 1])
        #expect(chosen == [["other"], ["r3"], ["r7"]])
        let types = try await scene.browser.call("records.types").list("types")
        #expect(types.compactMap { $0["name"] as? String } == ["Note", "Other"])
        #expect(((types[0]["fields"] as? [[String: Any]])?.first)?["types"] as? [String] == ["integer"])
        let zones = try await scene.browser.call("records.zones")
        #expect(zones.list("zones").compactMap { $0["name"] as? String } == [RecordZone.defaultName])
        #expect(zones.json["conflicts"] as? Int == 0)
    }

    @Test func listsHaveNoLongTextsAndNoBytes() async throws {
        let scene = try await Scene()
        let asset = try RecordAsset(Data(repeating: 7, count: 70_000))
        try await scene.save(
            Record(
                RecordID("a"), type: "Note",
                fields: [
                    "text": .string(String(repeating: "é", count: 500)), "photo": .asset(asset),
                    "data": .data(Data(count: 1000)),
                ]))
        let listed = try await scene.browser.call("records.query").list("records")
        let fields = Self.fields(try #require(listed.first))
        #expect((fields["text"]?["value"] as? String)?.count == 200)
        #expect(fields["text"]?["isCut"] as? Bool == true)
        #expect((fields["data"]?["value"] as? String)?.count == 200)
        #expect(fields["photo"]?["size"] as? Int == 70_000)
        #expect(fields["photo"]?["value"] == nil)
        let whole = Self.fields(try await scene.get("a"))
        #expect((whole["text"]?["value"] as? String)?.count == 500)
        let bytes = try await scene.browser.get("/api/asset?record=a&field=photo")
        #expect(bytes.body == [UInt8](repeating: 7, count: 70_000))
        #expect(bytes.header("Content-Disposition") == "attachment; filename*=UTF-8''a-photo")
        #expect(bytes.header("Content-Type") == "application/octet-stream")
        for missing in ["record=a&field=text", "record=a&field=photo&index=1", "record=b&field=photo"] {
            #expect(try await scene.browser.get("/api/asset?\(missing)").error == "unknownItem")
        }
        #expect(try await Browser(door: scene.house.door).get("/api/asset?record=a&field=photo").status == 401)
    }

    @Test func aWrongPredicateHasItsPlaceAndTheCure() async throws {
        let scene = try await Scene()
        let text = "title == '\u{1F600}' AND"
        for call in ["records.query", "records.explain"] {
            let answer = try await scene.browser.call(call, ["predicate": text])
            #expect(answer.error == "invalidArguments")
            let failure = answer.object("error")
            let details = try #require(failure["details"] as? [String: String])
            // As JavaScript counts: the face is two.
            #expect(details["start"] == "\(text.utf16.count)")
            #expect(details["end"] == "\(text.utf16.count)")
            #expect((failure["message"] as? String)?.contains("Expected a comparison") == true, "\(failure)")
        }
        let inside = try await scene.browser.call("records.query", ["predicate": "a == 1 AND b LIKE 5"])
        let details = try #require(inside.object("error")["details"] as? [String: String])
        #expect(details["start"] == "18")
        #expect(details["end"] == "19")
        let sorted = try await scene.browser.call("records.query", ["sort": [["field": "a b"]]])
        #expect(sorted.error == "invalidArguments")
    }

    @Test func explainTellsTheIndexThatIsWanted() async throws {
        let scene = try await Scene()
        try await scene.save(Record(RecordID("a"), type: "Note", fields: ["n": 1]))
        let arguments = ["type": "Note", "predicate": "n > 0"]
        let plan = try await scene.browser.call("records.explain", arguments)
        #expect(plan.json["way"] as? String == "scan")
        #expect(plan.json["wanted"] as? String == "Note(n)")
        try await scene.database.indexes.modify(
            saving: [RecordIndex(type: "Note", fields: [RecordIndex.Field("n")])])
        try await scene.house.wait {
            try await scene.browser.call("records.explain", arguments).json["index"] as? String == "Note(n)"
        }
    }

    @Test func aStaleChangeTagSavesNothingAndHasTheOthersRecord() async throws {
        let scene = try await Scene()
        let first = try await scene.save(Record(RecordID("a"), type: "Note", fields: ["title": "one"]))
        let stale = first.changeTag?.base64EncodedString()
        var second = first
        second["title"] = RecordValue.string("two")
        second = try await scene.save(second)
        let arguments: [String: any Sendable] = [
            "name": "a", "changeTag": stale, "fields": ["title": ["type": "string", "value": "three"]],
        ]
        for call in ["records.save", "records.delete"] {
            let answer = try await scene.browser.call(call, arguments)
            #expect(answer.error == "serverRecordChanged")
            let details = try #require(answer.object("error")["details"] as? [String: String])
            let server = try JSONSerialization.jsonObject(with: Data((details["server"] ?? "").utf8))
            #expect(Self.fields(server as? [String: Any] ?? [:])["title"]?["value"] as? String == "two")
        }
        #expect(try await scene.deviceRecord("a") == second)
        let new = try await scene.browser.call(
            "records.save", ["name": "a", "type": "Note", "fields": [:] as [String: String]])
        #expect(new.error == "serverRecordChanged", "A new record is not put over another one.")
        try await scene.database.delete(second)
        try await scene.database.waitUntilSent(zone: RecordZone.defaultName)
        try await scene.house.wait { try await scene.get("a").isEmpty }
        let gone = try await scene.browser.call("records.save", arguments)
        #expect(gone.error == "serverRecordChanged")
        #expect((gone.object("error")["details"] as? [String: String])?["server"] == nil)
    }

    /// The browser's side has not heard yet of the other save.
    @Test func aSaveThatTheServerFindsStaleIsNoConflictThatStays() async throws {
        let scene = try await Scene()
        try await scene.save(Record(RecordID("a"), type: "Note", fields: ["title": "one"]))
        for round in 0..<10 {
            var mine = try #require(try await scene.deviceRecord("a"))
            let tag = mine.changeTag?.base64EncodedString()
            mine["title"] = RecordValue.string("device \(round)")
            let changed = mine
            async let device = scene.database.save(changed)
            let answer = try await scene.browser.call(
                "records.save",
                ["name": "a", "changeTag": tag, "fields": ["title": ["type": "string", "value": "browser \(round)"]]])
            _ = try await device
            #expect(answer.status == 200 || answer.error == "serverRecordChanged")
            try await scene.database.waitUntilSent(zone: RecordZone.defaultName)
            for conflict in try await scene.database.conflicts.list() {
                try await scene.database.conflicts.resolve(conflict, keeping: .server)
            }
            #expect(try await scene.browser.call("records.conflicts").list("conflicts").isEmpty)
            let now = try #require(try await scene.deviceRecord("a"))
            try await scene.house.wait {
                try await scene.get("a")["changeTag"] as? String == now.changeTag?.base64EncodedString()
            }
        }
    }

    @Test(arguments: ["server", "client"])
    func aConflictOfAnOwnHomeIsListedAndDecided(_ kept: String) async throws {
        let scene = try await Scene()
        let phone = try await scene.house.cloud.openSession(account: "anna", device: "phone")
        let phoneDatabase = try await phone.recordContainer().privateDatabase
        try await phoneDatabase.ready(zone: RecordZone.defaultName)
        @Sendable func save(_ name: String, _ title: String, _ database: RecordDatabase) async throws {
            // It may have heard of the other's.
            _ = try? await database.save(Record(RecordID(name), type: "Note", fields: ["title": .string(title)]))
            try await database.waitUntilSent(zone: RecordZone.defaultName)
        }
        var record = ""
        for number in 0..<20 {
            let name = "a\(number)"
            record = name
            async let one: Void = save(name, "desk", scene.database)
            async let two: Void = save(name, "phone", phoneDatabase)
            _ = try await (one, two)
            let counts = try await (scene.database.conflicts.list().count, phoneDatabase.conflicts.list().count)
            if counts != (0, 0) { break }
        }
        let isDesk = try await !scene.database.conflicts.list().isEmpty
        let user = try WebUser(isDesk ? scene.house.device : phone, isOwn: true)
        let database = isDesk ? scene.database : phoneDatabase
        let listed = try await RecordCalls.conflicts(user, RecordCalls.Place()).conflicts
        let conflict = try #require(listed.first)
        #expect(listed.count == 1)
        #expect(conflict.client?.fields.first?.value == (isDesk ? "desk" : "phone"))
        #expect(conflict.server?.fields.first?.value == (isDesk ? "phone" : "desk"))
        let arguments = RecordCalls.Resolve(number: conflict.number, keep: kept)
        await #expect(throws: CloudError.self) {
            try await RecordCalls.resolve(user, RecordCalls.Resolve(number: conflict.number, keep: "both"))
        }
        _ = try await RecordCalls.resolve(user, arguments)
        await #expect(throws: CloudError.self) { try await RecordCalls.resolve(user, arguments) }
        #expect(try await RecordCalls.conflicts(user, RecordCalls.Place()).conflicts.isEmpty)
        let title: String? = try await database.record(RecordID(record))?["title"]
        #expect((title == (isDesk ? "desk" : "phone")) == (kept == "client"))
    }

    @Test("The kept side of a conflict stays in the list of rejected changes, or in a new conflict")
    func aKeptSideIsNotLost() async throws {
        let scene = try await Scene()
        let cloud = scene.house.cloud
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let database = try await phone.recordContainer().privateDatabase
        try await database.ready(zone: RecordZone.defaultName)
        let user = try WebUser(scene.house.device)
        let big = RecordValue.data(Data(count: 200_000))
        @Sendable func save(_ name: String, _ title: String) async throws {
            let id = RecordID(name)
            var record = try await database.record(id) ?? Record(id, type: "Note")
            record["title"] = .string(title)
            try await database.save(record)
            try await database.waitUntilSent(zone: RecordZone.defaultName)
        }
        func conflict(_ name: String) async throws -> RecordCalls.Resolve {
            let id = RecordID(name)
            cloud.disconnect(scene.house.device)
            try await scene.database.save(Record(id, type: "Note", fields: ["title": "desk", "big": big]))
            try await save(name, "one")
            cloud.connect(scene.house.device)
            try await scene.house.wait { try await scene.database.conflicts.list().contains { $0.id == id } }
            let listed = try await RecordCalls.conflicts(user, RecordCalls.Place()).conflicts
            let number = try #require(listed.first { $0.name == name }).number
            return RecordCalls.Resolve(number: number, keep: "client")
        }

        // The other device saves at the same moment.
        var again: String?
        for number in 0..<20 where again == nil {
            let name = "a\(number)"
            let resolve = try await conflict(name)
            async let other: Void = save(name, "two")
            do { _ = try await RecordCalls.resolve(user, resolve) } catch {
                if (error as? CloudError)?.code == .serverRecordChanged { again = name }
            }
            // It may be the one with the conflict.
            _ = try? await other
        }
        let found = try #require(again)
        let kept = try await scene.database.conflicts.list().first { $0.id.name == found }?.client
        let title: String? = kept?["title"]
        #expect(title == "desk")

        // The server rejects the choice.
        let resolve = try await conflict("b")
        try cloud.setPlan(bytes: 100_000, of: "anna")
        let rejected = await #expect(throws: CloudError.self) { _ = try await RecordCalls.resolve(user, resolve) }
        #expect(rejected?.code == .quotaExceeded)
        let names = try await scene.database.conflicts.rejected().map { $0.id.name }
        #expect(names == ["b"])
    }

    @Test func anotherAccountSeesNothing() async throws {
        let scene = try await Scene()
        try await scene.save(Record(RecordID("secret"), type: "Note", fields: ["title": "one"]))
        _ = try await scene.house.cloud.openSession(account: "berta", device: "her")
        var berta = Browser(door: scene.house.door)
        let signedIn = try await berta.call("sign-in", ["account": "berta", "password": TestCloud.password])
        let cookie = try #require(signedIn.header("Set-Cookie"))
        berta.cookie = String(cookie.dropFirst("nephos=".count).prefix { $0 != ";" })
        #expect(try await berta.call("records.query").list("records").isEmpty)
        #expect(try await berta.call("records.types").list("types").isEmpty)
        for call in ["records.get", "records.delete"] {
            #expect(try await berta.call(call, ["name": "secret"]).error == "unknownItem")
        }
        #expect(try await Browser(door: scene.house.door).call("records.query").error == "notSignedIn")
        #expect(try await berta.call("records.query", ["container": "foreign"]).error == "missingEntitlement")
        #expect(try await berta.call("records.query", ["database": "theirs"]).error == "invalidArguments")
    }

    @Test func theSharedDatabaseIsReadAndWrittenThroughTheServer() async throws {
        let scene = try await Scene()
        let made = try await scene.browser.call(
            "records.save",
            ["database": "public", "name": "p", "type": "Note", "fields": ["n": ["type": "integer", "value": "1"]]])
        #expect(made.status == 200, "\(String(decoding: made.body, as: UTF8.self))")
        let shared = try await scene.house.device.recordContainer().publicDatabase
        #expect(try await shared.record(RecordID("p"))?["n"] == 1)
        for number in 1...3 { try await shared.save(Record(RecordID("q\(number)"), type: "Note")) }
        try await shared.waitUntilSent(zone: RecordZone.defaultName)
        let first = try await scene.browser.call("records.query", ["database": "public", "limit": 3])
        #expect(Self.names(first) == ["p", "q1", "q2"])
        let next = first.json["next"] as? String
        let second = try await scene.browser.call("records.query", ["database": "public", "after": next])
        #expect(Self.names(second) == ["q3"])
        #expect(try await scene.browser.call("records.query").list("records").isEmpty)
        #expect(
            try await scene.browser.call("records.zones", ["database": "public"]).list("zones").count == 1)
        #expect(try await scene.browser.call("records.delete", ["database": "public", "name": "p"]).status == 200)
        #expect(try await shared.record(RecordID("p")) == nil)
    }
}
