internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A database or one of its zones, within a group's transaction: its items opened.
final class RecordScope {
    let scope: ScopeName
    let transaction: any HandlerTransaction
    private let keys: OwnerKeys
    private let digestKeys: DigestKeys
    let rows: ZoneRows
    /// The epochs, each with how far it and what there was before are the same.
    private var epochs: [ChangeToken]?
    typealias Quarantine = (FeedItem, ScopeName, any HandlerTransaction) throws -> Void
    private let quarantine: Quarantine

    /// - Parameter quarantine: Takes what does not open out of the scope.
    init(
        scope: ScopeName, transaction: any HandlerTransaction, keys: OwnerKeys, digestKeys: DigestKeys,
        quarantine: @escaping Quarantine
    ) {
        self.scope = scope
        self.transaction = transaction
        self.keys = keys
        self.digestKeys = digestKeys
        self.quarantine = quarantine
        rows = ZoneRows(scope, in: transaction)
    }

    func head() throws -> ScopeHead { try transaction.head(scope) }

    /// The database that the zone is of: what is of a public one as a whole lies with its only zone, in one partition.
    /// Containers have no slash in their names.
    var database: ScopeName {
        scope.owner.isApp ? scope : ScopeName(scope.owner, ItemName(String(scope.path.rawValue.prefix { $0 != "/" })))
    }

    // MARK: Life

    /// What the scope's metadata begin with.
    private enum Mark {
        /// The sealed digest key follows.
        static let alive: UInt8 = 1
        /// The zone was deleted, and its records are being removed.
        static let ended: UInt8 = 0
    }

    /// Whether it was ever made, and not deleted since.
    func isAlive() throws -> Bool { try Self.digestKey(in: head().metadata) != nil }

    /// - Returns: The sealed digest key; nil: the scope is not alive.
    private static func digestKey(in metadata: [UInt8]) -> ArraySlice<UInt8>? {
        metadata.first == Mark.alive ? metadata.dropFirst() : nil
    }

    /// Whether nothing has moved since the service was restored.
    func isAsRestored() throws -> Bool {
        let head = try head()
        return head.token.sequence <= head.epochStart
    }

    /// Whether it was never made.
    func isNew() throws -> Bool { try head().metadata.isEmpty }

    func end() throws { try transaction.setMetadata(scope, [Mark.ended]) }

    // MARK: Keys

    /// Opens what is sealed, also off the loop.
    func opener() throws -> RecordOpener {
        RecordOpener(scope: scope, key: try keys.existingKey(of: scope.owner, in: transaction))
    }

    /// Makes the owner's key if need be: a write.
    func seal(_ bytes: [UInt8], as place: RecordOpener.Place) throws -> [UInt8] {
        try keys.key(of: scope.owner, in: transaction).seal(bytes, boundTo: place.context(in: scope)).bytes
    }

    /// By which words of an index are known again. Makes the owner's key if need be: a write.
    func madeWords() throws -> SipHash {
        RecordOpener(scope: scope, key: try keys.key(of: scope.owner, in: transaction)).words
    }

    /// What its digests are made with; nil: it was never written to.
    ///
    /// - Throws: ``DamagedKey``.
    func digestKey() throws -> [UInt8]? {
        guard let sealed = try Self.digestKey(in: head().metadata) else { return nil }
        let opener = try opener()
        return try digestKeys.key(of: scope, sealed: Array(sealed)) {
            do { return try opener.open(sealed, as: .digestKey) } catch { throw DamagedKey(scope: scope) }
        }
    }

    func hasDamagedKey() throws -> Bool {
        do {
            _ = try digestKey()
            return false
        } catch is DamagedKey { return true }
    }

    /// What it had was made with another one, and is to be made anew.
    func renewDigestKey() throws {
        try transaction.setMetadata(scope, [Mark.alive] + seal(DigestKeys.random(), as: .digestKey))
    }

    /// The same; makes it at the first write.
    func madeDigestKey() throws -> [UInt8] {
        if let key = try digestKey() { return key }
        let key = DigestKeys.random()
        try transaction.setMetadata(scope, [Mark.alive] + seal(key, as: .digestKey))
        return key
    }

    // MARK: Items

    /// Bytes that are opened in the time of a row.
    private static let bytesPerRow = 1024

    /// Charges the caller for what is opened or sealed.
    func charge(bytes: Int) { transaction.charge(rows: bytes / Self.bytesPerRow) }

