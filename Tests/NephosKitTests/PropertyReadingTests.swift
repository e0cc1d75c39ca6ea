import Foundation
import GRDB
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// What is read is what was written, or is refused with its place.
@Suite struct PropertyReadingTests {
    private func xml(_ content: String) -> Data {
        Data("<?xml version=\"1.0\"?><!DOCTYPE plist><plist version=\"1.0\">\(content)</plist>".utf8)
    }

    /// A binary property list of these objects; the first is the top one.
    private func binary(_ objects: [[UInt8]]) -> Data {
        var bytes = Array("bplist00".utf8)
        var table: [UInt8] = []
        for object in objects {
            table += [UInt8(bytes.count >> 8), UInt8(bytes.count & 0xff)]
            bytes += object
        }
        let place = bytes.count
        bytes += table
        func eight(_ value: Int) -> [UInt8] { (0..<8).map { UInt8(value >> (56 - 8 * $0) & 0xff) } }
        return Data(bytes + [0, 0, 0, 0, 0, 0, 2, 1] + eight(objects.count) + eight(0) + eight(place))
    }

    private func refusal(_ read: () throws -> PropertyValue) -> String {
        do {
            let value = try read()
            return "\(value)"
        } catch let error as CloudError {
            return "\(error.details["key"] ?? "-"): \(error.details["reason"] ?? "-")"
        } catch { return "\(error)" }
    }

    @Test func whatFoundationWritesIsReadAsItIs() throws {
        let date = Date(timeIntervalSince1970: 1_769_860_800)
        let object: [String: Any] = [
            "text": "a < b & \u{e9}\u{1f600}", "ascii": "plain", "empty": "", "small": 5, "negative": -5,
            "large": Int64.max,
            "least": Int64.min, "byte": 255, "word": 65535, "real": 0.1, "yes": true, "no": false, "date": date,
            "data": Data([0, 1, 255]), "list": [1, [2, ["x": "y"]], [Any]()] as [Any], "nothing": [String: Any](),
            "long": String(repeating: "x", count: 300),
        ]
        let expected: PropertyValue = [
            "text": "a < b & \u{e9}\u{1f600}", "ascii": "plain", "empty": "", "small": 5, "negative": -5,
            "large": .integer(.max), "least": .integer(.min), "byte": 255, "word": 65535, "real": 0.1, "yes": true,
            "no": false, "date": .date(date), "data": .data(Data([0, 1, 255])), "list": [1, [2, ["x": "y"]], []],
            "nothing": [:], "long": .string(String(repeating: "x", count: 300)),
        ]
        for format in [PropertyListSerialization.PropertyListFormat.xml, .binary] {
            let data = try PropertyListSerialization.data(fromPropertyList: object, format: format, options: 0)
            #expect(try PropertyValue(propertyList: data) == expected)
        }
        guard case .dictionary(let values) = expected else { return }
        let own = DefaultsFile.encode(values, json: false)
        #expect(try DefaultsFile.decode(own, json: false) == values)
        let theirs = try PropertyListSerialization.propertyList(from: own, format: nil) as? NSDictionary
        #expect(theirs == object as NSDictionary)
    }

    @Test(arguments: [
        ("<integer>9223372036854775808</integer>", "An integer has no place in 64 bits."),
        ("<integer>18446744073709551615</integer>", "An integer has no place in 64 bits."),
        ("<integer></integer>", "An integer has no number in it."), ("<real>1e400</real>", "A real is too large."),
        ("<real>-1e400</real>", "A real is too large."), ("<real>1e-400</real>", "A real is too small."),
        ("<dict><key>CF$UID</key><integer>1</integer></dict>", "A store holds no UID."),
        ("<date>2026-02-30T00:00:00Z</date>", "A date is none of the calendar's: \(PropertyDate.form)."),
        ("<string>&unknown;</string>", "It is no property list, or a damaged one."),
        ("<data>***</data>", "Data is not base64."),
        (String(repeating: "<array>", count: 60), "It nests too deeply."),
    ])
    func whatAListInXMLSaysAndNoStoreHoldsIsRefused(_ element: String, _ reason: String) {
        let refused = refusal {
            try PropertyValue(propertyList: xml("<dict><key>a</key><array><true/>\(element)</array></dict>"))
        }
        #expect(refused.hasPrefix("a[1]") && refused.hasSuffix(": \(reason)"), "\(refused)")
    }

