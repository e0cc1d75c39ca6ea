internal import Foundation
public import NephosCore
internal import NephosPropertyLists

/// Records as lines of JSON, for export and import: every value comes back as it was, with its type.
///
///     {"name":"a","type":"Note","fields":{"count":1,"size":1.0,"title":"one"}}
///
/// An integer has no point and no exponent, a real always one. A type that JSON lacks is an object with one key:
/// `{"$date":"2026-01-31T12:00:00.123456789Z"}`, `{"$data":base64}`, `{"$real":"inf"}` (for not-a-number the bits,
/// `{"$real":"0x7ff8000000000000"}`), `{"$location":{"latitude":52.5,"longitude":13.4,"altitude":34.0}}`,
/// `{"$reference":"b"}` or `{"$reference":"b","deletesSelf":true}`, `{"$encrypted":{"suite":1,"key":base64,
/// "sealed":base64}}`, `{"$unknown":base64}`. An asset is the id of its bytes,
/// `{"$asset":{"bytes":70000,"id":hexadecimal, "depth":1}}` (depth 0 is left out); the bytes are beside the lines. A
/// list is an array; an empty one names its type: `{"$list":"strings"}`. Beside `name`, `type` and `fields` a line has
/// `zone` (none: the default zone) and `parent`, where there are.
public enum RecordJSON {
    /// One line, fields in the order of their names.
    public static func line(_ record: Record) -> String {
        var text = "{\"name\":"
        JSONText.write(record.id.name, to: &text)
        if record.id.zone != RecordZone.defaultName {
            text += ",\"zone\":"
            JSONText.write(record.id.zone, to: &text)
        }
        text += ",\"type\":"
        JSONText.write(record.type, to: &text)
        if let parent = record.parent {
            text += ",\"parent\":"
            JSONText.write(parent, to: &text)
        }
        text += ",\"fields\":{"
        for (index, field) in record.fields.sorted(by: { $0.key < $1.key }).enumerated() {
            if index > 0 { text += "," }
            JSONText.write(field.key, to: &text)
            text += ":" + field.value.json
        }
        return text + "}}"
    }

    /// The record of a line, as a new one.
    ///
    /// - Parameters:
    ///   - line: A line of JSON, as an export writes it.
    ///   - zone: In which it is, where the line does not say.
    /// - Throws: ``CloudError`` `.invalidArguments`, with the reason in its details.
    public static func record(
        _ line: String, zone: String = RecordZone.defaultName
    ) throws(CloudError) -> Record {
        guard case .dictionary(let entries) = try PropertyValue(json: line, form: .plain) else {
            throw failure("It is no object.")
        }
        for key in entries.keys where !["name", "zone", "type", "parent", "fields"].contains(key.rawValue) {
            throw failure("A key is none of name, zone, type, parent and fields.", at: key.rawValue)
        }
        guard let name = try text("name", entries), let type = try text("type", entries) else {
            throw failure("A record has a name and a type.")
        }
        var record = Record(RecordID(name, zone: try text("zone", entries) ?? zone), type: type)
        record.parent = try text("parent", entries)
        switch entries["fields"] {
        case nil: break
        case .dictionary(let fields):
            for (name, value) in fields { record.fields[name.rawValue] = try RecordValue(json: value, name.rawValue) }
        default: throw failure("Fields are an object.", at: "fields")
        }
        return record
    }

    private static func text(
        _ key: ItemName, _ entries: [ItemName: PropertyValue]
    ) throws(CloudError) -> String? {
        switch entries[key] {
        case nil: return nil
        case .string(let text): return text
        default: throw failure("This is a text.", at: key.rawValue)
        }
    }

    static func failure(_ reason: String, at path: String? = nil) -> CloudError {
        var error = CloudError(.invalidArguments, "This is no record in JSON.", details: ["reason": reason])
        error.details["path"] = path
        return error
    }
}

