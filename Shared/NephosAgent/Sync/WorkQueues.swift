internal import NephosCore
internal import NephosFiles

/// A name in a folder of the tree.
struct Place: Hashable, Sendable {
    var folder: DocumentID
    var name: FileName
}

extension FileName {
    /// The name for output.
    var text: String { String(decoding: self, as: UTF8.self) }
}

/// Folders on disk that have to be looked at, the oldest first.
struct DirtyFolders: Sendable {
    struct Look: Sendable {
        var folder: DocumentID
        var names: DirtyNames
        /// Whether everything beneath is looked at too, and files whose stamps prove nothing are read.
        var isDeep: Bool
    }

    private var looks: [DocumentID: Look] = [:]
    private var order: [DocumentID] = []

    var count: Int { looks.count }
    var isEmpty: Bool { looks.isEmpty }

    mutating func insert(_ folder: DocumentID, _ names: DirtyNames = .all, isDeep: Bool = false) {
        guard var look = looks[folder] else {
            looks[folder] = Look(folder: folder, names: names, isDeep: isDeep)
            order.append(folder)
            return
        }
        look.names.formUnion(names)
        look.isDeep = look.isDeep || isDeep
        looks[folder] = look
    }

    /// - Parameter isDeep: Whether everything in the folder of this name is looked at, if it is one.
    mutating func insert(_ place: Place, isDeep: Bool = false) {
        insert(place.folder, DirtyNames(names: [place.name]), isDeep: isDeep)
    }

    /// The newest first: a tree is walked in depth, so that few folders are left at a time.
    mutating func popLast() -> Look? {
        while let id = order.popLast() {
            if let look = looks.removeValue(forKey: id) { return look }
        }
        return nil
    }

    mutating func rename(_ old: DocumentID, to new: DocumentID) {
        guard var look = looks.removeValue(forKey: old) else { return }
        look.folder = new
        insert(new, look.names, isDeep: look.isDeep)
    }
}

/// Items that are looked at again later: files that are being written, or could not be read.
struct LaterPlaces: Sendable {
    private struct Wait {
        var first: ContinuousClock.Instant
        var due: ContinuousClock.Instant
        var interval: Duration
        /// The end of the pause after a failure; writes do not shorten it.
        var notBefore: ContinuousClock.Instant?
    }

    /// How long a file must not be written to before it is read.
    static let calm = Duration.seconds(1)
    /// A file that is written without end is read after this time all the same.
    private static let calmMax = Duration.seconds(10)
    private static let retryMax = Duration.seconds(60)
    /// The same for a place that waits for other work of this agent, which is done soon.
    private static let waitMax = Duration.seconds(4)
    private var waits: [Place: Wait] = [:]
    /// The pauses of those that were taken last, for those that fail again.
    private var taken: [Place: Duration] = [:]

    var nextDue: ContinuousClock.Instant? { waits.values.map(\.due).min() }
    var count: Int { waits.count }
    var places: some Collection<Place> { waits.keys }

    /// A file was written to, and is still open.
    mutating func noteWritten(_ place: Place, _ now: ContinuousClock.Instant) {
        let wait = waits[place]
        let first = wait?.first ?? now
        let due = min(now + Self.calm, first + Self.calmMax)
        waits[place] = Wait(
            first: first, due: max(due, wait?.notBefore ?? due), interval: wait?.interval ?? Self.calm,
            notBefore: wait?.notBefore)
    }

    /// A look failed; the pause doubles each time.
    ///
    /// - Parameter isWaiting: Whether nothing is wrong, and other work of this agent comes first.
    mutating func noteFailed(_ place: Place, _ now: ContinuousClock.Instant, isWaiting: Bool = false) {
        let last = waits[place]?.interval ?? taken[place]
        let interval = last.map { min($0 * 2, isWaiting ? Self.waitMax : Self.retryMax) } ?? Self.calm
        waits[place] = Wait(first: now, due: now + interval, interval: interval, notBefore: now + interval)
    }

    mutating func remove(_ place: Place) { waits[place] = nil }

    mutating func rename(_ old: DocumentID, to new: DocumentID) {
        for (place, wait) in waits where place.folder == old {
            waits[place] = nil
            waits[Place(folder: new, name: place.name)] = wait
        }
    }

    /// Takes the places whose time has come. One that fails again has to be noted again: nothing waits for a place that has
    /// gone with its folder.
    mutating func takeDue(_ now: ContinuousClock.Instant) -> [Place] {
        let due = waits.filter { $0.value.due <= now }
        guard !due.isEmpty else { return [] }
        taken = due.mapValues(\.interval)
        for place in due.keys { waits[place] = nil }
        return Array(due.keys)
    }
}

/// Items of the container that have to be compared with the disk.
struct RemoteWork: Sendable {
    private(set) var items: Set<DocumentID> = []
    /// Folders whose items are compared, with whether their folders are too.
    private(set) var folders: [(id: DocumentID, isDeep: Bool)] = []
    /// Items that could not be placed in the last pass, for example since a new local file has their name.
    var postponed: [DocumentID: Place] = [:]

    var count: Int { items.count + folders.count + postponed.count }
    /// Whether only postponed items are left.
    var isEmpty: Bool { items.isEmpty && folders.isEmpty }

    mutating func insert(_ id: DocumentID) { items.insert(id) }
    mutating func insert(_ ids: some Sequence<DocumentID>) { items.formUnion(ids) }
    mutating func compare(_ folder: DocumentID, isDeep: Bool = true) { folders.append((folder, isDeep)) }

    mutating func popFolder() -> (id: DocumentID, isDeep: Bool)? { folders.popLast() }

    mutating func popItems(max: Int) -> [DocumentID] {
        guard items.count > max else {
            defer { items = [] }
            return Array(items)
        }
        let some = Array(items.prefix(max))
        items.subtract(some)
        return some
    }
}
