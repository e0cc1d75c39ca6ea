internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

/// How a zone's saves bring assets.
extension RecordZoneModel {
    /// What a record's assets are in: of a public database each record's are by themselves, as may be those who read it.
    ///
    /// - Parameter asset: One that has manifest nodes: there they are stored for it alone, as its root says.
    func contents(of record: String, _ asset: WireRecordAsset? = nil) -> String {
        guard place.isPublic else { return container }
        let root = asset.flatMap { $0.depth > 0 ? ChunkID(bytes: [UInt8]($0.root)) : nil }
        return "\(container)/\(RecordLimits.defaultZone)\(root.map { "#\($0.hex)" } ?? "")/\(record)"
    }

    func unstored(in rows: ScopeTransaction) throws -> [UnstoredRequest] { try records(in: rows).unstored() }

    func unstoredBytes(at position: Int64, in rows: ScopeTransaction) throws -> UInt64 {
        try records(in: rows).assetsHere(at: position).reduce(0) { $0.addingClamped($1.copy.length) }
    }

    func waitingContents(at position: Int64, in rows: ScopeTransaction) throws -> [WaitingContent] {
        try records(in: rows).assetsHere(at: position).map { name, asset, copy in
            WaitingContent(
                version: copy.file, length: copy.length, chunks: copy.chunks, source: nil,
                container: contents(of: name, asset))
        }
    }