extension RecordValue {
    /// As ``RecordJSON`` writes it.
    public var json: String {
        switch self {
        case .string(let value):
            var text = ""
            JSONText.write(value, to: &text)
            return text
        case .integer(let value): return String(value)
        case .real(let value): return Self.json(value)
        case .date(let value): return "{\"$date\":\"\(value)\"}"
        case .data(let value): return "{\"$data\":\"\(value.base64EncodedString())\"}"
        case .location(let value):
            var text = "{\"$location\":{\"latitude\":\(Self.json(value.latitude))"
            text += ",\"longitude\":\(Self.json(value.longitude))"
            if let altitude = value.altitude { text += ",\"altitude\":\(Self.json(altitude))" }
            return text + "}}"
        case .reference(let value):
            let record = RecordValue.string(value.record).json
            return "{\"$reference\":\(record)\(value.deletesSelf ? ",\"deletesSelf\":true" : "")}"
        case .encrypted(let value):
            return "{\"$encrypted\":{\"suite\":\(value.suite),\"key\":\"\(value.keyID.base64EncodedString())\","
                + "\"sealed\":\"\(value.sealed.base64EncodedString())\"}}"
        case .asset(let value):
            let depth = value.depth > 0 ? ",\"depth\":\(value.depth)" : ""
            return "{\"$asset\":{\"bytes\":\(value.length),\"id\":\"\(value.id)\"\(depth)}}"
        case .unknown(let value): return "{\"$unknown\":\"\(value.base64EncodedString())\"}"
        case .strings, .integers, .reals, .dates, .datas, .locations, .references, .assets:
            let elements = elements ?? []
            guard !elements.isEmpty else { return "{\"$list\":\"\(typeName)\"}" }
            return "[" + elements.map(\.json).joined(separator: ",") + "]"
        }
    }

    private static func json(_ real: Double) -> String {
        if real.isFinite { return real.description }
        if real.isNaN { return "{\"$real\":\"0x\(String(real.bitPattern, radix: 16))\"}" }
        return "{\"$real\":\"\(real)\"}"
    }

    /// The values of a list; nil: it is none.
    public var elements: [RecordValue]? {
        switch self {
        case .strings(let values): values.map { .string($0) }
        case .integers(let values): values.map { .integer($0) }
        case .reals(let values): values.map { .real($0) }
        case .dates(let values): values.map { .date($0) }
        case .datas(let values): values.map { .data($0) }
        case .locations(let values): values.map { .location($0) }
        case .references(let values): values.map { .reference($0) }
        case .assets(let values): values.map { .asset($0) }
        default: nil
        }
    }

    /// A list of these; nil: they are not all of one type, or none can be in a list, or there are none.
    public init?(list elements: [RecordValue]) {
        switch elements.first {
        case .string: self = .strings(elements.compactMap { if case .string(let value) = $0 { value } else { nil } })
        case .integer:
            self = .integers(elements.compactMap { if case .integer(let value) = $0 { value } else { nil } })
        case .real: self = .reals(elements.compactMap { if case .real(let value) = $0 { value } else { nil } })
        case .date: self = .dates(elements.compactMap { if case .date(let value) = $0 { value } else { nil } })
        case .data: self = .datas(elements.compactMap { if case .data(let value) = $0 { value } else { nil } })
        case .location:
            self = .locations(elements.compactMap { if case .location(let value) = $0 { value } else { nil } })
        case .reference:
            self = .references(elements.compactMap { if case .reference(let value) = $0 { value } else { nil } })
        case .asset:
            self = .assets(elements.compactMap { if case .asset(let value) = $0 { value } else { nil } })
        default: return nil
        }
        guard self.elements?.count == elements.count else { return nil }
    }

    /// An empty list of what is called so; nil: nothing is.
    init?(emptyList typeName: String) {
        let all: [RecordValue] = [
            .strings([]), .integers([]), .reals([]), .dates([]), .datas([]), .locations([]), .references([]),
            .assets([]),
        ]
        guard let found = all.first(where: { $0.typeName == typeName }) else { return nil }
        self = found
    }
}

extension RecordValue {
    /// A value as ``json`` writes it.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, with the reason in its details.
    public init(json text: String) throws(CloudError) {
        try self.init(json: PropertyValue(json: text, form: .plain), "")
    }

