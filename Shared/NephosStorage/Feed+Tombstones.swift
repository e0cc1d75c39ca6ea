public import NephosCore

/// What is kept of deletions: by age, and of each scope so many.
extension Feed {
    private static let tombstonesMax = 4096
    /// Of an app's: everybody deletes there, and nobody is to end the places of all by that.
    private static let tombstonesOfAppMax = 1 << 18
    /// That are forgotten at once besides those that there are too many: with them their rows' time is paid for.
    private static let forgottenMax = 512

    /// Tombstones of one scope. With more, some of the oldest are forgotten, and a reader whose token is from before them
    /// has to fetch everything.
    public static func tombstonesMax(of scope: ScopeName) -> Int {
        scope.owner.isApp ? tombstonesOfAppMax : tombstonesMax
    }

    public func keepTombstones(of scope: ScopeName, atMost max: Int) throws {
        let place = try place(of: scope)
        guard let id = heads.scopes[place].id else { return }
        try forgetTombstones(ofScopeAt: place, id, beyond: max)
    }

    func forgetTombstones(ofScopeAt place: Int, _ id: Int64, beyond max: Int) throws {
        guard heads.scopes[place].tombstones > max else { return }
        let count = heads.scopes[place].tombstones - max + min(max / 8, Self.forgottenMax)
        // Those first whose end expires no reader's token.
        var oldest = try tombstones(FeedStatements.hiddenTombstonesOfScope, id, count)
        oldest += try tombstones(FeedStatements.tombstonesOfScope, id, count - oldest.count)
        for tombstone in oldest {
            try removeItem(id, tombstone.name)
        }
        heads.change(scope: place) {
            $0.tombstones -= oldest.count
            $0.floor = Swift.max($0.floor, oldest.last?.floor ?? 0)
        }
    }

    /// - Returns: Their names, and up to where tokens expire without them.
    private func tombstones(
        _ statement: SQL, _ id: Int64, _ limit: Int
    ) throws -> [(name: ItemName, floor: UInt64)] {
        guard limit > 0 else { return [] }
        return try all(statement, [.integer(id), .integer(Int64(limit))]) {
            (name: ItemName($0.text(0)), floor: UInt64(Swift.max(0, $0.integer(1))))
        }
    }

    /// Removes tombstones recorded before the time, oldest first, at most
    /// `limit` in one call, and raises the floors of their scopes, but for
    /// what no reader was told of. A reader whose token is below the floor has
    /// to fetch everything.
    ///
    /// - Returns: Whether there may be more; call again in a later group.
    public func compactTombstones(before time: Timestamp, limit: Int) throws -> Bool {
        let limit = max(1, limit)
        let found = try all(
            FeedStatements.tombstones, [.integer(Int64(clamping: time.milliseconds)), .integer(Int64(limit))]
        ) { (scope: $0.integer(0), name: ItemName($0.text(1)), sequence: UInt64(max(0, $0.integer(2)))) }
        var floors: [Int64: (sequence: UInt64, count: Int)] = [:]
        for tombstone in found {
            try removeItem(tombstone.scope, tombstone.name)
            let known = floors[tombstone.scope] ?? (0, 0)
            floors[tombstone.scope] = (max(known.sequence, tombstone.sequence), known.count + 1)
        }
        for (scope, floor) in floors.sorted(by: { $0.key < $1.key }) {
            try raiseFloor(ofScopeWithID: scope, to: floor.sequence, forgetting: floor.count)
        }
        return found.count == limit
    }
}
