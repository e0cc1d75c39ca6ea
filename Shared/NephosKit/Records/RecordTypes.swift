public import NephosCore
public import NephosPredicates

public import struct Foundation.Data

/// The result of a save if others have saved the record since it was fetched. The numbers are those of
/// `CKRecordSavePolicy`.
public enum RecordSavePolicy: Int, Sendable, Hashable {
    /// The save becomes a conflict (``RecordConflict``), unless both have the same content.
    case ifServerRecordUnchanged = 0
    /// Fields changed here are saved; the others stay as they are on the server.
    case changedKeys = 1
    /// All fields are saved; fields that this device does not know stay.
    case allKeys = 2
}

/// Where records are read.
public enum RecordSource: Sendable, Hashable {
    /// This device's copy, with pending changes applied: at once, also while offline. For a public database without a
    /// copy, the server.
    case local
    /// As ``local``, but never the server: without a copy, reading throws `.storeOutOfStep`.
    case localOnly
    /// The server's present state, without pending changes; also for a zone that was not downloaded yet.
    case server
}

/// A condition of a change on a record that it does not change.
public struct RecordCondition: Sendable, Hashable {
    /// The record's name, in the zone that is changed.
    public var id: RecordID
    /// Its change tag; nil: the record is missing.
    public var changeTag: Data?

    /// The record is unchanged since it was fetched.
    public static func unchanged(_ record: Record) -> RecordCondition {
        RecordCondition(id: record.id, changeTag: record.changeTag)
    }

    /// The record is missing.
    public static func absent(_ id: RecordID) -> RecordCondition { RecordCondition(id: id, changeTag: nil) }
}

/// A query: a type, a predicate, and an order.
public struct RecordQuery: Sendable, Hashable {
    /// The record type; nil: all.
    public var type: String?
    /// The condition on records; nil: all. See `docs/predicates.md`; fields that every record has are `_recordName`,
    /// `_creationDate`, `_modificationDate`, `_creator`, `_modifier`, `_changeTag` and `_parent`.
    public var predicate: QueryPredicate?
    /// The sort fields: the first decides, ties are ordered by the next, and at last by record name. None: by record
    /// name.
    public var sort: [RecordSort]
    /// Maximum number of records; nil: all.
    public var limit: Int?
    /// The fields to read; nil: all. Saving such a record leaves its other fields as they are.
    public var desiredFields: Set<String>?
    /// Whether the server may read the whole zone if no index serves the query, in as many calls as needed. Use it
    /// during development: with an index, the cost depends only on the records found. This device's copy needs no
    /// index.
    public var allowsScan = false

    /// A query.
    public init(
        type: String? = nil, _ predicate: QueryPredicate? = nil, sort: [RecordSort] = [], limit: Int? = nil,
        desiredFields: Set<String>? = nil
    ) {
        self.type = type
        self.predicate = predicate
        self.sort = sort
        self.limit = limit
        self.desiredFields = desiredFields
    }
}

/// A field by which records are sorted.
public struct RecordSort: Sendable, Hashable {
    /// A field's name, or one that every record has, such as `_modificationDate`.
    public var field: String
    public var ascending: Bool
    /// Whether case is ignored in texts.
    public var ignoresCase: Bool
    /// Whether accents are ignored in texts.
    public var ignoresAccents: Bool

    /// An order.
    public init(
        _ field: String, ascending: Bool = true, ignoresCase: Bool = false, ignoresAccents: Bool = false
    ) {
        self.field = field
        self.ascending = ascending
        self.ignoresCase = ignoresCase
        self.ignoresAccents = ignoresAccents
    }
}

/// Two changes of one record, on this device and another, neither of which had seen the other. It stays until it is
/// resolved (``RecordConflicts/resolve(_:keeping:)``); until then the record is the server's.
public struct RecordConflict: Sendable, Hashable, Identifiable {
    /// Of the record.
    public var id: RecordID
    /// The version that both changed; nil: the record was new, or this device no longer has that version.
    public var ancestor: Record?
    /// The server's record; nil: it was deleted there.
    public var server: Record?
    /// This device's record; nil: it was deleted here.
    public var client: Record?
    /// When the conflict was found, by this device's clock.
    public var found: Timestamp
    /// The reason why the server did not accept the change.
    public var error: CloudError
    /// Names it among all that this home has had.
    package let number: Int64
}

/// The resolution of a conflict.
public enum RecordResolution: Sendable {
    /// Keep the server's record: this device's change is dropped.
    case server
    /// Keep this device's change: it replaces the server's record.
    case client
    /// Save this record instead, merged from both.
    case merged(Record)
}

/// A save or deletion that the server rejected for another reason than a conflict. It is listed until it is dismissed
/// or repeated: saved from ``record``, with the same content, or by a save based on it. One record may have several.
public struct RefusedRecord: Sendable, Hashable, Identifiable {
    /// Of the record.
    public var id: RecordID
    /// The record that was to be saved; nil: it was to be deleted.
    public var record: Record?
    /// When it was rejected, by this device's clock.
    public var refused: Timestamp
    /// The reason, and what to do.
    public var error: CloudError
    /// Names it among all that the device has been refused.
    package let number: Int64
}

/// A notification that records of a zone changed from outside. Read the records for their present content.
public struct RecordChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// The zone's name.
    public var zone: String
    /// Saved records.
    public var changed: [RecordID] = []
    /// Deleted records.
    public var deleted: [RecordID] = []
    /// The types of deleted records, as far as the server has sent them.
    public var deletedTypes: [RecordID: String] = [:]
    /// Too much changed to list: read everything again.
    public var isAll = false
    /// Why a change was rejected; nil: none was.
    public var error: CloudError?
}

/// A notification that zones of a database changed from outside.
public struct RecordZoneChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// Names of zones that were created, or created again.
    public var changed: [String] = []
    /// Names of zones that were deleted with all their records.
    public var deleted: [String] = []
    /// Too much changed to list: read everything again.
    public var isAll = false
}
