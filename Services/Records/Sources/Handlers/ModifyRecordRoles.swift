internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Who may do what in a public database.
extension RecordsService {
    /// - Throws: ``CloudError`` `.missingEntitlement`, `.permissionFailure`, `.invalidArguments`, `.limitExceeded`: nothing
    ///   was done.
    func modifyRoles(
        _ request: WireModifyRecordRoles, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireModifyRecordRolesReply {
        let (database, access) = try openDatabase(
            request.container, .public, context.requireCaller(), transaction)
        guard access.isAdministrator else { throw Self.notAdministrator }
        let types = request.save.map(\.type) + request.delete
        guard Set(types.map { ItemName($0) }).count == types.count else {
            throw CloudError(.invalidArguments, "A type is there twice. Name it once.", details: ["argument": "save"])
        }
        for type in types where !type.isEmpty && !RecordLimits.isKey(type) {
            throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
        }
        let saved = try request.save.map { (type: ItemName($0.type), rights: try RecordRights($0)) }
        let before = try RoleRows.roles(of: database.scope, in: transaction)
        var after = before
        for type in request.delete { after.byType[ItemName(type)] = nil }
        for (type, rights) in saved { after.byType[type] = rights }
        guard after.byType.count <= max(RecordLimits.roleTypesMax, before.byType.count) else {
            throw CloudError(
                .limitExceeded, "The database has roles of too many types. Take some back.",
                details: ["maximum": "\(RecordLimits.roleTypesMax)"])
        }
        for type in request.delete { try RoleRows.set(nil, of: ItemName(type), in: database.scope, transaction) }
        for (type, rights) in saved { try RoleRows.set(rights, of: type, in: database.scope, transaction) }
        transaction.afterCommit { [weak self] in self?.endTickets(ofPublic: ItemName(request.container)) }
        if Self.readersDiffer(before, after) {
            try RoleRows.setChange("", of: database.scope, in: transaction)
            transaction.afterCommit { [weak self] in self?.showing.beginSoon() }
        }
        var reply = WireModifyRecordRolesReply()
        reply.roles = try wire(after, of: database, access)
        return reply
    }

    /// Whether others may read records of some type.
    private static func readersDiffer(_ before: RecordRoles, _ after: RecordRoles) -> Bool {
        // A type of which neither says anything stands for all such types.
        (Array(before.byType.keys) + after.byType.keys + [""]).contains {
            before.rights(of: $0.rawValue).readingWidth != after.rights(of: $0.rawValue).readingWidth
        }
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func listRoles(
        _ request: WireListRecordRoles, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListRecordRolesReply {
        let (database, access) = try openDatabase(
            request.container, .public, context.requireCaller(), transaction)
        var reply = WireListRecordRolesReply()
        reply.roles = try wire(access.roles ?? RecordRoles(), of: database, access)
        return reply
    }

    private func wire(_ roles: RecordRoles, of database: RecordScope, _ access: RecordAccess) throws -> WireRecordRoles
    {
        var wire = WireRecordRoles()
        wire.types = [roles.rights(of: "").wire(of: "")]
        wire.types += roles.byType.sorted { $0.key < $1.key }.filter { !$0.key.rawValue.isEmpty }
            .map { $0.value.wire(of: $0.key.rawValue) }
        wire.changing = try RoleRows.isChanging(database.scope, in: database.transaction)
        wire.administrator = access.isAdministrator
        wire.ownerApp = database.scope.owner.app?.rawValue ?? ""
        return wire
    }

    static let notAdministrator = CloudError(
        .permissionFailure,
        "Only administrators of the container may do this in its public database. The operator names them: nephos container save"
    )
}
