internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// Finds what differs between this device's copy of a container and the server's, by going down to it: of a folder whose
/// digest is the same on both sides nothing is read. On the loop; what is here is gone through beside it.
final class ContainerWalk {
    private static let left = CloudError(.notSignedIn, "This home has no account signed in. Sign in.")

    private let model: DocumentsModel
    private let scope: LocalScope
    private let timeout: Duration
    private let completion: (Result<ScopeWalk, CloudError>) -> Void
    private var engine: DeviceEngine { model.engine }
    /// Where both sides stand, and what they have there.
    private var head = ChangeToken.zero
    private var key: [UInt8] = []
    private var localDigest = SetDigest.empty
    private var serverDigest = SetDigest.empty
    private var found = ContainerDifferences(from: .top)
    /// As the server has those that differ.
    private var bodies: [DocumentID: WireDocumentItem] = [:]

    /// - Parameters:
    ///   - timeout: How long each answer may take.
    ///   - completion: Called once, on the loop.
    init(
        _ model: DocumentsModel, _ scope: LocalScope, timeout: Duration,
        _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) {
        (self.model, self.scope, self.timeout, self.completion) = (model, scope, timeout, completion)
    }

    func start() {
        let (local, scope) = (engine.local, scope)
        beside { () throws -> (ScopeState, SetDigest) in
            try local.read { database in
                let rows = ScopeTransaction(database, scope)
                let state = try rows.state()
                return (state, try DocumentTransaction(rows).computedDigest(key: state.digestKey))
            }
        } then: { [self] state, digest in
            (head, key, localDigest) = (state.head, state.digestKey, digest)
            askHead()
        }
    }

    /// The server's digest at its head.
    private func askHead() {
        var request = WireListItemDigests()
        request.container = model.name
        request.folder = DocumentID.top.wire
        request.itemsMax = 1
        ask(request) { [self] reply in
            guard let digest = SetDigest(bytes: reply.digest) else { return end(.failure(ContentReading.damaged)) }
            serverDigest = digest
            localDigest == serverDigest ? end(.success(outcome)) : walk()
        }
    }

    private var outcome: ScopeWalk {
        var difference = serverDigest
        difference.remove(localDigest)
        return ScopeWalk(
            head: head, localDigest: localDigest, serverDigest: serverDigest, hasMore: found.hasMore,
            isWhole: found.hasMore || difference == found.sum)
    }

    private func walk() {
        guard !found.hasMore, let folder = found.takeFolder() else { return name(found.items.keys.sorted()[...]) }
        read(folder, after: nil)
    }

    private func read(_ folder: DocumentID, after: DocumentID?) {
        var request = WireListItemDigests()
        request.container = model.name
        request.folder = folder.wire
        request.after = after?.wire ?? Data()
        ask(request) { [self] reply in
            let page = FolderPage(reply, of: folder, after: after)
            // It would begin anew for ever.
            guard !reply.more || page.last.map({ last in after.map { last > $0 } ?? true }) == true else {
                return end(.failure(ContentReading.damaged))
            }
            compare(page)
        }
    }

    private func compare(_ page: FolderPage) {
        let (local, scope, key, head, found) = (engine.local, scope, key, head, found)
        beside { () throws -> ContainerDifferences? in
            try local.read { database in
                let rows = ScopeTransaction(database, scope)
                guard try rows.state().head == head else { return nil }
                var found = found
                try DocumentTransaction(rows).compare(page, key: key, &found)
                return found
            }
        } then: { [self] compared in
            guard let compared else { return endElsewhere() }
            self.found = compared
            if let last = page.last, !compared.hasMore { read(page.folder, after: last) } else { walk() }
        }
    }

    // MARK: Naming

