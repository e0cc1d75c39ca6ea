internal import Foundation
public import NephosBulk
public import NephosBus
internal import NephosContent
public import NephosCore
public import NephosServiceKit
public import NephosStorage
internal import NephosWire

/// Files and folders of ubiquity containers.
///
/// Each container that an app lists is a scope; an item is its name, its place and what its content is, and moves with
/// one small change. Contents rest on chunks, which devices send and fetch beside their requests (``Transfers``).
///
/// On the loop only.
public final class DocumentsService: CloudService {
    public let name = ServiceName.documents
    public let migrations = Transfers.migrations + DocumentsMigrations.all
    public let scopeKind = "container"

    let transfers: Transfers
    let configuration: DocumentsConfiguration
    private var keys: OwnerKeys?
    private let digestKeys = DigestKeys()
    private(set) weak var runtime: (any ServiceRuntime)?
    private(set) lazy var removals = SteppedWork(
        "Removing items", every: .seconds(60),
        inTurns: {
            [unowned self] in try removeSome(in: $0, &$1)
        })
    private(set) lazy var endings = SteppedWork(
        "Ending what has had its time", every: .seconds(60),
        inTurns: {
            [unowned self] in try endSome(in: $0, &$1)
        })

    /// Reads contents of links; nil without links, and before the start.
    private var published: PublishedContents?
    /// Which links are looked at next.
    var linkWalk = LinkWalk()
    private(set) lazy var linkUpkeep = SteppedWork("Removing links", every: .seconds(300)) { [unowned self] in
        try endLinks(in: $0)
    }

    public init(_ transfers: Transfers, _ configuration: DocumentsConfiguration = DocumentsConfiguration()) {
        self.transfers = transfers
        self.configuration = configuration
    }

    public func register(on router: inout Router) {
        transfers.register(on: &router)
        // A device may have slept over one, for as long as it likes: versions know their own again.
        router.write(
            WireApplyChanges.self, bytesMax: Self.requestBytesMax, idsAge: false, makesRoom: true,
            // A change has about 60 bytes, and a child of a node 40.
            rows: { $0.count / 40 }, decoding: { try $0.decode(WireApplyChanges.self) },
            encoding: { [unowned self] in Frame(encoding: try applyChanges($0, $1, $2)) })
        router.read(WireListVersions.self, reserves: Self.versionsReserve) { [unowned self] in
            try listVersions($0, $1, $2)
        }
        router.bulk(
            WireFindItems.self, reserves: Self.findReserves,
            begin: { [unowned self] in try beginFindItems($0, $1, $2) }, read: Self.readItems, finish: { $0 })
        router.bulk(
            WireListItemDigests.self, reserves: Self.digestsReserve,
            begin: { [unowned self] in try beginListItemDigests($0, $1, $2) }, read: Self.readDigests,
            finish: finish)
        router.write(WirePublishItem.self, idsAge: false) { [unowned self] in try publishItem($0, $1, $2) }
        router.read(WireListLinks.self, reserves: Self.linksReserve) { [unowned self] in try listLinks($0, $1, $2) }
        router.direct(WireReadLink.self, access: .anyone) { [unowned self] request, _, answer in
            guard let published else { throw CloudError.nothingPublished }
            published.read(request) { answer($0, 0) }
        }
        router.write(WireRevokeLink.self, idsAge: false, makesRoom: true) { [unowned self] in
            try revokeLink($0, $1, $2)
        }
    }

    private func finish(_ reply: SnapshotReply) -> Frame { runtime?.finish(reply) ?? reply.frame }

    /// Bytes of a batch: the contents that go with their items, names and attributes, and manifest nodes.
    static let requestBytesMax = 4 << 20

    public func start(_ host: any ServiceRuntime) throws {
        keys = host.ownerKeys
        runtime = host
        transfers.placing = { [unowned self] in try place(of: $0, $1, $2, $3) }
        transfers.onLoss = { [unowned self] in try tellLoss(to: $0, of: $1, $2) }
        try transfers.start(host, as: name)
        removals.start(host)
        endings.start(host)
        // Also where nothing is published any more.
        linkUpkeep.start(host)
        if configuration.publishing != nil { published = PublishedContents(host, transfers) }
    }

    public func stop() {
        published = nil
        transfers.stop()
    }

    public var impediment: String? { transfers.impediment }

