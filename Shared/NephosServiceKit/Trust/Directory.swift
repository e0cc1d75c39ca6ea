internal import NephosBus
public import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// What a service knows of identity's directory and heeds at its doors by
/// itself: who is locked out, which accounts are withheld, what apps may use,
/// whose signatures count.
///
/// It comes with identity's events, and is kept in the database, so that a
/// service that starts alone refuses whom it refused before.
struct Directory {
    private(set) var ended: [DeviceID: DirectoryFact.Ending] = [:]
    /// Those that are not active.
    private var standings: [AccountID: (standing: DirectoryFact.Standing, version: UInt64)] = [:]
    private var apps: [AppID: Entitlements] = [:]
    private var containers: [ItemName: ContainerDefinition] = [:]
    private(set) var tokenKeys: [String: DirectoryFact.TokenKey] = [:]
    /// Of apps, for whoever has no account.
    private(set) var endedAppTokens: Set<String> = []

    mutating func learn(_ fact: DirectoryFact) {
        switch fact {
        case .ended(let device, let ending): ended[device] = ending
        case .forgotten(let device): ended[device] = nil
        case .account(let account, let standing, let version):
            if let known = standings[account],
                DirectoryFact.account(account, known.standing, version: known.version).outweighs(fact)
            {
                return
            }
            standings[account] = standing == .active ? nil : (standing, version)
        case .app(let app, let entitlements):
            if let known = apps[app], DirectoryFact.app(app, known).outweighs(fact) { return }
            apps[app] = entitlements
        case .container(let container, let definition):
            if let known = containers[container], DirectoryFact.container(container, known).outweighs(fact) { return }
            containers[container] = definition
        case .tokenKey(let key):
            if let known = tokenKeys[key.id], DirectoryFact.tokenKey(known).outweighs(fact) { return }
            tokenKeys[key.id] = key
        case .appTokenEnded(let token): endedAppTokens.insert(token)
        case .recall: break
        }
    }

    func standing(of account: AccountID) -> DirectoryFact.Standing { standings[account]?.standing ?? .active }

    func definition(of container: ItemName) -> ContainerDefinition { containers[container] ?? .standard }

    /// Whether the app may use the scope, as far as is known. Of one that was never heard of nothing bad is known.
    func serves(_ scope: ItemName, of service: ServiceName, to app: AppID) -> Bool {
        apps[app].map { $0.include(scope, of: service) } ?? true
    }

    /// The newer of what a token says and what is known here.
    ///
    /// - Parameter isNarrow: The token has less than its app: no more is in it later.
    func entitlements(of app: AppID, inToken: Entitlements, isNarrow: Bool = false) -> Entitlements {
        guard let known = apps[app], known.version > inToken.version else { return inToken }
        guard isNarrow else { return known }
        var narrow = inToken
        narrow.version = known.version
        narrow.capabilities.formIntersection(known.capabilities)
        narrow.containers.removeAll { !known.containers.contains($0) }
        return narrow
    }

    // MARK: Facts on the bus and on disk

    /// What an event says of the directory; nothing if it is of something else.
    static func items(in event: ServiceEvent) throws(CloudError) -> [FeedItem] {
        guard event.isOfDirectory, let notification = event.notification else { return [] }
        return try items(in: notification)
    }

    static func items(in notification: ServiceEvent.Notification) throws(CloudError) -> [FeedItem] {
        try notification.decoded().changes.map { FeedItem($0) }
    }
}

extension FeedItem {
    /// An item as it was told.
    init(_ change: WireChange) {
        self.init(
            name: ItemName(change.item), sequence: change.sequence, deleted: change.deleted, digest: .empty, size: 0,
            body: [UInt8](change.body))
    }
}

/// The directory's facts in the host's own tables.
extension Directory {
    static let migrations = [
        Migration(
            name: "host-002-directory",
            statements: [
                """
                CREATE TABLE directory_items (
                    item TEXT NOT NULL PRIMARY KEY,
                    body BLOB NOT NULL,
                    -- Milliseconds since 1970; 0: for good.
                    forget_at BIGINT NOT NULL
                )
                """,
                "CREATE INDEX directory_items_by_end ON directory_items (forget_at) WHERE forget_at > 0",
            ])
    ]

    /// How long it is remembered that a device or an account has ended: far
    /// longer than any access token lives, after which identity gives it no other.
    static let endingRetention: Duration = .seconds(30 * 24 * 3600)

    private static let select = SQL("SELECT item, body FROM directory_items ORDER BY item")
    private static let upsert = SQL(
        """
        INSERT INTO directory_items (item, body, forget_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (item) DO UPDATE SET body = excluded.body, forget_at = excluded.forget_at
        """)
    private static let delete = SQL("DELETE FROM directory_items WHERE item = ?1")
    private static let deleteOld = SQL("DELETE FROM directory_items WHERE forget_at > 0 AND forget_at < ?1")
    private static let selectOld = SQL(
        "SELECT 1 FROM directory_items WHERE forget_at > 0 AND forget_at < ?1 LIMIT 1")

    private static let selectBody = SQL("SELECT body FROM directory_items WHERE item = ?1")

    /// Whether what is stored does not give way to this.
    private static func outweighs(_ fact: DirectoryFact, _ item: FeedItem, in transaction: any Transaction) throws
        -> Bool
    {
        let body = try transaction.first(selectBody, [.text(item.name.rawValue)]) { $0.blob(0) }
        guard let body else { return false }
        let known = DirectoryFact(FeedItem(name: item.name, deleted: false, digest: .empty, size: 0, body: body))
        return known?.outweighs(fact) ?? false
    }

    /// All that is stored.
    static func stored(in transaction: any Transaction) throws -> [DirectoryFact] {
        try transaction.all(select) {
            FeedItem(name: ItemName($0.text(0)), deleted: false, digest: .empty, size: 0, body: $0.blob(1))
        }.compactMap(DirectoryFact.init)
    }

    /// Stores the item, if it is one that has to outlive a restart.
    static func store(_ item: FeedItem, _ fact: DirectoryFact, at now: Timestamp, in transaction: any Transaction)
        throws
    {
        if try outweighs(fact, item, in: transaction) { return }
        var forget: Timestamp?
        switch fact {
        case .recall: return
        case .account(_, .active, _), .forgotten:
            return _ = try transaction.execute(delete, [.text(item.name.rawValue)])
        case .ended, .appTokenEnded, .account(_, .closed, _): forget = now.advanced(by: endingRetention)
        case .account(_, .locked, _), .app, .container: break
        case .tokenKey(let key): forget = key.retires?.advanced(by: endingRetention)
        }
        try transaction.execute(
            upsert, [.text(item.name.rawValue), .blob(item.body), .integer(Int64(clamping: forget?.milliseconds ?? 0))])
    }

    /// Forgets what is past its time. Writes nothing if there is none.
    static func prune(now: Timestamp, in transaction: any Transaction) throws {
        let bound = SQLValue.integer(Int64(clamping: now.milliseconds))
        guard try transaction.first(selectOld, [bound], { _ in true }) != nil else { return }
        try transaction.execute(deleteOld, [bound])
    }
}

/// Where identity keeps its directory. It belongs to nobody: no account has this id, since theirs begin with `acct_`,
/// and no app.
public let directoryScope = ScopeName(Owner("directory"), "directory")

/// The scope of each account, in identity's feed, that its devices may follow: how full its plan is, and the like.
public let accountScopeName: ItemName = "account"
