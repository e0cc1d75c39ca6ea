internal import Foundation
internal import NephosCore
internal import NephosKit
internal import NephosPropertyLists

/// A record as the pages have it.
struct RecordRow: Encodable {
    struct Stamp: Encodable {
        var time: Int64
        var deviceName: String?
        /// Its id.
        var account: String?
    }

    /// Characters of a value in a list.
    private static let shownMax = 200

    var name: String
    var zone: String
    var type: String
    var parent: String?
    /// Names this save of the record; nil: it was never saved.
    var changeTag: String?
    var created: Stamp?
    var modified: Stamp?
    /// A change of it is not on the server yet.
    var isPending: Bool?
    var fields: [RecordField]

    /// - Parameters:
    ///   - isShort: Long values are cut.
    ///   - devices: Names of devices.
    init(_ record: Record, isShort: Bool = false, devices: [DeviceID: String] = [:]) {
        func stamp(_ stamp: RecordStamp?) -> Stamp? {
            stamp.map { stamp in
                Stamp(
                    time: stamp.time.milliseconds, deviceName: devices[stamp.device],
                    account: isShort ? nil : stamp.account.rawValue)
            }
        }
        (name, zone, type, parent) = (record.id.name, record.id.zone, record.type, record.parent)
        changeTag = record.changeTag?.base64EncodedString()
        (created, modified) = (stamp(record.created), stamp(record.modified))
        isPending = record.isPending ? true : nil
        fields = record.fields.sorted { $0.key < $1.key }.map { field in
            RecordField(field.key, field.value, shownMax: isShort ? Self.shownMax : .max)
        }
    }
}

/// A field as the pages have it: its type as ``RecordValue/typeName`` has it, and a text.
struct RecordField: Encodable {
    var name: String
    var type: String
    /// Nil: the page cannot show it.
    var value: String?
    /// The value goes on.
    var isCut: Bool?
    /// Bytes of data, assets and encrypted values.
    var size: UInt64?
    /// Elements of a list.
    var count: Int?
    /// Of a reference: the record is deleted together with the one that it names.
    var deletesSelf: Bool?

    init(_ name: String, _ field: RecordValue, shownMax: Int) {
        (self.name, type, count) = (name, field.typeName, field.elements?.count)
        switch field {
        case .data(let data): size = UInt64(data.count)
        case .asset, .assets: size = field.assets.reduce(0) { $0 + $1.length }
        case .encrypted(let encrypted): size = UInt64(encrypted.sealed.count)
        case .unknown(let data): size = UInt64(data.count)
        case .reference(let reference): deletesSelf = reference.deletesSelf ? true : nil
        default: break
        }
        guard let text = TypedText(field)?.text else { return }
        isCut = text.utf8.count > shownMax ? true : nil
        value = isCut == nil ? text : String(text.prefix(shownMax))
    }
}

extension TypedText {
    /// - Returns: Nil: it is an asset or another value that is no text.
    init?(_ field: RecordValue) {
        let type = field.typeName
        switch field {
        case .string(let value): self.init(type: type, text: value)
        case .integer(let value): self.init(type: type, text: "\(value)")
        case .real(let value): self.init(type: type, text: "\(value)")
        case .date(let value): self.init(type: type, text: "\(value)")
        case .data(let value): self.init(type: type, text: value.base64EncodedString())
        case .reference(let value): self.init(type: type, text: value.record)
        case .location(let value):
            let parts = [value.latitude, value.longitude] + (value.altitude.map { [$0] } ?? [])
            self.init(type: type, text: parts.map { "\($0)" }.joined(separator: ", "))
        case .strings, .dates, .datas, .references, .locations, .integers, .reals:
            let elements = field.elements ?? []
            // An element that is more than its text is written as an export has it.
            let isExact = elements.allSatisfy { element in
                if case .reference(let value) = element { !value.deletesSelf } else { true }
            }
            let texts = elements.compactMap { element in
                isExact ? TypedText(element)?.elementJSON : element.json
            }
            self.init(type: type, text: "[\(texts.joined(separator: ", "))]")
        case .asset, .assets, .encrypted, .unknown: return nil
        }
    }

    private var elementJSON: String {
        if type == "integer" || type == "real" { return text }
        var json = ""
        JSONText.write(text, to: &json)
        return json
    }

    /// - Throws: ``CloudError`` `.invalidArguments` when the text is not of the type.
    var fieldValue: RecordValue {
        get throws(CloudError) {
            let found: RecordValue? =
                switch type {
                case "string": .string(text)
                case "integer": Int64(text).map { .integer($0) }
                case "real": Double(text).map { .real($0) }
                case "date": RecordDate(text).map { .date($0) }
                case "data": Data(base64Encoded: text).map { .data($0) }
                case "reference": text.isEmpty ? nil : .reference(RecordReference(text))
                case "location": Self.location(text).map { .location($0) }
                default: try list
                }
            guard let found, found.typeName == type else {
                throw CloudError(.invalidArguments, "The value is not of this type.", details: ["type": type])
            }
            return found
        }
    }

    private static func location(_ text: String) -> RecordLocation? {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false)
            .map { Double($0.trimmingCharacters(in: .whitespaces)) }
        let numbers = parts.compactMap { $0 }
        guard numbers.count == parts.count, (2...3).contains(numbers.count) else { return nil }
        return RecordLocation(
            latitude: numbers[0], longitude: numbers[1], altitude: numbers.count == 3 ? numbers[2] : nil)
    }

    private var list: RecordValue? {
        get throws(CloudError) {
            guard type.hasSuffix("s"), case .array(let values) = try PropertyValue(json: text, form: .plain) else {
                return nil
            }
            guard !values.isEmpty else { return try RecordValue(json: "{\"$list\":\"\(type)\"}") }
            var elements: [RecordValue] = []
            for value in values {
                let text: String
                switch value {
                case .string(let value): text = value
                case .integer(let value): text = "\(value)"
                case .real(let value): text = "\(value)"
                default: return try RecordValue(json: self.text)
                }
                elements.append(try TypedText(type: String(type.dropLast()), text: text).fieldValue)
            }
            return RecordValue(list: elements)
        }
    }
}
