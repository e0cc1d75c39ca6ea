internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Gives what large pushes have replaced its rows in the history, a little at a time; stores take turns.
///
/// What is to be done lies in the database alone, so that it goes on where it was after a crash. On the loop only.
final class HistoryUnpacker {
    /// Between two steps; what came meanwhile is carried out then.
    static let pause: Duration = .milliseconds(2)
    /// After a step that failed, or while the disk is full.
    private static let longPause: Duration = .seconds(10)

    private weak var runtime: (any ServiceRuntime)?
    private var isUnderWay = false
    /// Something was packed since the last step began.
    private var isWoken = false
    /// The store that had its turn last.
    private var last: Int64 = 0

    private enum Outcome {
        case none
        case unpacked(KeyHistory.Unpacked?)
        case noRoom
    }

    func start(_ runtime: any ServiceRuntime) {
        self.runtime = runtime
        isUnderWay = true
        // Joins the first group.
        step()
    }

    /// Something may be packed.
    func wake() {
        isWoken = true
        guard !isUnderWay else { return }
        isUnderWay = true
        schedule(after: Self.pause)
    }

    private func schedule(after pause: Duration) {
        runtime?.loop.schedule(after: pause) { [weak self] in self?.step() }
    }

    private func step() {
        var outcome = Outcome.none
        isWoken = false
        runtime?.submit { [weak self] in
            outcome = try self?.unpack(in: $0) ?? .none
        } then: { [weak self] failure in
            self?.finish(outcome, failure)
        }
    }

    private func unpack(in transaction: any HandlerTransaction) throws -> Outcome {
        guard let store = try KeyHistory.storeToUnpack(after: last, in: transaction) else { return .none }
        guard !transaction.isShortOfRoom else { return .noRoom }
        // Also when it fails: then it is another's turn.
        last = store
        return .unpacked(try KeyHistory.unpack(of: store, in: transaction))
    }

    private func finish(_ outcome: Outcome, _ failure: CloudError?) {
        if let failure {
            runtime?.report(
                "What a large push replaced could not be put into the history. It is tried again",
                details: ["code": "\(failure.code)"])
            return schedule(after: Self.longPause)
        }
        switch outcome {
        case .noRoom: schedule(after: Self.longPause)
        case .unpacked(let unpacked):
            if let unpacked, unpacked.damaged > 0 { report(unpacked) }
            schedule(after: Self.pause)
        case .none where isWoken: schedule(after: Self.pause)
        case .none: isUnderWay = false
        }
    }

    private func report(_ unpacked: KeyHistory.Unpacked) {
        runtime?.count("history.damaged", by: unpacked.damaged)
        runtime?.report(
            "Entries of a store's history are damaged, and are left out",
            details: [
                "account": unpacked.scope.owner.rawValue, "store": unpacked.scope.path.rawValue,
                "entries": "\(unpacked.damaged)",
            ])
    }
}
