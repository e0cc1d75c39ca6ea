internal import Core

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
    var metadata: [UInt8] = []
}

/// Names a scope by its bytes. Swift's strings are equal when they look alike;
/// the database's are not, and two scopes must never share a head.
struct ScopeKey: Hashable {
    let name: ScopeName

    static func == (left: ScopeKey, right: ScopeKey) -> Bool {
        left.name.name.hasSameBytes(as: right.name.name)
            && left.name.account.rawValue.hasSameBytes(as: right.name.account.rawValue)
    }

    func hash(into hasher: inout Hasher) {
        var account = name.account.rawValue
        account.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        hasher.combine(0 as UInt8)
        var scope = name.name
        scope.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}

/// The heads a group has read and changed, and what they were before each attempt.
///
/// Kept apart from the SQL: this is the part that a rollback to a savepoint
/// has to undo by itself.
struct FeedHeads {
    private enum Undo {
        case scope(Int, ScopeState)
        case partition(Int, PartitionState)
    }

    private(set) var scopes: [ScopeState] = []
    private(set) var partitions = [PartitionState?](repeating: nil, count: partitionCount)
    private var places: [ScopeKey: Int] = [:]
    private var undo: [Undo] = []
    private var depth = 0
    private var latest = 0

    /// A request asks for the same scope several times, and so do its neighbours.
    mutating func place(of name: ScopeName) -> Int? {
        let key = ScopeKey(name: name)
        if latest < scopes.count, ScopeKey(name: scopes[latest].name) == key { return latest }
        guard let place = places[key] else { return nil }
        latest = place
        return place
    }

    mutating func add(_ scope: ScopeState) -> Int {
        scopes.append(scope)
        places[ScopeKey(name: scope.name)] = scopes.count - 1
        return scopes.count - 1
    }

    mutating func add(_ partition: PartitionState, at number: Int) { partitions[number] = partition }

    mutating func change(scope place: Int, _ change: (inout ScopeState) -> Void) {
        if depth > 0 { undo.append(.scope(place, scopes[place])) }
        change(&scopes[place])
    }

    mutating func change(partition number: Int, _ change: (inout PartitionState) -> Void) {
        var state = partitions[number] ?? PartitionState()
        if depth > 0 { undo.append(.partition(number, state)) }
        change(&state)
        partitions[number] = state
    }

    /// Begins an attempt. Returns the mark to give to ``end(_:undoing:)``.
    mutating func begin() -> Int {
        depth += 1
        return undo.count
    }

    mutating func end(_ mark: Int, undoing: Bool) {
        depth -= 1
        if undoing {
            while undo.count > mark, let last = undo.popLast() {
                switch last {
                case .scope(let place, let state): scopes[place] = state
                case .partition(let number, let state): partitions[number] = state
                }
            }
        }
        if depth == 0 { undo.removeAll(keepingCapacity: true) }
    }
}
