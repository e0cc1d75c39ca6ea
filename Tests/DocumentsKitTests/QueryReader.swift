import Foundation
import NephosCore
import NephosPredicates
import Synchronization
import Testing

@testable import NephosKit

/// Reads a query as an app does, and keeps what it was told. What contradicts what it was told before is noted.
final class QueryReader: Sendable {
    struct State {
        var items: [DocumentID: DocumentEntry] = [:]
        var gathered: [DocumentID] = []
        var batches: [Int] = []
        var updates: [DocumentQuery.Update] = []
        var isGathered = false
        var contradictions: [String] = []
        var error: CloudError?
        var isOver = false
    }

    let query: DocumentQuery
    private let state = Mutex(State())
    private let task = Mutex<Task<Void, Never>?>(nil)

    init(_ query: DocumentQuery) {
        self.query = query
        task.withLock { $0 = Task { [weak self] in await Self.read(query) { self?.take($0) } } }
    }

    deinit { cancel() }

    func cancel() { task.withLock { $0?.cancel() } }
    var now: State { state.withLock { $0 } }

    private static func read(
        _ query: DocumentQuery, _ take: (Result<DocumentQuery.Event?, CloudError>) -> Void
    ) async {
        do throws(CloudError) {
            let events = query.makeAsyncIterator()
            while let event = try await events.next() { take(.success(event)) }
            take(.success(nil))
        } catch { take(.failure(error)) }
    }

    private func take(_ result: Result<DocumentQuery.Event?, CloudError>) {
        state.withLock { state in
            switch result {
            case .failure(let error): (state.error, state.isOver) = (error, true)
            case .success(nil): state.isOver = true
            case .success(.gathered(let entries)): gather(entries, &state)
            case .success(.finishedGathering): state.isGathered = true
            case .success(.updated(let update)): apply(update, &state)
            }
        }
    }

    private func gather(_ entries: [DocumentEntry], _ state: inout State) {
        if state.isGathered { state.contradictions.append("gathered after the end") }
        state.batches.append(entries.count)
        for entry in entries {
            if let last = state.gathered.last.flatMap({ state.items[$0] }), !query.sorts.isEmpty,
                !query.isSorted(last, before: entry)
            {
                state.contradictions.append("\(entry.path) is not in order")
            }
            if state.items.updateValue(entry, forKey: entry.id) != nil {
                state.contradictions.append("\(entry.path) was gathered twice")
            }
            state.gathered.append(entry.id)
        }
    }

    private func apply(_ update: DocumentQuery.Update, _ state: inout State) {
        if !state.isGathered { state.contradictions.append("updated before the end") }
        state.updates.append(update)
        for entry in update.added where state.items.updateValue(entry, forKey: entry.id) != nil {
            state.contradictions.append("\(entry.path) was added twice")
        }
        for entry in update.changed where state.items.updateValue(entry, forKey: entry.id) == nil {
            state.contradictions.append("\(entry.path) was changed and not there")
        }
        for item in update.removed where state.items.removeValue(forKey: item.id) == nil {
            state.contradictions.append("\(item.path) was removed and not there")
        }
    }

    /// Waits until it is so, for a number of looks: a query takes real time, and where other tests keep every core busy,
    /// its steps and these looks wait for their turn alike.
    func wait(looks: Int = 20_000, _ isDone: (State) -> Bool) async -> Bool {
        for _ in 0..<looks {
            if isDone(now) { return true }
            try? await Task.sleep(for: .milliseconds(5))
        }
        return isDone(now)
    }
}

extension UbiquityContainer {
    /// What the query should find, by looking at every item that is not in the trash.
    func expected(_ query: DocumentQuery, in folder: String = "/") async throws -> [DocumentID: DocumentEntry] {
        let entries = try await (item(at: folder)?.kind == .folder ? items(in: folder) : []).filter { entry in
            query.predicate.compiled().matches { field in
                DocumentField(rawValue: field.rawValue).flatMap { entry.value(of: $0) }
            }
        }
        return Dictionary(entries.map { ($0.id, $0) }) { $1 }
    }
}
