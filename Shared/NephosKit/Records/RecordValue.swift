internal import NephosCore
public import NephosPredicates
internal import NephosWire
internal import SwiftProtobuf

public import struct Foundation.Data
public import struct Foundation.Date

/// A point in time as records keep it: nanoseconds since 1970, from the year 1677 to 2262.
public typealias RecordDate = PredicateDate

/// The value of a record's field.
///
/// An integer and a real are two types, and a list has elements of one type. A value that another release has stored,
/// and that this one does not know, is ``unknown(_:)`` and is kept as it is.
public enum RecordValue: Sendable {
    case string(String)
    case integer(Int64)
    case real(Double)
    case date(RecordDate)
    case data(Data)
    case location(RecordLocation)
    case reference(RecordReference)
    case strings([String])
    case integers([Int64])
    case reals([Double])
    case dates([RecordDate])
    case datas([Data])
    case locations([RecordLocation])
    case references([RecordReference])
    /// Bytes beside the record. Predicates cannot read them.
    case asset(RecordAsset)
    case assets([RecordAsset])
    /// A value encrypted by devices: neither the service nor a predicate can read it.
    case encrypted(EncryptedRecordValue)
    /// A kind that this release does not know, in its encoded form.
    case unknown(Data)
}

/// A place on the earth.
public struct RecordLocation: Hashable, Codable, Sendable {
    /// Degrees, -90 to 90, north is positive.
    public var latitude: Double
    /// Degrees, -180 to 180, east is positive.
    public var longitude: Double
    /// Metres; nil: not known.
    public var altitude: Double?

    /// A place.
    public init(latitude: Double, longitude: Double, altitude: Double? = nil) {
        self.latitude = latitude
        self.longitude = longitude
        self.altitude = altitude
    }
}

/// A reference to a record of the same zone, which need not exist.
public struct RecordReference: Hashable, Codable, Sendable {
    /// The other record's name.
    public var record: String
    /// Whether the record that has the reference is deleted together with the one that it names.
    public var deletesSelf: Bool

    /// A reference.
    public init(_ record: String, deletesSelf: Bool = false) {
        self.record = record
        self.deletesSelf = deletesSelf
    }
}

/// A value that devices have encrypted.
public struct EncryptedRecordValue: Hashable, Sendable {
    /// The algorithm; 1 is AES-256-GCM.
    public var suite: UInt32
    /// The id of the key, 1 to 64 bytes.
    public var keyID: Data
    /// The encrypted bytes.
    public var sealed: Data

    /// An encrypted value.
    public init(suite: UInt32 = 1, keyID: Data, sealed: Data) {
        self.suite = suite
        self.keyID = keyID
        self.sealed = sealed
    }
}

extension RecordValue: Hashable {
    /// Whether both are the same content: texts by their bytes, reals by their bits.
    public static func == (left: RecordValue, right: RecordValue) -> Bool { left.identity == right.identity }
    public func hash(into hasher: inout Hasher) { hasher.combine(identity) }

    private var identity: Data { (try? wire(named: "").serializedBytes()) ?? Data() }
}

extension RecordValue {
    /// The name of the type, as the command line and `--json` print it.
    public var typeName: String {
        switch self {
        case .string: "string"
        case .integer: "integer"
        case .real: "real"
        case .date: "date"
        case .data: "data"
        case .location: "location"
        case .reference: "reference"
        case .strings: "strings"
        case .integers: "integers"
        case .reals: "reals"
        case .dates: "dates"
        case .datas: "datas"
        case .locations: "locations"
        case .references: "references"
        case .asset: "asset"
        case .assets: "assets"
        case .encrypted: "encrypted"
        case .unknown: "unknown"
        }
    }
}

extension RecordValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral {
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .real(value) }
}

