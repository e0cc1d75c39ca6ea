internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit
internal import Synchronization

/// Downloads of a folder: each writes a file in the agent's own folder, which takes its place in a later pass.
final class Downloads: Sendable {
    /// A content that has come, in a file of the agent's own folder.
    struct Arrival: Sendable {
        var item: DocumentID
        var version: DocumentID
        var part: FileName
    }

    /// A download that failed.
    struct Failure: Sendable {
        var item: DocumentID
        var error: CloudError
    }

    private struct State {
        var wanted: [DocumentID: (version: DocumentID, size: UInt64)] = [:]
        /// In the order of arrival; some may be wanted no longer.
        var queue: [DocumentID] = []
        var active: [DocumentID: (version: DocumentID, size: UInt64, task: Task<Void, Never>?)] = [:]
        /// Of those that are wanted or active. It has room for any number of them.
        var bytes: UInt128 = 0
        var arrivals: [Arrival] = []
        var failures: [Failure] = []
        var resumes: ContinuousClock.Instant?
        var pause = Duration.seconds(1)
        var isStopped = false

        mutating func want(_ item: DocumentID, _ version: DocumentID, _ size: UInt64) {
            bytes += UInt128(size)
            if let old = wanted.updateValue((version, size), forKey: item) {
                bytes -= UInt128(old.size)
            } else {
                queue.append(item)
            }
        }
    }

    /// Contents that may lie in the agent's own folder, before a pass puts them into their places.
    private static let arrivalsMax = 256
    private static let pauseMax = Duration.seconds(60)

    private let root: RootFolder
    private let container: ContainerTree
    private let options: AgentOptions
    private let onEvent: @Sendable () -> Void
    private let state = Mutex(State())

    init(
        _ root: RootFolder, _ container: ContainerTree, _ options: AgentOptions, onEvent: @escaping @Sendable () -> Void
    ) {
        (self.root, self.container, self.options, self.onEvent) = (root, container, options, onEvent)
    }

    /// Ends all downloads. No other begins.
    func stop() {
        let tasks = state.withLock { state in
            state.isStopped = true
            (state.wanted, state.queue) = ([:], [])
            state.bytes = state.active.values.reduce(0) { $0 + UInt128($1.size) }
            return state.active.values.compactMap(\.task)
        }
        for task in tasks { task.cancel() }
    }

    /// Downloads that are wanted or active, and contents that have come.
    var count: Int { state.withLock { $0.wanted.count + $0.active.count + $0.arrivals.count + $0.failures.count } }

    /// Bytes of downloads that are wanted or active, as far as they fit into a number.
    ///
    /// - Parameter item: Is not counted.
    func bytes(besides item: DocumentID) -> UInt64 {
        state.withLock { state in
            let own = UInt128(state.wanted[item]?.size ?? 0) + UInt128(state.active[item]?.size ?? 0)
            return UInt64(clamping: state.bytes - own)
        }
    }

    /// A content that has come is put into its place in the next pass.
    func putBack(_ arrival: Arrival) {
        state.withLock { $0.arrivals.append(arrival) }
        onEvent()
    }

    /// When a download is tried again after the network failed; nil: none is.
    var nextDue: ContinuousClock.Instant? { state.withLock { $0.wanted.isEmpty ? nil : $0.resumes } }

    /// Downloads a version of an item, in place of another that may be wanted.
    ///
    /// - Parameter size: Bytes of its content.
    func want(_ item: DocumentID, _ version: DocumentID, _ size: UInt64) {
        state.withLock { state in
            let isUnderway =
                state.active[item]?.version == version
                || state.arrivals.contains { $0.item == item && $0.version == version }
            guard state.wanted[item]?.version != version, !isUnderway, !state.isStopped else { return }
            state.want(item, version, size)
        }
    }

    func cancel(_ item: DocumentID) {
        state.withLock { state in
            if let old = state.wanted.removeValue(forKey: item) { state.bytes -= UInt128(old.size) }
        }
    }

    /// Begins as many as may run at a time.
    func start() {
        while let (item, version) = state.withLock({ next(&$0) }) {
            let task = Task { [weak self] in
                guard let self else { return }
                let result = await self.fetch(item, version)
                finish(item, version, result)
            }
            state.withLock { state in
                // It may be over already.
                if state.active[item]?.version == version { state.active[item]?.task = task }
            }
        }
    }

    private func next(_ state: inout State) -> (DocumentID, DocumentID)? {
        if let resumes = state.resumes {
            guard resumes <= .now else { return nil }
            state.resumes = nil
        }
        guard state.active.count < options.downloadsMax,
            state.active.count + state.arrivals.count < Self.arrivalsMax
        else { return nil }
        while let index = state.queue.firstIndex(where: { state.active[$0] == nil }) {
            let item = state.queue.remove(at: index)
            // It may be wanted no longer.
            guard let (version, size) = state.wanted.removeValue(forKey: item) else { continue }
            state.active[item] = (version, size, nil)
            return (item, version)
        }
        return nil
    }

    private func fetch(_ item: DocumentID, _ version: DocumentID) async -> Result<FileName, CloudError> {
        // A name of its own: an earlier download of the version may not have its place yet.
        let part = FileName("\(container.makeID())".utf8)
        do {
            let descriptor = try root.parts.makeFile(part, mode: 0o666)
            defer { close(descriptor) }
            try await container.fetch(item, version: version, into: descriptor, timeout: options.downloadTimeout)
            return .success(part)
        } catch {
            root.parts.removeAll(part)
            guard let failure = error as? FileFailure else { return .failure(CloudError(wrapping: error)) }
            return .failure(
                CloudError(
                    .storageFailure, "A download cannot be written. Check the folder's disk.",
                    details: ["reason": failure.reason]))
        }
    }

    private func finish(_ item: DocumentID, _ version: DocumentID, _ result: Result<FileName, CloudError>) {
        state.withLock { state in
            let size = state.active.removeValue(forKey: item)?.size ?? 0
            state.bytes -= UInt128(size)
            switch result {
            case .success(let part):
                state.arrivals.append(Arrival(item: item, version: version, part: part))
                state.pause = .seconds(1)
            case .failure(let error) where error.code == .unknownItem || error.code == .storeOutOfStep:
                state.failures.append(Failure(item: item, error: error))
            case .failure(let error):
                state.failures.append(Failure(item: item, error: error))
                if state.wanted[item] == nil, !state.isStopped { state.want(item, version, size) }
                state.resumes = .now + state.pause
                state.pause = min(state.pause * 2, Self.pauseMax)
            }
        }
        start()
        onEvent()
    }

    /// Downloads that ended since the last call.
    func takeArrivals() -> (arrivals: [Arrival], failures: [Failure]) {
        state.withLock { state in
            defer { (state.arrivals, state.failures) = ([], []) }
            return (state.arrivals, state.failures)
        }
    }
}
