internal import Foundation
public import NephosCore

extension UbiquityContainer {
    /// Asks for the server's changes, and sends now what waits for its next attempt. Returns at once.
    public func synchronize() { syncedScopes.synchronize() }

    /// What changes from outside, from now on. This device's own changes are not among it, but for what was refused of
    /// them. For a list that is kept up to date there are queries (``query(_:scope:sortedBy:batchMax:)-(String,_,_,_)``).
    ///
    /// A listener that lags behind by 10,000 keeps the newest.
    public var changes: some AsyncSequence<ContainerChanges, Never> & Sendable {
        scope.events.compactMap { [self] event in
            guard case .change(let change) = event else { return nil }
            return changes(change)
        }
    }

    private func changes(_ change: ChangeNotification) -> ContainerChanges {
        var changes = ContainerChanges(reason: change.reason)
        changes.error = change.error
        changes.isAll = change.changedKeys.isEmpty
        for id in change.changedKeys.compactMap({ DocumentID($0) }) {
            let entry = try? read { documents in
                try documents.document(id).flatMap { try documents.entry($0) }
            }
            if let entry { changes.changed.append(entry) } else { changes.removed.append(id) }
        }
        return changes
    }
}

/// What an app is told when items of a container change from outside.
public struct ContainerChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// Items that were made or changed, as they are by now; also such as lie in the trash.
    public var changed: [DocumentEntry] = []
    /// Items that are gone for good.
    public var removed: [DocumentID] = []
    /// So much that it is not listed: look at all.
    public var isAll = false
    /// Why something was refused; nil: nothing was.
    public var error: CloudError?
}

/// Waiting for what is sent, whoever of the home sends it.
extension UbiquityContainer {
    /// How far what waits has been sent: while one of these changes, it moves.
    struct SendingMark: Equatable {
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
    package func waitUntilSentWhileItMoves(
        within patience: Duration, onProgress: (_ done: Int, _ total: Int) -> Void = { _, _ in }
    ) async throws(CloudError) {
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: SendingMark, failure: CloudError)? in
            guard let failure = try await failureToSend(within: min(patience, Self.look)) else { return nil }
            let (mark, total) = try await sendingMark(&pacings)
            onProgress(mark.done, total)
            return (mark, failure)
        }
    }

    /// - Returns: Nil: everything is sent; else why it is not yet.
    func failureToSend(within limit: Duration) async throws(CloudError) -> CloudError? {
        do throws(CloudError) {
            try await scope.waitUntilSent(timeout: limit, isImpatient: true)
            return nil
        } catch {
            guard error.code == .deadlineExceeded else { throw error }
            return error
        }
    }

    /// - Parameter pacings: Of the looks before.
    func sendingMark(_ pacings: inout Int) async throws(CloudError) -> (mark: SendingMark, total: Int) {
        let progress = try await uploadProgress()
        if progress.isPaced { pacings += 1 }
        // Another process of the home may be the one that sends.
        let percent = try await sentPercent()
        let waiting = try await waitingCount()
        return (
            SendingMark(done: progress.done, percent: percent, waiting: waiting, pacings: pacings), progress.total
        )
    }
}