    init(json value: PropertyValue, _ path: String) throws(CloudError) {
        switch value {
        case .string(let value): self = .string(value)
        case .integer(let value): self = .integer(value)
        case .real(let value): self = .real(value)
        case .boolean(let value): self = .integer(value ? 1 : 0)
        case .array(let values):
            var elements: [RecordValue] = []
            for value in values { elements.append(try RecordValue(json: value, path)) }
            guard let list = RecordValue(list: elements) else {
                throw RecordJSON.failure(
                    "A list has elements of one type; an empty one is {\"$list\":\"strings\"}.", at: path)
            }
            self = list
        case .dictionary(let entries): self = try Self.special(entries, path)
        case .date, .data: throw RecordJSON.failure("It is no JSON.", at: path)
        }
    }

    private static func special(
        _ entries: [ItemName: PropertyValue], _ path: String
    ) throws(CloudError) -> RecordValue {
        if case .string(let record)? = entries["$reference"] {
            var reference = RecordReference(record)
            switch (entries["deletesSelf"], entries.count) {
            case (nil, 1): break
            case (.boolean(let deletes)?, 2): reference.deletesSelf = deletes
            default: throw RecordJSON.failure("A reference has a record's name, and deletesSelf.", at: path)
            }
            return .reference(reference)
        }
        guard entries.count == 1, let entry = entries.first else {
            throw RecordJSON.failure("An object is none of the types that begin with $.", at: path)
        }
        switch (entry.key, entry.value) {
        case ("$date", .string(let text)): if let date = RecordDate(text) { return .date(date) }
        case ("$data", .string(let text)): if let data = Data(base64Encoded: text) { return .data(data) }
        case ("$unknown", .string(let text)): if let data = Data(base64Encoded: text) { return .unknown(data) }
        case ("$list", .string(let text)): if let list = RecordValue(emptyList: text) { return list }
        case ("$real", .string): if let real = real(entry.value, isAlone: true) { return .real(real) }
        case ("$location", .dictionary(let place)):
            let altitude = place["altitude"].map { real($0) }
            guard let latitude = place["latitude"].flatMap({ real($0) }),
                let longitude = place["longitude"].flatMap({ real($0) }), altitude.map({ $0 != nil }) ?? true
            else { break }
            return .location(
                RecordLocation(latitude: latitude, longitude: longitude, altitude: altitude.flatMap { $0 }))
        case ("$asset", .dictionary(let asset)):
            guard case .integer(let bytes)? = asset["bytes"], let length = UInt64(exactly: bytes),
                case .string(let id)? = asset["id"]
            else { break }
            var depth: UInt32 = 0
            switch asset["depth"] {
            case nil: break
            case .integer(let levels)? where UInt32(exactly: levels) != nil: depth = UInt32(levels)
            default: throw RecordJSON.failure("The depth of an asset is a number.", at: path)
            }
            if let asset = RecordAsset(length: length, id: id, depth: depth) { return .asset(asset) }
        case ("$encrypted", .dictionary(let sealed)):
            guard case .integer(let suite)? = sealed["suite"], let suite = UInt32(exactly: suite),
                case .string(let key)? = sealed["key"], let keyID = Data(base64Encoded: key),
                case .string(let text)? = sealed["sealed"], let bytes = Data(base64Encoded: text)
            else { break }
            return .encrypted(EncryptedRecordValue(suite: suite, keyID: keyID, sealed: bytes))
        default: throw RecordJSON.failure("An object is none of the types that begin with $.", at: path)
        }
        throw RecordJSON.failure("What is in \(entry.key) is no such value.", at: path)
    }

    /// - Parameter isAlone: The text that `$real` has.
    private static func real(_ value: PropertyValue, isAlone: Bool = false) -> Double? {
        switch value {
        case .real(let value): return value
        case .integer(let value): return Double(exactly: value)
        case .string(let text) where isAlone:
            if text.hasPrefix("0x") { return UInt64(text.dropFirst(2), radix: 16).map { Double(bitPattern: $0) } }
            return Double(text)
        case .dictionary(let entries): return entries["$real"].flatMap { real($0, isAlone: true) }
        default: return nil
        }
    }
}
