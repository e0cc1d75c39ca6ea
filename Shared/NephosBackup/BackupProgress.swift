/// How far a long piece of work is.
public struct BackupProgress: Sendable {
    public enum Phase: String, Sendable {
        case databases, segments, verifying, restoring
    }

    public var phase: Phase
    public var bytesDone: Int
    /// Nil: not known yet.
    public var bytesTotal: Int?
}

/// What whoever does long work hears of it, and says to it. What it throws ends the work, which leaves nothing half-done.
public typealias BackupObserver = (BackupProgress) throws -> Void

/// Counts what was done, for the observer.
final class Counting {
    private var progress: BackupProgress
    private let observer: BackupObserver

    init(_ phase: BackupProgress.Phase, total: Int? = nil, _ observer: @escaping BackupObserver) {
        progress = BackupProgress(phase: phase, bytesDone: 0, bytesTotal: total)
        self.observer = observer
    }

    func went(_ bytes: Int) throws {
        progress.bytesDone += bytes
        try observer(progress)
    }
}