    public func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) { transfers.measure(done) }

    public func learned(_ fact: DirectoryFact) {
        transfers.learned(fact)
        switch fact {
        case .account(let account, .locked, _), .account(let account, .closed, _): lookAtLinks(of: account)
        case .app: lookAtLinks()
        case .account(_, .active, _), .ended, .forgotten, .container, .tokenKey, .appTokenEnded, .recall: break
        }
    }

    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        let rows = try ContainerRows.removeRemains(of: account, limit: 500, in: transaction)
        let content = try transfers.removeRemains(of: account, in: transaction)
        return rows || content
    }

    // MARK: Containers

    /// The container of a request, if its caller may see it.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, alike for a container that is not the app's and one that does not
    ///   exist.
    func openContainer(
        _ container: String, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> Container {
        try openContainer(ScopeName(caller.account, ItemName(container)), caller, transaction)
    }

    private func openContainer(
        _ scope: ScopeName, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> Container {
        guard scope.owner == Owner(caller.account), caller.entitlements.include(scope.path, of: name) else {
            throw CloudError(
                .missingEntitlement, "The app has no such container. Ask for one that the app lists.")
        }
        return try self.container(scope, transaction)
    }

    func container(_ scope: ScopeName, _ transaction: any HandlerTransaction) throws -> Container {
        guard let keys else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return Container(
            scope: scope, transaction: transaction, definition: runtime?.definition(of: scope.path) ?? .standard,
            keys: keys, digestKeys: digestKeys
        ) { [unowned self] in try quarantine($0, in: $1) }
    }

    /// What contents of the container rest on, where what is added counts for the caller.
    func contentUses(_ container: Container, _ caller: Caller) throws -> ContentUses {
        try contentUses(container, by: CountChanges.Maker(app: caller.app, device: caller.device))
    }

    func contentUses(_ container: Container, by maker: CountChanges.Maker) throws -> ContentUses {
        try transfers.uses(
            of: container.scope, on: room(of: container), app: maker.app, device: maker.device,
            in: container.transaction)
    }

    /// On what the container counts.
    private func room(of container: Container) throws -> StorageRoom {
        configuration.room(of: try container.rules().containerClass)
    }

    /// Where the contents of a container lie; of none, what the caller may fetch, and what counts on the plan.
    private func place(
        of container: String, _ purpose: ContentPlace.Purpose, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ContentPlace {
        guard caller.entitlements.capabilities.contains(.documents) else {
            throw CloudError(.missingEntitlement, "The app may not use documents.")
        }
        let isOfAny = container.isEmpty && [.fetching, .storing, .ending].contains(purpose)
        var room = StorageRoom.plan
        if !isOfAny {
            let opened = try openContainer(container, caller, transaction)
            if purpose == .storing { try opened.requireChanged(by: caller.app) }
            room = try self.room(of: opened)
        }
        return ContentPlace(
            owner: Owner(caller.account), partition: ScopeName(caller.account, "").partition,
            container: ItemName(container), readable: Set(caller.entitlements.containers.map(\.rawValue)), room: room,
            app: caller.app, device: caller.device)
    }

    public func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        let container = try openContainer(scope, caller, transaction)
        let rules = try container.rules()
        return ContainerPresenter(
            opener: try container.opener(), digestKey: try container.setting()?.digestKey ?? [], rules: rules,
            isReadOnly: !container.definition.isChanged(by: caller.app),
            countedBytes: try transfers.countedBytes(of: scope, in: transaction),
            trashRetention: container.trashRetention(rules.containerClass),
            versionRetention: container.versionRetention(rules.containerClass),
            classBytesMax: configuration.room(of: rules.containerClass).bytesMax,
            lostChunks: try transfers.lostChunks(of: scope, in: transaction),
            isContentMissing: transfers.isContentMissing)
    }

    /// The devices that follow the containers hear of it at once: one of them may have what was lost.
    private func tellLoss(
        to owner: Owner, of containers: Set<String>, _ transaction: any HandlerTransaction
    ) throws {
        for container in containers.sorted() {
            let scope = ScopeName(owner, ItemName(container))
            let position = try transaction.position(ofPartition: scope.partition)
            let notification = WireNotification(infoOf: scope, name, at: try transaction.head(scope))
            transaction.publish(OutgoingEvent(in: scope, at: position, notification: Frame(encoding: notification)))
        }
    }

    // MARK: By itself

    /// The service as it runs by itself: with segment files in the folder `content` of its data.
    ///
    /// - Throws: ``CloudError`` as ``Transfers/make(in:on:)`` does.
    public static func make(_ config: ServiceRuntimeConfig, on transport: any Transport) throws -> DocumentsService {
        DocumentsService(
            try Transfers.make(in: config.dataDirectory, on: transport), try DocumentsConfiguration(config.settings))
    }
}