    @Test func keysThatLookAlikeAreTwoAndTheSameKeyIsRefused() throws {
        let alike = "<dict><key>\u{e9}</key><true/><key>e\u{301}</key><false/></dict>"
        guard case .dictionary(let values) = try PropertyValue(propertyList: xml(alike)) else { return }
        #expect(values.count == 2)
        let twice = "<dict><key>a</key><true/><key>a</key><false/></dict>"
        #expect(refusal { try PropertyValue(propertyList: xml(twice)) } == "a: The key is there twice.")
    }

    @Test func whatABinaryListSaysAndNoStoreHoldsIsRefused() {
        let key: [UInt8] = [0x51, 0x61]
        func refused(_ object: [UInt8]) -> String {
            refusal { try PropertyValue(propertyList: binary([[0xd1, 1, 2], key, object])) }
        }
        #expect(refused([0x80, 5]) == "a: A store holds no UID.")
        #expect(refused([0x00]) == "a: A store holds no null.")
        let large: [UInt8] = [0x14] + [UInt8](repeating: 0, count: 8) + [UInt8](repeating: 0xff, count: 8)
        #expect(refused(large) == "a: An integer has no place in 64 bits.")
        #expect(refused([0x33, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0]) == "a: A date is too far away.")
        // It is in itself.
        #expect(refused([0xa1, 2]).hasSuffix(": It nests too deeply."))
    }

    @Test(.timeLimit(.minutes(1))) func sharedPartsAreNotFollowedForEver() {
        let key: [UInt8] = [0x51, 0x61]
        for depth in [20, 40] {
            let levels = (0..<depth).map { [0xa2, UInt8($0 + 3), UInt8($0 + 3)] as [UInt8] }
            let list = binary([[0xd1, 1, 2], key] + levels + [[0x09]])
            #expect(refusal { try PropertyValue(propertyList: list) }.hasSuffix("than any store can hold."))
        }
        // A long text that is there often.
        let text = [0x5f, 0x12, 0, 0, 0x40, 0] + [UInt8](repeating: 0x61, count: 0x4000)
        let list = binary([[0xaf, 0x11, 0x10, 0x00] + [UInt8](repeating: 1, count: 0x1000), text])
        #expect(refusal { try PropertyValue(propertyList: list) }.hasSuffix("than any store can hold."))
    }

    @Test func listsThatLackSomethingAreRefused() {
        for content in ["", "<dict>", "<dict><key>a</key></dict>", "<true/><true/>", "<what/>", "<string>a"] {
            #expect(throws: CloudError.self) { try PropertyValue(propertyList: xml(content)) }
        }
    }

