internal import Foundation
package import NephosCore

/// The name under which an item waits to be sent.
package struct WaitingName: Sendable {
    let name: Data
    let placeVersion: Data
}

/// Changes of a container that wait to be sent, whichever process of the home sends them.
package struct ContainerOutbox: Sendable {
    let handle: ContainerHandle

    // MARK: What waits

    /// Paths of the items of which changes wait to be sent, with the versions of the contents that they have here.
    package func paths() async throws(CloudError) -> [String: [DocumentID: DocumentID]] {
        try handle.read { documents in
            try documents.pendingItems().reduce(into: [:]) { paths, pending in
                guard let path = try documents.pathText(of: pending.id) else { return }
                let version = try documents.document(pending.id).flatMap { DocumentID(bytes: $0.wire.content.version) }
                paths[path, default: [:]][pending.id] = version
            }
        }
    }

    /// Items of which this content is in conflict with another device's: both are kept until somebody decides.
    ///
    /// - Parameter versions: The version of the content, by the item's id.
    package func conflicting(_ versions: [DocumentID: DocumentID]) async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            try versions.sorted { $0.key < $1.key }.compactMap { id, version in
                guard let item = try documents.document(id), item.isLosing(version) else { return nil }
                return try documents.entry(item)
            }
        }
    }

    /// The names of the items of which changes wait to be sent, by their ids.
    package func names() async throws(CloudError) -> [DocumentID: WaitingName] {
        try handle.read { documents in
            try documents.pendingItems().reduce(into: [:]) { names, pending in
                guard let item = try documents.document(pending.id), item.id == pending.id else { return }
                names[item.id] = WaitingName(name: item.wire.name, placeVersion: item.wire.placeVersion)
            }
        }
    }

    /// Items that have another name than they had waited under, since something had that when the server heard of them.
    ///
    /// - Returns: Paths, as they were and as they are.
    package func renamed(
        since names: [DocumentID: WaitingName]
    ) async throws(CloudError) -> [(before: String, now: String)] {
        try handle.read { documents in
            try names.sorted { $0.key < $1.key }.compactMap { id, waited -> (before: String, now: String)? in
                // A person's rename gives it another place.
                guard let item = try documents.document(id), item.id == id, item.wire.name != waited.name,
                    item.wire.placeVersion == waited.placeVersion, let path = try documents.path(of: item)?.path
                else { return nil }
                return (before: path.renamed(waited.name).text, now: path.text)
            }
        }
    }

    /// The same items, as they are by now; one that is gone as it was.
    package func refreshed(_ entries: [DocumentEntry]) async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            try zip(entries, documents.entries(entries.map { .success($0.id) })).map { old, new in
                (try? new.get()) ?? old
            }
        }
    }

    // MARK: Waiting until it is sent

    /// How far the contents are that this process sends: bytes of those of the request that is on its way, and all; and
    /// whether the next wait because of a limited rate, which is no standstill.
    package func progress() async throws(CloudError) -> (
        done: Int, total: Int, isPaced: Bool, waiting: CloudError?
    ) {
        let progress: UploadProgress = try await handle.scope.perform { driver, completion in
            completion(.success((driver.model as? DocumentsModel)?.uploads.progress ?? UploadProgress()))
        }
        return (progress.bytesDone, progress.bytesTotal, progress.isPaced, progress.waiting)
    }

    /// How far what waits has been sent: while one of these changes, it moves.
    struct Mark: Equatable {
        var done: Int
        var percent: Int
        var waiting: Int
        /// Rises with each look at which a limited rate keeps it waiting, which is no standstill.
        var pacings: Int
    }

    /// How long one look takes that waits for what is sent.
    private static let look: Duration = .milliseconds(500)

    /// Waits until nothing of the container waits to be sent but what somebody keeps here, for as long as it moves.
    ///
    /// - Parameters:
    ///   - patience: How long nothing may move.
    ///   - onProgress: Gets the bytes that are sent of the contents that are on their way, and all.
    /// - Throws: ``CloudError`` as ``Scope/waitUntilSent(timeout:isImpatient:)`` does.
    package func waitUntilSent(
        within patience: Duration, onProgress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) async throws(CloudError) {
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: Mark, failure: CloudError)? in
            guard let failure = try await failureToSend(within: min(patience, Self.look)) else { return nil }
            let (mark, total) = try await mark(&pacings)
            onProgress(mark.done, total)
            return (mark, failure)
        }
    }

    /// - Returns: Nil: everything is sent; else why it is not yet.
    func failureToSend(within limit: Duration) async throws(CloudError) -> CloudError? {
        do throws(CloudError) {
            try await handle.scope.waitUntilSent(timeout: limit, isImpatient: true)
            return nil
        } catch {
            guard error.code == .deadlineExceeded else { throw error }
            return error
        }
    }

    /// - Parameter pacings: Of the looks before.
    func mark(_ pacings: inout Int) async throws(CloudError) -> (mark: Mark, total: Int) {
        let progress = try await progress()
        if progress.isPaced { pacings += 1 }
        // Another process of the home may be the one that sends.
        let percent = try handle.read { try $0.sentPercent() }
        let waiting = try handle.read { try $0.rows.operationCount() }
        return (
            Mark(done: progress.done, percent: percent, waiting: waiting, pacings: pacings), progress.total
        )
    }
}