    /// Asks what the server calls those that differ, some at a time: as many as a reply has room for.
    private func name(_ ids: ArraySlice<DocumentID>) {
        let asked = ids.prefix(DocumentLimits.digestsAskedMax)
        guard !asked.isEmpty else { return tell() }
        var request = WireListItemDigests()
        request.container = model.name
        request.items = asked.map(\.wire)
        ask(request) { [self] reply in
            for entry in reply.entries {
                guard let id = DocumentID(bytes: entry.item) else { continue }
                bodies[id] = try? WireDocumentItem(serializedBytes: entry.body)
            }
            guard reply.more else { return name(ids.dropFirst(asked.count)) }
            // It would ask for the same for ever.
            guard let last = reply.entries.last.flatMap({ DocumentID(bytes: $0.item) }),
                let place = asked.firstIndex(of: last)
            else { return end(.failure(ContentReading.damaged)) }
            name(ids[(place + 1)...])
        }
    }

    private func tell() {
        var outcome = outcome
        do throws(CloudError) {
            outcome.differences = try engine.local.read { database in
                let documents = DocumentTransaction(ScopeTransaction(database, scope))
                return try found.items.sorted { $0.key < $1.key }.map { id, item in
                    var difference = Verification.Difference(key: id.name, kind: item.kind)
                    if item.kind != .missingHere { difference.path = try documents.syncedPath(of: id) }
                    if item.kind != .missingOnServer { difference.serverPath = try path(of: id, documents) }
                    return difference
                }
            }
            end(.success(outcome))
        } catch { end(.failure(error)) }
    }

    /// As the server has it: above those that differ the folders are the same on both sides.
    private func path(of id: DocumentID, _ documents: DocumentTransaction) throws -> String? {
        var (names, next) = ([Data](), id)
        for _ in 0...DocumentLimits.depthMax {
            guard let item = bodies[next] else {
                return try documents.syncedPath(of: next).map { above in
                    names.reduce(above == "/" ? "" : above) { $0 + "/" + String(decoding: $1, as: UTF8.self) }
                }
            }
            names.insert(item.name, at: 0)
            guard let parent = DocumentID(bytes: item.parent) else { return nil }
            next = parent
        }
        return nil
    }

    // MARK: Asking

    private func ask(_ request: WireListItemDigests, _ body: @escaping (WireListItemDigestsReply) -> Void) {
        engine.call(
            model.service, request, as: WireListItemDigestsReply.self, app: model.app, timeout: timeout
        ) { [self] result, _ in
            switch result {
            case .failure(let error): end(.failure(error))
            case .success(let reply):
                guard ChangeToken(reply.token).isSamePlace(as: head) else { return endElsewhere() }
                body(reply)
            }
        }
    }

    private func beside<Value: Sendable>(
        _ work: @escaping @Sendable () throws -> Value, then: @escaping (Value) -> Void
    ) {
        engine.loop.offload(to: .content, work) { [self] result in
            guard model.driver?.scope == scope else { return end(.failure(Self.left)) }
            switch result {
            case .success(let value): then(value)
            case .failure(let error): end(.failure(CloudError(wrapping: error)))
            }
        }
    }

    private func endElsewhere() {
        end(
            .success(
                ScopeWalk(
                    head: head, localDigest: localDigest, serverDigest: serverDigest, isWhole: false, isElsewhere: true)
            ))
    }

    private func end(_ result: Result<ScopeWalk, CloudError>) { completion(result) }
}

extension DocumentTransaction {
    /// Where the item is as the server told it, whatever waits to be sent; nil: nowhere, or not here.
    fileprivate func syncedPath(of id: DocumentID) throws -> String? {
        if id == .top { return "/" }
        if id == .documents { return "/Documents" }
        var (names, next) = ([String](), id)
        for _ in 0...DocumentLimits.depthMax {
            if next == .top { return "/" + names.joined(separator: "/") }
            if next == .documents { return "/" + (["Documents"] + names).joined(separator: "/") }
            guard let item = try synced(next.name)?.item, let parent = DocumentID(bytes: item.parent) else {
                return nil
            }
            names.insert(String(decoding: item.name, as: UTF8.self), at: 0)
            next = parent
        }
        return nil
    }
}
