/// Bounds of records and their zones. The same check runs on devices and in the service.
///
/// Numbers that CloudKit has are CloudKit's (CKRecord, CKReference, CKError.limitExceeded).
public enum RecordLimits {
    /// Bytes of a record as it is stored: its fields, with their names.
    public static let recordBytesMax = 1 << 20
    /// Records that one request saves, deletes or fetches.
    public static let itemsMax = 400
    /// Bytes of such a request.
    public static let requestBytesMax = 2 << 20
    /// Conditions on records that a request does not change.
    public static let conditionsMax = 100
    /// Bytes of a record's name, a zone's, a type's and a field's.
    public static let nameBytesMax = 255
    /// Bytes of records, as they are stored, that one request reads, changes or deletes, or that it reads to answer; a
    /// value of a list counts 4 bytes more. One record always can be.
    public static let touchedBytesMax = 8 << 20
    /// Fields of a record.
    public static let fieldsMax = 500
    /// Values in the lists of a record, together: a small one takes little room and much time.
    public static let listedMax = 50_000
    /// Bytes of an asset.
    public static let assetBytesMax: UInt64 = 1 << 30
    /// Different assets of a record; and those that one request makes records have and have no more.
    public static let assetsMax = 100
    public static let assetsOfRequestMax = 1000
    /// What an asset counts besides its bytes, for the row that it is found by.
    public static let assetRowBytes = 256
    /// References that delete their record with their target, to one target; and targets of one record.
    public static let cascadingReferencesMax = 750
    /// Such references that one request makes and removes.
    public static let referencesMax = 4000
    /// Records that are deleted with others because they refer to them, by one request.
    public static let cascadeMax = 2000
    /// Histories that a record's last save may not have followed; beyond, the oldest two are taken for one.
    public static let gapsMax = 8
    /// Parents above one another.
    public static let parentsMax = 50
    /// Records of a zone.
    public static let recordCountMax = 2_000_000
    /// Zones of a container.
    public static let zoneCountMax = 1000
    /// Bytes of what a device leaves with a change of a zone, to know its own last change again.
    public static let clientTokenBytesMax = 1024
    /// Devices of which that is kept, of a zone.
    public static let clientTokensMax = 100
    /// Former versions by which a record knows saves again that come late.
    public static let knownVersionsMax = 8
    /// What a record counts besides its name and its fields, in bytes: its rows.
    public static let rowBytes = 256
    /// What a reference counts besides, that is looked for from its target's side.
    public static let referenceBytes = 128
    /// Bytes of records in a reply; what does not fit is fetched.
    public static let replyBytesMax = 1 << 20

    /// Records that one call of a query looks at, and bytes of them: as often as the predicate goes over their texts, and
    /// 4 for each value of a list that it asks for, as often as it goes over lists.
    public static let examinedMax = 1000
    public static let examinedBytesMax = 1 << 20
    /// How often a predicate of a query may go over a record's texts.
    public static let textPassesMax = 64
    /// How often it may go over the values of a record's lists.
    public static let listPassesMax = 64

    /// Indexes of a database, and of one type in it.
    public static let indexesMax = 64
    public static let indexesOfTypeMax = 16
    /// Fields of an index, and of an order.
    public static let indexFieldsMax = 3
    /// Rows of one record in one index. Of a list that needs more it is only known that it has values.
    public static let indexRowsOfRecordMax = 100
    /// Texts of a record, and different words, that are indexed, and bytes of its texts. With more it is looked at whatever the words.
    public static let indexedWordsMax = 500
    public static let indexedTextBytesMax = 64 << 10
    /// What a row of an index counts besides its key and the record's name, in bytes.
    public static let indexRowBytes = 32
    /// Rows of indexes that one request makes and removes. One record always can be.
    public static let indexRowsMax = 4400
    /// Rows of indexes that one call of a query reads.
    public static let indexRowsReadMax = 4000
    /// Records that one call of a query puts in order, and bytes of them, as for ``examinedBytesMax``.
    public static let sortedMax = 1000
    public static let sortedBytesMax = 8 << 20
    /// Records of a zone in which a query looks at all where no index serves it.
    public static let scannedZoneMax = 10_000

    /// Types of a public database of which it is said by itself who may do what.
    public static let roleTypesMax = 200

    /// What was overwritten by force is kept for so long.
    public static let historyRetention: Duration = .seconds(30 * 24 * 3600)
    /// So many of a record, the newest; and of a zone in bytes.
    public static let historyOfRecordMax = 100
    public static let historyBytesMax = 8 << 20

    /// The zone that every database has.
    public static let defaultZone = "_defaultZone"

    /// Whether a record or a zone can be called so: 1 to 255 printable ASCII characters, the first no underscore
    /// (CKRecordID, CKRecordZone).
    public static func isName(_ name: String) -> Bool {
        (1...nameBytesMax).contains(name.utf8.count) && name.utf8.first != UInt8(ascii: "_")
            && name.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    /// Whether a type or a field can be called so: a letter, then letters, digits and underscores (CKRecord).
    public static func isKey(_ key: String) -> Bool {
        guard let first = key.utf8.first, isLetter(first), key.utf8.count <= nameBytesMax else { return false }
        return key.utf8.allSatisfy { isLetter($0) || (0x30...0x39).contains($0) || $0 == UInt8(ascii: "_") }
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7a).contains(byte | 0x20) }
}