    func contentRequest(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> ContentRequest {
        let records = records(in: rows)
        let here = try records.assetsHere(at: operation.position)
        let upload = try records.upload(at: operation.position) ?? RecordTransaction.Upload()
        let container = upload.container ?? here.first.map { contents(of: $0.name) } ?? container
        return ContentRequest(container: container, transferID: upload.transfer)
    }

    func keep(_ request: ContentRequest, with operation: inout OutboxOperation, in rows: ScopeTransaction) throws {
        let records = records(in: rows)
        guard var upload = try records.upload(at: operation.position) else { return }
        upload.transfer = request.transferID
        // It is closed as it was opened.
        upload.container = upload.transfer.isEmpty ? nil : request.container
        try records.put(upload, at: operation.position)
    }

    func setPercent(_ percent: Int, at position: Int64, in rows: ScopeTransaction) throws {
        try records(in: rows).setPercent(percent, at: position)
    }

    func markStored(at position: Int64, in rows: ScopeTransaction) throws {
        let records = records(in: rows)
        guard var upload = try records.upload(at: position) else { return }
        upload.isStored = true
        try records.put(upload, at: position)
    }

    func forgetContent(_ version: DocumentID, in rows: ScopeTransaction) throws {
        try rows.assets.forget(version)
        engine.loop.schedule(after: .zero) { [weak self] in self?.engine.removeContents([version]) }
    }

    /// In the details of an error: a file of the home that is not what it was, and whose asset it was.
    static let lostContent = "content"
    static let lostAsset = "asset"

    func blame(_ version: DocumentID, of operation: OutboxOperation, for error: inout CloudError) {
        error.details[Self.lostContent] = "\(version)"
        // What other assets have no file here the server has.
        let place = place(in: engine.session)
        let root = try? engine.local.read { try ScopeTransaction($0, place).assets.root(in: version) }
        error.details[Self.lostAsset] = root?.base64EncodedString()
    }

    var isRefusedByContainer: Bool { place.isPublic }
    var requestsTakeNodes: Bool { false }

    func storeAhead(_ request: ContentRequest, _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        var ahead = WireStoreNodes()
        ahead.container = request.container
        ahead.transferID = request.transferID
        ahead.nodes = request.nodes
        engine.call(service, ahead, as: WireStoreNodesReply.self, app: app) { result, _ in
            completion(
                result.map { _ in }.mapError { error in
                    // What was stored is there no more: all of it is stored anew, once.
                    error.code == .unknownItem && !error.isOfEndedUpload
                        ? CloudError(.assetNotAvailable, error.message, details: error.details) : error
                })
        }
    }

    // MARK: In turn

    /// So many operations behind one that waits for its assets may overtake it: to look at all would take its time.
    private static let overtakersMax = 256

    /// Those of the operations that wait for assets, and those that wait for them.
    ///
    /// What has nothing to do with what waits does not wait for it: a note goes out beside a film.
    func waitingForAssets(
        among operations: [OutboxOperation], in rows: ScopeTransaction
    ) throws -> [Int64: Preparation] {
        let records = records(in: rows)
        let unstored = Set(try records.unstored().map(\.position))
        guard !unstored.isEmpty else { return [:] }
        var held: [Int64: Preparation] = [:]
        var footprint = RecordFootprint()
        var looked = 0
        for operation in operations {
            let isHeld = operation.state == .unsent && unstored.contains(operation.position)
            guard isHeld || !held.isEmpty else { continue }
            looked += 1
            if looked <= Self.overtakersMax {
                let own = try RecordFootprint(
                    records.pending(at: operation.position),
                    WireZoneChanges(serializedBytes: rows.payload(at: operation.position)))
                // What was sent may be there already.
                guard isHeld || operation.state == .unsent && footprint.concerns(own) else { continue }
                footprint.formUnion(own)
            }
            held[operation.position] =
                !isHeld
                ? .behind
                : uploads.isRunning(operation.position) ? .sending : uploads.isBusy ? .waiting : .unsent
        }
        return held
    }

    // MARK: Ends

    /// The operation is over.
    func end(_ operation: OutboxOperation, in records: RecordTransaction) throws {
        try closeUpload(of: operation, in: records)
        try records.removePending(at: operation.position)
    }

    /// What its upload still holds is given back.
    private func closeUpload(of operation: OutboxOperation, in records: RecordTransaction) throws {
        guard let upload = try records.upload(at: operation.position) else { return }
        closeUpload(upload.transfer, of: upload.container ?? container)
    }

    /// Whether the server lacks what this device has: it is stored again, once.
    func storesAgain(
        _ changes: [RecordTransaction.Pending], of operation: OutboxOperation, after error: CloudError,
        in records: RecordTransaction
    ) throws -> Bool {
        guard error.code == .assetNotAvailable, try records.upload(at: operation.position)?.sendings ?? 0 == 0 else {
            return false
        }
        return try changes.contains { try $0.change.assets.contains { try records.assets.copy(of: $0) != nil } }
    }

    func storeAgain(_ operation: OutboxOperation, in records: RecordTransaction) throws {
        try closeUpload(of: operation, in: records)
        var upload = RecordTransaction.Upload()
        upload.sendings = (try records.upload(at: operation.position)?.sendings ?? 0) + 1
        try records.put(upload, at: operation.position)
    }

    func trimAssets(in rows: ScopeTransaction) throws {
        guard try rows.assets.isAnyHere() else { return }
        engine.loop.schedule(after: .zero) { [weak self] in self?.engine.trimContentsSoon() }
    }
}

/// Which records operations have to do with.
struct RecordFootprint {
    private var changed: Set<String> = []
    private var named: Set<String> = []
    /// Others may go with what is deleted.
    private var deletes = false
    /// Something is left for the app: the newest is what stays.
    private var leavesToken = false

    init() {}

    init(_ changes: [RecordTransaction.Pending], _ request: WireZoneChanges) {
        named = Set(request.conditions.map(\.record))
        leavesToken = !request.clientToken.isEmpty
        for change in changes {
            changed.insert(change.change.record)
            if let parent = change.ancestor?.parentName { named.insert(parent) }
            guard case .save(let save)? = change.change.kind else {
                deletes = true
                continue
            }
            if !save.parent.isEmpty { named.insert(save.parent) }
            for field in save.fields { named.formUnion(field.referenced) }
        }
    }

    mutating func formUnion(_ other: RecordFootprint) {
        changed.formUnion(other.changed)
        named.formUnion(other.named)
        deletes = deletes || other.deletes
        leavesToken = leavesToken || other.leavesToken
    }

    /// Whether what comes later has to wait for this.
    func concerns(_ later: RecordFootprint) -> Bool {
        deletes || later.deletes || leavesToken && later.leavesToken || !changed.isDisjoint(with: later.changed)
            || !changed.isDisjoint(with: later.named)
            || !named.isDisjoint(with: later.changed)
    }
}