    @Test(arguments: [
        (#"{"a":[1,null]}"#, "a[1]: A store holds no null."),
        (#"{"a":{"b":18446744073709551615}}"#, "a.b: An integer has no place in 64 bits."),
        (#"{"a":1e400}"#, "a: A number is too large."), (#"{"a":1,"a":2}"#, "a: The key is there twice."),
        (#"{"a":{"$date":"tomorrow"}}"#, "a: {\"$date\": ...} has no date in it: \(PropertyDate.form)."),
        (#"{"a":{"$date":"2026-02-30T00:00:00Z"}}"#, "a: {\"$date\": ...} has no date in it: \(PropertyDate.form)."),
        (#"{"a":{"$data":"***"}}"#, "a: {\"$data\": ...} has no base64 in it."), (#"{"a":"#, "a: It is no JSON."),
    ])
    func whatJSONSaysAndNoStoreHoldsIsRefused(_ text: String, _ reason: String) {
        #expect(refusal { try PropertyValue(json: text) } == reason)
    }

    @Test func datesAreThoseOfTheCalendar() throws {
        for text in [
            "0001-01-01T00:00:00.000Z", "0001-12-31T23:59:59.999Z", "1500-02-28T12:00:00.000Z",
            "1582-10-10T00:00:00.000Z", "1969-12-31T23:59:59.999Z", "2000-02-29T00:00:00.000Z",
            "2026-01-31T12:00:00.123Z", "2026-01-31T12:00:00.123456Z", "9999-12-31T23:59:59.999Z",
            // Where a `Date` has no place for each microsecond.
            "1843-07-19T15:45:24.383Z", "2110-08-09T03:49:59.536Z",
        ] {
            #expect(PropertyDate.text(of: try #require(PropertyDate.date(text), "\(text)")) == text)
        }
        let east = try #require(PropertyDate.date("2026-01-31T12:00:00+01:30"))
        #expect(PropertyDate.text(of: east) == "2026-01-31T10:30:00.000Z")
        for text in [
            "2026-02-30T00:00:00Z", "2025-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-06-30T23:59:60Z",
            "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.1234567Z", "9999-12-31T23:59:59-01:00",
        ] {
            #expect(PropertyDate.date(text) == nil, "\(text)")
        }
        // They cannot be kept.
        for text in ["0001-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z"] {
            #expect(PropertyDate.date(text) == nil, "\(text)")
        }
        // What is stored comes out as it was, whoever wrote it.
        for microseconds: Int64 in [
            10_413_792_000_111_112, 253_370_764_800_123_456, -62_135_596_799_999_992, .max, .min,
        ] {
            let stored = PropertyValue.date(Date(timeIntervalSince1970: Double(microseconds) / 1_000_000))
            guard case .date(let date) = try PropertyValue(canonicalBytes: stored.canonicalBytes) else { continue }
            let again = PropertyDate.date(PropertyDate.text(of: date)).map { PropertyValue.date($0).canonicalBytes }
            #expect(again == stored.canonicalBytes, "\(microseconds)")
        }
        // As an export writes what is further away.
        let far = Date(timeIntervalSince1970: 1e12)
        #expect(PropertyDate.date(PropertyDate.text(of: far)) == far)
        for day in stride(from: -719_162.0, to: 2_932_896, by: 997) {
            let date = Date(timeIntervalSince1970: day * 86_400 + 1.5)
            #expect(PropertyDate.date(PropertyDate.text(of: date)) == date)
        }
    }
}

/// The file of a mirror is the user's.
@Suite struct MirrorFileTests {
    private func withMirror(
        _ name: String, _ body: (KeyValueStore, DefaultsMirror, String) throws -> Void
    ) async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        let session = try await Session.open(home: URL(fileURLWithPath: home))
        defer { session.close() }
        let store = try session.keyValueStore(app: AppID("app.one"))
        let path = home + "/" + name
        try body(store, DefaultsMirror(store: store, file: URL(fileURLWithPath: path)), path)
    }

    private func mode(_ path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode : 0
    }

    @Test func aLinkStaysOneAndTheFileKeepsItsMode() async throws {
        for exists in [true, false] {
            try await withMirror("link.json") { store, mirror, path in
                let folder = (path as NSString).deletingLastPathComponent
                if exists {
                    try Data(#"{"theirs": 1}"#.utf8).write(to: URL(fileURLWithPath: folder + "/real.json"))
                    chmod(folder + "/real.json", 0o664)
                    // Another owner than the one that writes, where that can be.
                    if getuid() == 0 { chown(folder + "/real.json", 65534, 65534) }
                }
                try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "real.json")
                try store.set("x", forKey: "mine")
                try mirror.merge()
                #expect(mode(path) & S_IFMT == S_IFLNK)
                #expect(mode(folder + "/real.json") & 0o7777 == (exists ? 0o664 : 0o600))
                var status = stat()
                #expect(stat(path, &status) == 0 && status.st_uid == (exists && getuid() == 0 ? 65534 : getuid()))
                let values = try DefaultsFile.decode(Data(contentsOf: URL(fileURLWithPath: path)), json: true)
                #expect(values == (exists ? ["mine": "x", "theirs": 1] : ["mine": "x"]))
            }
        }
    }

    @Test(arguments: [
        (#"{"a": [1, 18446744073709551615]}"#, "a[1]"), (#"{"a": [1, null]}"#, "a[1]"), (#"{"a": null}"#, "a"),
        (#"{"a": 1, "a": 2}"#, "a"),
    ])
    func whatNoStoreHoldsEndsTheMirrorAndTheFileIsLeftAlone(_ content: String, _ place: String) async throws {
        try await withMirror("defaults.json") { store, mirror, path in
            try store.set("x", forKey: "mine")
            try Data(content.utf8).write(to: URL(fileURLWithPath: path))
            let error = #expect(throws: CloudError.self) { try mirror.merge() }
            #expect(error?.details["key"] == place && error?.details["reason"] != nil, "\(String(describing: error))")
            #expect(FileManager.default.contents(atPath: path) == Data(content.utf8))
            #expect(store.dictionaryRepresentation == ["mine": "x"])
        }
    }

    @Test(arguments: ["defaults.json", "defaults.plist"]) func namesThatLookAlikeStayTwo(_ name: String) async throws {
        try await withMirror(name) { store, mirror, path in
            let values: [ItemName: PropertyValue] = ["\u{e9}": 1, "e\u{301}": 2]
            let all = values.merging(["nested": .dictionary(values)]) { $1 }
            let isJSON = name.hasSuffix(".json")
            try DefaultsFile.encode(all, json: isJSON).write(to: URL(fileURLWithPath: path))
            try mirror.merge()
            try store.set(Int64(3), forKey: "more")
            try mirror.exchange(readFile: false)
            #expect(try store.values() == all.merging(["more": 3]) { $1 })
            let data = try #require(FileManager.default.contents(atPath: path))
            #expect(try DefaultsFile.decode(data, json: isJSON) == all.merging(["more": 3]) { $1 })
        }
    }

    @Test func whatTheFormCannotHoldStaysInTheStore() async throws {
        try await withMirror("defaults.plist") { store, mirror, path in
            try store.set("a\u{1}b", forKey: "control")
            try store.set("a\r\nb", forKey: "lines")
            try mirror.merge()
            try mirror.exchange(readFile: true)
            #expect(store.dictionaryRepresentation == ["control": "a\u{1}b", "lines": "a\r\nb"])
        }
    }

    private struct Ended: Error {}

    /// Whatever of the two was not done, the file is the mirror's own, and yields to what the store has by then; and
    /// what somebody writes into it then is taken.
    @Test(arguments: ["mirror.write", "mirror.note"]) func aCrashBetweenTheFileAndItsNoteLosesNothing(
        _ step: String
    ) async throws {
        for isEdited in [false, true] {
            try await withMirror("defaults.json") { store, mirror, path in
                try store.set(Int64(1), forKey: "a")
                try store.set(Int64(1), forKey: "dropped")
                try mirror.merge()
                try store.set(Int64(2), forKey: "a")
                try store.removeObject(forKey: "dropped")
                try store.set(Int64(2), forKey: "added")
                let ending = DefaultsMirror(
                    store: store, file: URL(fileURLWithPath: path), fault: { if $0 == step { throw Ended() } })
                #expect(throws: CloudError.self) { try ending.merge() }
                try store.set(Int64(3), forKey: "a")
                try store.removeObject(forKey: "added")
                if isEdited { try Data(#"{"a": 9, "dropped": 9}"#.utf8).write(to: URL(fileURLWithPath: path)) }
                let again = DefaultsMirror(store: store, file: URL(fileURLWithPath: path))
                try again.merge()
                let expected: [String: PropertyValue] = isEdited ? ["a": 9, "dropped": 9] : ["a": 3]
                #expect(store.dictionaryRepresentation == expected)
                let data = try #require(FileManager.default.contents(atPath: path))
                let values = try DefaultsFile.decode(data, json: true)
                #expect(values == Dictionary(expected.map { (ItemName($0.key), $0.value) }) { $1 })
            }
        }
    }

    /// An editor saves while the mirror writes, in the moment before the new file takes the place of the old.
    @Test func whatIsWrittenWhileTheMirrorWritesIsNotOverwritten() async throws {
        try await withMirror("defaults.json") { store, mirror, path in
            try store.set(Int64(1), forKey: "a")
            try mirror.merge()
            try store.set(Int64(2), forKey: "b")
            let writing = DefaultsMirror(
                store: store, file: URL(fileURLWithPath: path),
                fault: {
                    guard $0 == "mirror.rename" else { return }
                    try Data(#"{"a": 9}"#.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
                })
            try writing.merge()
            #expect(try DefaultsFile.decode(Data(contentsOf: URL(fileURLWithPath: path)), json: true) == ["a": 9])
            try DefaultsMirror(store: store, file: URL(fileURLWithPath: path)).merge()
            #expect(store.dictionaryRepresentation == ["a": 9, "b": 2])
            let folder = URL(fileURLWithPath: path).deletingLastPathComponent().path
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.hasSuffix(".tmp") }.isEmpty)
        }
    }

    @Test func anEditThatWasTakenIsNotTakenAgain() async throws {
        try await withMirror("defaults.json") { store, mirror, path in
            try store.set(Int64(1), forKey: "a")
            try store.set(Int64(1), forKey: "b")
            try mirror.merge()
            try Data(#"{"a": 2, "b": 1}"#.utf8).write(to: URL(fileURLWithPath: path))
            try store.set(Int64(2), forKey: "b")
            let ending = DefaultsMirror(
                store: store, file: URL(fileURLWithPath: path), fault: { if $0 == "mirror.write" { throw Ended() } })
            #expect(throws: CloudError.self) { try ending.merge() }
            #expect(store.longLong(forKey: "a") == 2)
            try store.set(Int64(3), forKey: "a")
            let again = DefaultsMirror(store: store, file: URL(fileURLWithPath: path))
            try again.merge()
            #expect(store.longLong(forKey: "a") == 3 && store.longLong(forKey: "b") == 2)
        }
    }

    @Test func aKeyThatIsGoneFromTheFileYieldsToWhatTheStoreHasNewer() async throws {
        try await withMirror("defaults.json") { store, mirror, path in
            for key in ["gone", "changed"] { try store.set(Int64(1), forKey: key) }
            try mirror.merge()
            try Data(#"{"other": 1}"#.utf8).write(to: URL(fileURLWithPath: path))
            try store.set(Int64(2), forKey: "changed")
            try DefaultsMirror(store: store, file: URL(fileURLWithPath: path)).merge()
            #expect(store.dictionaryRepresentation == ["changed": 2, "other": 1])
            #expect(try DefaultsFile.decode(Data(contentsOf: URL(fileURLWithPath: path)), json: true)["changed"] == 2)
        }
    }

    @Test func whatIsKnownOfFilesIsBounded() async throws {
        try await withMirror("defaults.json") { store, _, path in
            try store.set(Int64(1), forKey: "a")
            for index in 0..<20 {
                let mirror = DefaultsMirror(store: store, file: URL(fileURLWithPath: "\(path).\(index).json"))
                try mirror.merge()
            }
            let names = try store.session.local.read { database in
                try String.fetchAll(database, sql: "SELECT name FROM facts WHERE name LIKE 'mirror %'")
            }
            #expect(names.count == MirrorNotes.filesMax && names.contains { $0.hasSuffix(".19.json") })
        }
    }
}
