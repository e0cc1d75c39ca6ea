internal import Crypto
internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// One container within a group's transaction: its items opened, and the rows beside them.
final class Container {
    let scope: ScopeName
    let transaction: any HandlerTransaction
    /// What the operator says of it: it holds as long as nothing was written to it.
    let definition: ContainerDefinition
    private let keys: OwnerKeys
    private let digestKeys: DigestKeys
    /// Of names in ``ContainerRows``: the owner's, for containers alone.
    private var nameKey: [UInt8]?
    /// Bytes of items that were opened.
    private(set) var openedBytes = 0
    let rows: ContainerRows
    private let quarantine: (FeedItem, Container) throws -> Void

    /// - Parameter quarantine: Takes what does not open out of the container.
    init(
        scope: ScopeName, transaction: any HandlerTransaction, definition: ContainerDefinition, keys: OwnerKeys,
        digestKeys: DigestKeys, quarantine: @escaping (FeedItem, Container) throws -> Void
    ) {
        self.scope = scope
        self.transaction = transaction
        self.definition = definition
        self.keys = keys
        self.digestKeys = digestKeys
        self.quarantine = quarantine
        rows = ContainerRows(scope, in: transaction)
    }

    func head() throws -> ScopeHead { try transaction.head(scope) }

    // MARK: Keys

    /// Opens what is sealed, also off the loop.
    func opener() throws -> ContainerOpener {
        ContainerOpener(scope: scope, key: try keys.existingKey(of: scope.owner, in: transaction))
    }

    /// Makes the owner's key if need be: a write.
    private func ownerKey() throws -> OwnerKey { try keys.key(of: scope.owner, in: transaction) }

    func seal(_ bytes: [UInt8], as place: ContainerOpener.Place) throws -> [UInt8] {
        try ownerKey().seal(bytes, boundTo: place.context(in: scope)).bytes
    }

    /// What the container is, and what its digests are made with; nil: nothing was ever written to it.
    func setting() throws -> Setting? {
        let metadata = try head().metadata
        guard let first = metadata.first else { return nil }
        guard let rules = Rules(stored: first) else { throw Self.unknownRules }
        let opener = try opener()
        let key = try digestKeys.key(of: scope, sealed: metadata) {
            try opener.open(Array(metadata.dropFirst()), as: .digestKey)
        }
        return Setting(rules: rules, digestKey: key)
    }

    /// What the container is; before the first write: will be.
    func rules() throws -> Rules { try setting()?.rules ?? definedRules() }

    private func definedRules() throws(CloudError) -> Rules {
        guard let containerClass = definition.containerClass else { throw Self.unknownRules }
        return Rules(names: definition.foldsNames ? .folded : .bytes, containerClass: containerClass)
    }

    private static let unknownRules = CloudError(
        .incompatibleVersion, "The container is of a kind that this version does not know. Upgrade.")

    /// Whether its owner's key opens, and what is stored of the container itself is whole. Where it is not, nothing of it
    /// can be changed at this moment: what the service does by itself passes it over.
    var isReadable: Bool { (try? opener()) != nil && (try? rules()) != nil }

    /// The same; makes it at the first write.
    func madeSetting() throws -> Setting {
        if let setting = try setting() { return setting }
        let key = DigestKeys.random()
        let rules = try definedRules()
        try transaction.setMetadata(scope, [rules.stored] + seal(key, as: .digestKey))
        return Setting(rules: rules, digestKey: key)
    }

    struct Setting {
        var rules: Rules
        var digestKey: [UInt8]
    }

    /// What never changes of a container from its first write on.
    struct Rules: Hashable {
        /// How names clash.
        var names: DocumentNameRule
        var containerClass: ContainerClass

        init(names: DocumentNameRule, containerClass: ContainerClass) {
            self.names = names
            self.containerClass = containerClass
        }

        /// As ``stored``.
        init?(stored: UInt8) {
            guard let names = DocumentNameRule(rawValue: stored & 15),
                let containerClass = ContainerClass(number: stored >> 4)
            else { return nil }
            self.init(names: names, containerClass: containerClass)
        }

        /// The first byte of what is stored with the scope.
        var stored: UInt8 { names.rawValue | containerClass.number << 4 }
    }

    /// What stands for a name in a folder, by the container's rule: 16 bytes that tell nothing of it.
    func key(of name: [UInt8], by rule: DocumentNameRule) throws -> [UInt8] {
        let secret: [UInt8]
        if let nameKey { secret = nameKey } else { secret = try ownerKey().derived(for: "nephos document names") }
        nameKey = secret
        let code = HMAC<SHA256>.authenticationCode(for: rule.key(of: name), using: SymmetricKey(data: secret))
        return Array(code.prefix(16))
    }

