internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What devices ask about besides changes.
extension DocumentsService {
    /// Another container, whose chunks count as there.
    ///
    /// - Parameter name: Empty, or the container's own: none.
    /// - Throws: ``CloudError`` `.missingEntitlement`, as ``openContainer(_:_:_:)`` does: of what an app may not read
    ///   it does not learn either whether it exists.
    func sourceContainer(
        _ name: String, of container: Container, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ItemName? {
        guard !name.isEmpty else { return nil }
        let source = try openContainer(name, caller, transaction).scope
        guard source != container.scope else { return nil }
        guard source.owner == container.scope.owner, source.partition == container.scope.partition else {
            throw CloudError(.internalError, "What an account has lies in one partition.")
        }
        return source.path
    }

    /// - Throws: ``CloudError`` `.invalidArguments`.
    static func item(_ id: Data, _ argument: String) throws(CloudError) -> DocumentID {
        guard let id = DocumentID(bytes: id) else {
            throw CloudError(.invalidArguments, "An item is named by 16 bytes.", details: ["argument": argument])
        }
        return id
    }

    /// Nil: none is meant.
    static func upload(_ id: Data) throws(CloudError) -> ReservationID? {
        guard !id.isEmpty else { return nil }
        guard let id = ReservationID(bytes: id) else {
            throw CloudError(
                .invalidArguments, "A transfer's id has 16 bytes.", details: ["argument": "transfer_id"])
        }
        return id
    }

    /// What the list may cost, in calls: of a hundred versions, each with its 4 KiB.
    static let versionsReserve = 110

    /// - Throws: ``CloudError`` `.unknownItem`.
    func listVersions(
        _ request: WireListVersions, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListVersionsReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        guard let id = DocumentID(bytes: request.item), try container.item(id) != nil else {
            throw CloudError(.unknownItem, "The container has no such item.")
        }
        var reply = WireListVersionsReply()
        reply.versions = try container.versions(of: id)
        return reply
    }
}