    /// A record as it is stored, and what it counts. One that does not open goes to the quarantine, and is not there.
    ///
    /// - Parameter room: What the request may touch.
    /// - Throws: ``CloudError`` `.limitExceeded`: the request has touched too much.
    /// - Returns: What readers of the feed see of it, too; where there never was one, nothing.
    func record(
        _ name: ItemName, within room: RequestRoom
    ) throws -> (state: SaveRule.State, counted: Int, showing: ItemShowing) {
        guard let item = try transaction.item(scope, name) else { return (SaveRule.State(), 0, .nothing) }
        let parts = StoredRecord.parts(of: item.body)
        charge(bytes: item.body.count)
        let isSince = try item.sequence > head().epochStart && parts?.isOffered != true
        // Of a deletion that is damaged nothing is lost but by which saves it is known again, and who did it.
        guard !item.deleted else {
            let deletion = try parts.flatMap { try self.deletion(name, $0.sealed) }
            var state = SaveRule.State(former: parts?.former ?? [], deletion: deletion?.modified, isSince: isSince)
            state.isUnshown = try parts?.isOffered == false && isUnshown(item, at: deletion?.modified)
            return (state, 0, item.showing)
        }
        let opener = try opener()
        let record = try parts.flatMap { try opener.body(of: name, $0.sealed) }
            .flatMap { try? WireRecord(serializedBytes: $0) }
        try room.take(record, bytes: item.body.count)
        guard let record, let parts else {
            try quarantine(item, scope, transaction)
            return (SaveRule.State(), 0, .nothing)
        }
        var state = SaveRule.State(record: record, former: parts.former, isSince: isSince)
        state.isUnshown = try !parts.isOffered && isUnshown(item, at: record.modified)
        return (state, item.size, item.showing)
    }

    /// Whether it was done, by its stamp, before the epoch began that it was written in.
    private func isUnshown(_ item: FeedItem, at stamp: WireRecordStamp?) throws -> Bool {
        guard let stamp else { return false }
        let epochs = try self.epochs ?? knownEpochs()
        self.epochs = epochs
        return epochs.contains {
            item.sequence > $0.sequence && stamp.time < Feed.beginning(ofEpoch: $0.epoch).nanoseconds
        }
    }

    private func knownEpochs() throws -> [ChangeToken] {
        let present = ChangeToken(
            epoch: try transaction.position(ofPartition: scope.partition).epoch, sequence: try head().epochStart)
        return try transaction.partings(in: scope.partition) + [present]
    }

    /// Whether there is a record of the name that none of the circles may read. It is not even read: nothing that the
    /// request costs tells how large it is.
    func isHidden(_ name: ItemName, from circles: [ReadingCircle]) throws -> Bool {
        guard try !CircleRows.hold(name, circles, in: scope, transaction),
            try transaction.share(scope, name)?.isLive == true
        else { return false }
        // One that is not there is read then.
        transaction.charge(rows: 1)
        return true
    }

    /// What is kept of a deletion.
    private func deletion(_ name: ItemName, _ sealed: ArraySlice<UInt8>) throws -> WireRecord? {
        guard !sealed.isEmpty, let opened = try? opener().open(sealed, as: .item(name)) else { return nil }
        return try? WireRecord(serializedBytes: opened)
    }

    /// A zone of the database; nil: there is none of that name, or it does not open, and is in quarantine from now on.
    func zone(_ name: ItemName) throws -> WireRecordZone? {
        guard let item = try transaction.item(scope, name), !item.deleted else { return nil }
        let opener = try opener()
        let body = try StoredZone.parts(of: item.body).flatMap { try opener.body(of: name, $0.sealed) }
        if let body, let zone = try? WireRecordZone(serializedBytes: body) { return zone }
        try quarantine(item, scope, transaction)
        return nil
    }

    /// The id of the zone that was deleted last under the name, as long as the feed tells of that.
    func formerZone(_ name: ItemName) throws -> String? {
        guard let item = try transaction.item(scope, name), item.deleted else { return nil }
        return StoredZone.parts(of: item.body)?.id
    }
}

/// Opens what one database or zone has sealed.
struct RecordOpener: Sendable {
    let scope: ScopeName
    /// Nil when nothing was ever sealed for the owner, or its key was destroyed.
    let key: OwnerKey?

    /// What sealed bytes are; they open only as that.
    enum Place {
        case item(ItemName)
        /// What a record was, and as the how manieth of its zone it is kept.
        case history(of: ItemName, Int64)
        case digestKey

        func context(in scope: ScopeName) -> [UInt8] {
            let start = [UInt8]("records/\(scope.owner.rawValue)/\(scope.path.rawValue)/".utf8)
            switch self {
            case .item(let name): return start + [UInt8]("item/".utf8) + [UInt8](name.utf8)
            case .history(let name, let number):
                return start + [UInt8]("history/\(number)/".utf8) + [UInt8](name.utf8)
            case .digestKey: return start + [UInt8]("digest".utf8)
            }
        }
    }

    func open(_ sealed: ArraySlice<UInt8>, as place: Place) throws(CloudError) -> [UInt8] {
        guard let key else { throw Self.keyIsGone }
        return try key.open(Sealed(bytes: Array(sealed)), boundTo: place.context(in: scope))
    }

    /// What a row has sealed; nil: it does not open.
    ///
    /// - Throws: ``keyIsGone``.
    func body(of name: ItemName, _ sealed: ArraySlice<UInt8>) throws(CloudError) -> [UInt8]? {
        guard key != nil else { throw Self.keyIsGone }
        return try? open(sealed, as: .item(name))
    }

    static let keyIsGone = CloudError(.internalError, "The account's key is gone, and what it sealed with it.")
}
