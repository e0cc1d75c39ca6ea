public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

public import struct Foundation.Data

/// Names a record within a database.
public struct RecordID: Hashable, Comparable, Codable, Sendable, CustomStringConvertible {
    /// 1 to 255 printable ASCII characters, the first not an underscore; unique in the zone.
    public var name: String
    /// The zone's name.
    public var zone: String

    /// Names a record.
    public init(_ name: String, zone: String = RecordZone.defaultName) {
        self.name = name
        self.zone = zone
    }

    /// A random name for a new record, unlike every other.
    public static func unique(zone: String = RecordZone.defaultName) -> RecordID {
        var generator = SystemRandomNumberGenerator()
        let id = DocumentID.random(using: &generator)
        return RecordID(RecordPlace.zoneID(id), zone: zone)
    }

    public static func < (left: RecordID, right: RecordID) -> Bool {
        (left.zone, left.name) < (right.zone, right.name)
    }

    public var description: String { zone == RecordZone.defaultName ? name : "\(zone)/\(name)" }
}

/// A zone of a database, as this device knows it.
public struct RecordZone: Hashable, Sendable {
    /// The zone that every database has.
    public static let defaultName = RecordLimits.defaultZone

    /// 1 to 255 printable ASCII characters, the first no underscore.
    public var name: String
    /// The zone's permanent id, different from former and later zones of the same name; nil: the server has not made it
    /// yet.
    public var id: String?
    /// The date of creation; nil: the server has not made it yet, or it is the default zone.
    public var created: RecordDate?
}

/// The account, device and app that saved a record, and the time. Informative only: no decision depends on it.
public struct RecordStamp: Hashable, Sendable {
    /// By the server's clock.
    public var time: RecordDate
    public var account: AccountID
    public var device: DeviceID
    public var app: AppID
}

/// A record: a value. To change one, change the fields of what was fetched, and save it.
///
/// A record keeps the change tag and fields with which it was fetched; so a save knows which fields changed since
/// (``changedFields``), and whether another device has saved the record meanwhile.
public struct Record: Sendable, Identifiable {
    /// Its name and zone.
    public let id: RecordID
    /// A letter, then letters, digits and underscores. Never changes.
    public let type: String
    /// The values, by field name: a letter, then letters, digits and underscores.
    public var fields: [String: RecordValue]
    /// The name of the record that this one belongs to, in the same zone; nil: none.
    public var parent: String?
    /// The id of this save of the record, 16 bytes; nil: it was never saved. A pending save already has its own.
    public internal(set) var changeTag: Data?
    /// The first save; nil: the server does not have the record yet.
    public internal(set) var created: RecordStamp?
    /// The last save; nil: the server does not have this save yet.
    public internal(set) var modified: RecordStamp?
    /// Whether a change of it is pending.
    public internal(set) var isPending = false
    /// As it was fetched; nil: it is new.
    var base: WireRecord?
    /// It was listed as refused, under this number; nil: it was not.
    var refused: Int64?
    /// Only these of its fields were fetched; nil: all. The others stay as they are when it is saved.
    var desired: Set<String>?

    /// A new record.
    public init(_ id: RecordID = .unique(), type: String, fields: [String: RecordValue] = [:], parent: String? = nil) {
        self.id = id
        self.type = type
        self.fields = fields
        self.parent = parent
    }

    /// A field's value; nil: the field is missing. Setting nil removes it.
    public subscript(_ field: String) -> RecordValue? {
        get { fields[field] }
        set { fields[field] = newValue }
    }

    /// A field's value as a Swift type; nil: the field is missing, or has another type. An integer can be read as a
    /// real; nothing else converts.
    ///
    ///     let title: String? = record["title"]
    public subscript<Value: RecordValueConvertible>(_ field: String) -> Value? {
        get { fields[field].flatMap { Value(recordValue: $0) } }
        set { fields[field] = newValue?.recordValue }
    }

    /// Names of the fields that changed since the record was fetched; for a new record, all.
    public var changedFields: [String] {
        let known = base.map { Self.fields(of: $0) } ?? [:]
        let isMeant = { (name: String) in desired?.contains(name) ?? true }
        return Set(known.keys.filter(isMeant)).union(fields.keys).filter { known[$0] != fields[$0] }.sorted()
    }

    /// Names of the fields whose assets have come as bytes, and not with the record.
    var broughtFields: [String] {
        fields.filter { $0.value.assets.contains { $0.source != nil } }.map(\.key).sorted()
    }

    /// Whether a save would change anything.
    public var isChanged: Bool { base == nil || !changedFields.isEmpty || parent != base?.parentName }
}

extension Record: Hashable {
    /// Whether both have the same content, and are the same save.
    public static func == (left: Record, right: Record) -> Bool {
        left.id == right.id && left.type == right.type && left.fields == right.fields && left.parent == right.parent
            && left.changeTag == right.changeTag
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(id)
        hasher.combine(changeTag)
    }
}

// MARK: As it is sent

extension Record {
    init(_ id: RecordID, _ wire: WireRecord, desired: Set<String>? = nil) {
        self.init(
            id, type: wire.type, fields: Self.fields(of: wire).filter { desired?.contains($0.key) ?? true },
            parent: wire.parentName)
        changeTag = wire.version.isEmpty ? nil : wire.version
        created = wire.hasCreated ? RecordStamp(wire.created) : nil
        modified = wire.hasModified ? RecordStamp(wire.modified) : nil
        base = wire
        self.desired = desired
    }

    /// As the app had it when it saved it: it can be saved again.
    ///
    /// - Parameter number: Under which it is listed as refused.
    init(_ id: RecordID, _ content: WireRecord, madeFrom ancestor: WireRecord?, refusedAs number: Int64) {
        self.init(id, type: content.type, fields: Self.fields(of: content), parent: content.parentName)
        refused = number
        guard let ancestor else { return }
        let known = Record(id, ancestor)
        (changeTag, created, modified, base) = (known.changeTag, known.created, known.modified, ancestor)
    }

    static func fields(of wire: WireRecord) -> [String: RecordValue] {
        Dictionary(wire.fields.compactMap { field in RecordValue(field).map { (field.name, $0) } }) { $1 }
    }

    /// All fields, in the order of their names' bytes.
    var wireFields: [WireRecordField] {
        fields.map { $1.wire(named: $0) }.sorted { ItemName($0.name) < ItemName($1.name) }
    }
}

extension WireRecord {
    var parentName: String? { parent.isEmpty ? nil : parent }
}

extension RecordStamp {
    init(_ wire: WireRecordStamp) {
        self.init(
            time: RecordDate(nanoseconds: wire.time), account: AccountID(wire.accountID),
            device: DeviceID(wire.deviceID), app: AppID(wire.appID))
    }
}
