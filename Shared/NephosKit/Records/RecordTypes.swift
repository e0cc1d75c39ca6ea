public import NephosCore
public import NephosPredicates

public import struct Foundation.Data

/// What becomes of a save where the record has been saved by others since it was fetched. The numbers are those of
/// `CKRecordSavePolicy`.
public enum RecordSavePolicy: Int, Sendable, Hashable {
    /// It becomes a conflict (``RecordConflict``), unless both have the same content.
    case ifServerRecordUnchanged = 0
    /// The fields that were changed here are saved, and the others stay as they are on the server.
    case changedKeys = 1
    /// All fields are saved; those that this device does not know stay.
    case allKeys = 2
}

/// Where records are read.
public enum RecordSource: Sendable, Hashable {
    /// This device's copy, with what waits to be sent: at once, also while offline. Of a public database of which there
    /// is none the server is asked.
    case local
    /// As ``local``, but nobody is asked: where there is no copy, reading is refused with `.storeOutOfStep`.
    case localOnly
    /// The server, as it is now, without what waits here; also of a zone that was not downloaded yet.
    case server
}

/// What a change takes for granted of a record that it does not touch.
public struct RecordCondition: Sendable, Hashable {
    /// The record's name, in the zone that is changed.
    public var id: RecordID
    /// Its change tag; nil: there is no such record.
    public var changeTag: Data?

    /// The record is as it was fetched.
    public static func unchanged(_ record: Record) -> RecordCondition {
        RecordCondition(id: record.id, changeTag: record.changeTag)
    }

    /// There is no such record.
    public static func absent(_ id: RecordID) -> RecordCondition { RecordCondition(id: id, changeTag: nil) }
}

/// Which records are meant, in which order.
public struct RecordQuery: Sendable, Hashable {
    /// Of this type; nil: of all.
    public var type: String?
    /// Which of them; nil: all. See `docs/predicates.md`; fields that every record has are `_recordName`,
    /// `_creationDate`, `_modificationDate`, `_creator`, `_modifier`, `_changeTag` and `_parent`.
    public var predicate: QueryPredicate?
    /// The first decides; where it finds two alike the next, and at last their names. None: by their names.
    public var sort: [RecordSort]
    /// So many at most; nil: all.
    public var limit: Int?
    /// Only these fields of each; nil: all. A record that is saved so leaves its others as they are.
    public var desiredFields: Set<String>?
    /// The server goes through the whole zone where no index serves the query, however many calls that takes. It is meant
    /// for development: with an index the same costs what is found. This device's copy needs none.
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

/// By which field records come in order.
public struct RecordSort: Sendable, Hashable {
    /// A field's name, or one that every record has, such as `_modificationDate`.
    public var field: String
    public var ascending: Bool
    /// Capitals do not count in texts.
    public var ignoresCase: Bool
    /// Accents do not count in texts.
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

/// What was saved on this device and on another without knowing of each other. It stays until it is resolved
/// (``RecordConflicts/resolve(_:keeping:)``); until then the record is as the server has it.
public struct RecordConflict: Sendable, Hashable, Identifiable {
    /// Of the record.
    public var id: RecordID
    /// What both were made from; nil: it was new, or this device does not have that any more.
    public var ancestor: Record?
    /// What the server has; nil: it was deleted there.
    public var server: Record?
    /// What was saved here; nil: it was deleted here.
    public var client: Record?
    /// When it was found, by this device's clock.
    public var found: Timestamp
    /// Why the server did not take it.
    public var error: CloudError
    /// Names it among all that this home has had.
    package let number: Int64
}

/// How a conflict ends.
public enum RecordResolution: Sendable {
    /// With what the server has: what was saved here is dropped.
    case server
    /// With what was saved here, in the place of what the server has.
    case client
    /// With this: both, merged.
    case merged(Record)
}

/// A save or deletion that the server refused, for a reason that is no conflict. It is listed until it is dismissed, or
/// done again: saved from ``record``, with the same content, or over it. Of one record there may be several.
public struct RefusedRecord: Sendable, Hashable, Identifiable {
    /// Of the record.
    public var id: RecordID
    /// What was to be saved; nil: it was to be deleted.
    public var record: Record?
    /// When, by this device's clock.
    public var refused: Timestamp
    /// Why, with what to do.
    public var error: CloudError
    /// Names it among all that the device has been refused.
    package let number: Int64
}

/// What an app is told when records of a zone change from outside: as they are by now, read them.
public struct RecordChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// The zone's name.
    public var zone: String
    /// Saved.
    public var changed: [RecordID] = []
    /// Deleted.
    public var deleted: [RecordID] = []
    /// Of those: of which type they were, as far as the server has told.
    public var deletedTypes: [RecordID: String] = [:]
    /// So much that it is not listed: look at all.
    public var isAll = false
    /// Why something was refused; nil: nothing was.
    public var error: CloudError?
}

/// What an app is told when a database's zones change from outside.
public struct RecordZoneChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// Names of zones that have come, or were made anew.
    public var changed: [String] = []
    /// Names of zones that are gone, with all that was in them.
    public var deleted: [String] = []
    /// So much that it is not listed: look at all.
    public var isAll = false
}