    /// - Throws: ``CloudError`` `.permissionFailure`: the operator lets another app alone change the container.
    func requireChanged(by app: AppID) throws(CloudError) {
        guard !definition.isChanged(by: app) else { return }
        throw CloudError(
            .permissionFailure, "Another app alone changes this container. Read it, or ask the operator.",
            details: ["container": scope.path.rawValue])
    }

    /// How long what comes into the trash now stays there.
    func trashRetention(_ containerClass: ContainerClass) -> Duration {
        .seconds((definition.trashDays ?? containerClass.trashDays) * 24 * 3600)
    }

    /// How long former versions are kept.
    func versionRetention(_ containerClass: ContainerClass) -> Duration {
        .seconds((definition.versionDays ?? containerClass.versionDays) * 24 * 3600)
    }

    // MARK: Items

    /// Bytes of an item that are opened in the time of a row.
    private static let bytesPerRow = 1024

    /// - Returns: Nil: there is no such item, it was removed, or its row does not open. Such a row is moved to the quarantine.
    func item(_ id: DocumentID) throws -> WireDocumentItem? {
        guard let stored = try transaction.item(scope, id.name), !stored.deleted else { return nil }
        // It is opened, and if it changes, sealed and written anew.
        transaction.charge(rows: stored.body.count / Self.bytesPerRow)
        openedBytes += stored.body.count
        if let body = try opener().body(of: stored), let item = try? WireDocumentItem(serializedBytes: body) {
            return item
        }
        try quarantine(stored, self)
        return nil
    }

    /// The item's versions, the newest first. One that is damaged is left out.
    func versions(of id: DocumentID) throws -> [WireDocumentContent] {
        try rows.versions(of: id, limit: DocumentLimits.versionsMax + 1).compactMap { try open($0, of: id) }
    }

    /// When each was committed, the oldest first.
    func versionTimes(of id: DocumentID) throws -> [VersionRule.Version] { try rows.versionTimes(of: id) }

    /// - Returns: Nil: it is damaged.
    func open(_ version: ContainerRows.Version, of id: DocumentID) throws -> WireDocumentContent? {
        let opener = try opener()
        return try? WireDocumentContent(serializedBytes: opener.open(version.sealed, as: .version(id, version.id)))
    }

    /// - Returns: Nil: it is damaged.
    func open(_ rendition: ContainerRows.Rendition, of id: DocumentID) throws -> WireDocumentContent? {
        let opener = try opener()
        return try? WireDocumentContent(
            serializedBytes: opener.open(rendition.sealed, as: .rendition(id, rendition.version)))
    }

    /// Whether the id was ever used; nobody uses it again.
    func wasUsed(_ id: DocumentID) throws -> Bool {
        try transaction.item(scope, id.name) != nil || EndedRows.has(id, in: scope, transaction)
    }
}

/// Opens what one container has sealed.
struct ContainerOpener: Sendable {
    let scope: ScopeName
    /// Nil when nothing was ever sealed for the owner, or its key was destroyed.
    let key: OwnerKey?

    /// What sealed bytes are; they open only as that.
    enum Place {
        case item(ItemName)
        case version(DocumentID, [UInt8])
        case rendition(DocumentID, [UInt8])
        case link(DocumentID)
        case digestKey

        func context(in scope: ScopeName) -> [UInt8] {
            // Neither owners nor containers have a slash but that of an app's own.
            let start = [UInt8]("documents/\(scope.owner.rawValue)/\(scope.path.rawValue)/".utf8)
            switch self {
            case .item(let name): return start + [UInt8]("item/".utf8) + [UInt8](name.utf8)
            case .version(let item, let version): return start + [UInt8]("version/".utf8) + item.bytes + version
            case .rendition(let item, let version): return start + [UInt8]("rendition/".utf8) + item.bytes + version
            case .link(let link): return start + [UInt8]("link/".utf8) + link.bytes
            case .digestKey: return start + [UInt8]("digest".utf8)
            }
        }
    }

    private static let keyIsGone = CloudError(
        .internalError, "The account's key is gone, and what it sealed with it.")

    /// An item's row, opened; nil: it does not open.
    ///
    /// - Throws: ``CloudError``: without its key all of an account is gone.
    func body(of item: FeedItem) throws(CloudError) -> [UInt8]? {
        guard key != nil else { throw Self.keyIsGone }
        return try? open(item.body, as: .item(item.name))
    }

    func open(_ sealed: [UInt8], as place: Place) throws(CloudError) -> [UInt8] {
        guard let key else { throw Self.keyIsGone }
        return try key.open(Sealed(bytes: sealed), boundTo: place.context(in: scope))
    }
}
