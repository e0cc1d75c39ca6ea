internal import NephosCore

/// A partition, as one group sees it.
struct PartitionState {
    /// The greatest of its scopes' heads; only what else changes is written to its own row.
    var sequence: UInt64 = 0
    var epochStart: UInt64 = 0
    /// Scopes ever made here; gives the next one its id.
    var scopeCount: Int64 = 0
    var isChanged = false
}

/// A scope's row, as one group sees it.
struct ScopeState {
    var name: ScopeName
    var partition: Int
    /// Nil until something is written in the scope.
    var id: Int64?
    var isStored = false
    var isChanged = false

    var sequence: UInt64 = 0
    var floor: UInt64 = 0
    var digest = SetDigest.empty
    var liveCount = 0
    var liveBytes = 0
    var tombstones = 0
    var metadata: [UInt8] = []
}

/// The heads that groups have read, and those that this group has changed. A part of ``FeedCache``.
final class FeedHeads {
    private(set) var scopes: [ScopeState] = []
    private(set) var partitions = [PartitionState?](repeating: nil, count: partitionCount)
    /// Whose rows have to be written before the commit.
    private(set) var changedScopes: [Int] = []
    private(set) var changedPartitions: [Int] = []
    private var places: [ScopeName: Int] = [:]
    private var latest = 0
    /// Each partition that has a row is among them.
    private(set) var hasAllPartitions = false

    /// A request asks for the same scope several times, and so do its neighbours.
    func place(of name: ScopeName) -> Int? {
        if latest < scopes.count, scopes[latest].name == name { return latest }
        guard let place = places[name] else { return nil }
        latest = place
        return place
    }

    func add(_ scope: ScopeState) -> Int {
        scopes.append(scope)
        places[scope.name] = scopes.count - 1
        return scopes.count - 1
    }

    func add(_ partition: PartitionState, at number: Int) { partitions[number] = partition }

    /// All rows were read: what is not there has never changed.
    func noteAllPartitions() {
        for number in partitions.indices where partitions[number] == nil { partitions[number] = PartitionState() }
        hasAllPartitions = true
    }

    // Both in place at the caller's: the compiler sees what is changed, and has less checked while it runs.
    @inline(__always)
    func change(scope place: Int, _ change: (inout ScopeState) -> Void) {
        if !scopes[place].isChanged {
            scopes[place].isChanged = true
            changedScopes.append(place)
        }
        change(&scopes[place])
    }

    @inline(__always)
    func change(partition number: Int, _ change: (inout PartitionState) -> Void) {
        var state = partitions[number] ?? PartitionState()
        if !state.isChanged {
            state.isChanged = true
            changedPartitions.append(number)
        }
        change(&state)
        partitions[number] = state
    }

    /// Its scopes' rows will say so.
    func advance(partition number: Int, to sequence: UInt64) { partitions[number]?.sequence = sequence }

    /// Its row was removed; nothing of it waits to be written.
    func forget(scopeWithID id: Int64) {
        guard let place = scopes.firstIndex(where: { $0.id == id }) else { return }
        scopes[place] = ScopeState(name: scopes[place].name, partition: scopes[place].partition)
    }

    func removeAll() {
        scopes.removeAll(keepingCapacity: true)
        for number in partitions.indices { partitions[number] = nil }
        hasAllPartitions = false
        changedScopes.removeAll(keepingCapacity: true)
        changedPartitions.removeAll(keepingCapacity: true)
        places.removeAll(keepingCapacity: true)
    }

    /// The rows of all that was changed are written.
    func noteStored() {
        for place in changedScopes {
            scopes[place].isStored = true
            scopes[place].isChanged = false
        }
        for number in changedPartitions { partitions[number]?.isChanged = false }
        changedScopes.removeAll(keepingCapacity: true)
        changedPartitions.removeAll(keepingCapacity: true)
    }
}
