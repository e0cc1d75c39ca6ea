internal import Logging
internal import NephosCore

/// What leaves its container for this one.
extension DocumentsModel {
    /// Once the server has all of a copy, what was copied goes to the trash of its own container.
    ///
    /// - Parameter isCurrent: False: the server's history that took it is over, and it may lack some of it again.
    func finishMoves(after position: Int64, isCurrent: Bool, in documents: DocumentTransaction) throws {
        guard isCurrent else {
            for move in try documents.takeFailedMoves(at: position) {
                try documents.other(move.source).stay(move, leavingFor: name, because: nil, now: engine.now)
            }
            return
        }
        for move in try documents.takeFinishedMoves(after: position) {
            try documents.other(move.source).leave(
                move, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
            pushSoon(move.source)
        }
    }

    /// Has what waits in another container sent, which nobody may have opened in this process.
    private func pushSoon(_ container: String) {
        engine.loop.schedule(after: .zero) { [weak self] in
            guard let self, !engine.stopped else { return }
            let open = engine.scopes.first { $0.model.service == service && $0.model.name == container }
            if let open { return open.push() }
            do throws(CloudError) {
                try engine.scope(ScopeID(app: app, service: service, name: container)).push()
            } catch { engine.logger.error("a container that something leaves could not be opened", error) }
        }
    }
}