extension RecordDate {
    /// The date, to the nanosecond; at the ends of the range where it lies beyond them.
    public init(_ date: Date) {
        let seconds = date.timeIntervalSinceReferenceDate
        let whole = seconds.rounded(.down)
        guard let since2001 = Int64(exactly: whole) else {
            self.init(nanoseconds: seconds < 0 ? .min : .max)
            return
        }
        // The fraction apart: the product of the whole would be rounded to more than a nanosecond.
        let fraction = Int64(((seconds - whole) * 1e9).rounded())
        let (scaled, overflow) = (since2001 + Self.referenceSeconds).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, sumOverflow) = scaled.addingReportingOverflow(fraction)
        self.init(nanoseconds: overflow || sumOverflow ? (seconds < 0 ? .min : .max) : sum)
    }

    /// The date, as near as Foundation's has it.
    public var date: Date {
        let (seconds, fraction) = nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        return Date(
            timeIntervalSinceReferenceDate: Double(seconds - Self.referenceSeconds) + Double(fraction) / 1e9)
    }

    /// From 1970 to 2001.
    private static let referenceSeconds: Int64 = 978_307_200
}

// MARK: As it is sent

extension RecordValue {
    /// Nil: the field has no value.
    init?(_ field: WireRecordField) {
        switch field.value {
        case .string(let value): self = .string(value)
        case .integer(let value): self = .integer(value)
        case .real(let value): self = .real(value)
        case .date(let value): self = .date(RecordDate(nanoseconds: value))
        case .data(let value): self = .data(value)
        case .location(let value): self = .location(RecordLocation(value))
        case .reference(let value): self = .reference(RecordReference(value))
        case .strings(let list): self = .strings(list.values)
        case .integers(let list): self = .integers(list.values)
        case .reals(let list): self = .reals(list.values)
        case .dates(let list): self = .dates(list.values.map { RecordDate(nanoseconds: $0) })
        case .datas(let list): self = .datas(list.values)
        case .locations(let list): self = .locations(list.values.map { RecordLocation($0) })
        case .references(let list): self = .references(list.values.map { RecordReference($0) })
        case .encrypted(let value):
            self = .encrypted(
                EncryptedRecordValue(suite: value.suite, keyID: value.keyID, sealed: value.sealed))
        case .asset(let value): self = .asset(RecordAsset(value))
        case .assets(let list): self = .assets(list.values.map { RecordAsset($0) })
        case nil:
            guard !field.unknownFields.data.isEmpty else { return nil }
            self = .unknown(field.unknownFields.data)
        }
    }

    func wire(named name: String) -> WireRecordField {
        var field = WireRecordField()
        field.name = name
        switch self {
        case .string(let value): field.string = value
        case .integer(let value): field.integer = value
        case .real(let value): field.real = value
        case .date(let value): field.date = value.nanoseconds
        case .data(let value): field.data = value
        case .location(let value): field.location = value.wire
        case .reference(let value): field.reference = value.wire
        case .strings(let values): field.strings.values = values
        case .integers(let values): field.integers.values = values
        case .reals(let values): field.reals.values = values
        case .dates(let values): field.dates.values = values.map(\.nanoseconds)
        case .datas(let values): field.datas.values = values
        case .locations(let values): field.locations.values = values.map(\.wire)
        case .references(let values): field.references.values = values.map(\.wire)
        case .asset(let value): field.asset = value.wire
        case .assets(let values): field.assets.values = values.map(\.wire)
        case .encrypted(let value):
            field.encrypted.suite = value.suite
            field.encrypted.keyID = value.keyID
            field.encrypted.sealed = value.sealed
        case .unknown(let bytes):
            // It is what was told of a field whose name goes before it.
            if let read = try? WireRecordField(serializedBytes: bytes) {
                field = read
                field.name = name
            }
        }
        return field
    }
}

extension RecordLocation {
    init(_ wire: WireRecordLocation) {
        self.init(
            latitude: wire.latitude, longitude: wire.longitude, altitude: wire.hasAltitude ? wire.altitude : nil)
    }

    var wire: WireRecordLocation {
        var wire = WireRecordLocation()
        wire.latitude = latitude
        wire.longitude = longitude
        if let altitude { wire.altitude = altitude }
        return wire
    }
}

extension RecordReference {
    init(_ wire: WireRecordReference) { self.init(wire.record, deletesSelf: wire.deletesSelf) }

    var wire: WireRecordReference {
        var wire = WireRecordReference()
        wire.record = record
        wire.deletesSelf = deletesSelf
        return wire
    }
}
