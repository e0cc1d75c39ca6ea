import NephosKit

// What docs/sdk.md shows, to the letter and in its order: ``DocumentTests`` compares the two.
func signIn(connection: String, password: String) async throws {
    let session = try await Session.open()
    if try session.account == nil {
        try await session.signIn(connection: connection, account: "anna", password: password)
    }
    let store = try session.keyValueStore()
    try await store.ready()
}

func openSecondHome(connection: String, password: String) async throws {
    let home = URL(fileURLWithPath: "/var/lib/my-app/second")
    let second = try await Session.open(home: home)
    try await second.signIn(connection: connection, account: "anna", password: password, deviceName: "second")
    print(second.home.path)
    second.close()
}

func keepInStep(store: some SyncedStore) async throws {
    try await store.ready()
    try await store.waitUntilSent()
    try await store.waitUntilCurrent()
    print(try await store.status())
    for conflict in try await store.conflicts.list() { print(conflict) }
    for try await change in store.changes { print(change) }
}

func read(store: KeyValueStore) throws {
    let theme = store.string(forKey: "theme") ?? "light"
    let starts = store.integer(forKey: "starts")
    let isNew = store.bool(forKey: "isNew")
    let last = store.date(forKey: "last")
    let scores = try store.value([String: Int].self, forKey: "scores")
    print(theme, starts ?? 0, isNew, last as Any, scores ?? [:])
}

func tell(store: KeyValueStore) throws {
    switch try store.read("theme") {
    case .value(let value): print("The theme is \(value).")
    case .absent: print("There is none.")
    case .notDownloadedYet: print("This device does not know yet.")
    }
}

func write(store: KeyValueStore) throws {
    try store.set("dark", forKey: "theme")
    try store.set(3, forKey: "starts")
    try store.set(Date(), forKey: "last")
    try store.set(["anna": 3, "bert": 5], forKey: "scores")
    try store.set(["size": 12, "font": "Serif"], forKey: "text")
    try store.set(nil, forKey: "isNew")
}

struct Settings: Codable {
    enum Theme: String, Codable { case light, dark }
    var theme: Theme
    var pinned: [String]
    var opened: Date?
}

func settings(store: KeyValueStore) throws {
    try store.set(Settings(theme: .dark, pinned: ["a"]), forKey: "settings")
    let settings = try store.value(Settings.self, forKey: "settings")
    print(settings?.pinned ?? [])
}

func transaction(store: KeyValueStore) throws {
    try store.transaction { t in
        let starts = t.integer(forKey: "starts") ?? 0
        try t.set(starts + 1, forKey: "starts")
        t["last"] = .date(Date())
        t["isNew"] = nil
    }
}

func follow(store: KeyValueStore) async throws {
    for await change in store.changes {
        switch change.reason {
        case .serverChange, .initialSyncChange: print("Now different: \(change.changedKeys)")
        case .quotaViolationChange: print("Refused: \(change.changedKeys), \(change.error as Any)")
        case .accountChange: print("Somebody else is signed in. Read everything again.")
        }
    }
}

func errors(store: KeyValueStore, text: String) async {
    do {
        try store.set(text, forKey: "note")
        try await store.waitUntilSent(timeout: .seconds(10))
    } catch {
        switch error.code {
        case .quotaExceeded: print("Too much: \(error.details["limit"] ?? ""). Store less.")
        case .deadlineExceeded: print("It is kept, and is sent later: \(error.details["reason"] ?? "")")
        default: print(error.message)
        }
    }
}

func offline(store: KeyValueStore) async throws {
    let status = try await store.status()
    print(status.isInSync, status.problem?.message ?? "")
    for pending in status.pending { print(pending.keys, pending.reason, pending.blocker) }
    for refused in status.refused { print(refused.key, refused.error) }
}

func putAndRead(session: Session) async throws {
    let container = try await session.container()
    try await container.put(Data("Dear Bert".utf8), at: "Letters/bert.txt", makesFolders: true)
    try await container.localFiles.put(URL(fileURLWithPath: "/tmp/photo.jpg"), at: "photo.jpg")
    for entry in try await container.children(of: "Letters") { print(entry) }
    let letter = try await container.read("Letters/bert.txt")
    print(String(decoding: letter, as: UTF8.self))
    try await container.localFiles.get("photo.jpg", to: URL(fileURLWithPath: "/tmp/copy.jpg"))
    try await container.waitUntilSent()
}

func followTexts(in container: UbiquityContainer) async throws {
    for try await event in try container.query("name LIKE '*.txt'", sortedBy: [DocumentSort(.modified)]) {
        switch event {
        case .gathered(let entries): print(entries)
        case .finishedGathering: print("That is all.")
        case .updated(let update): print(update.added, update.changed, update.removed.map(\.path))
        }
    }
}

func resolveConflicts(of container: UbiquityContainer) async throws {
    for file in try await container.conflicts.list() {
        let versions = try await container.conflicts.versions(of: file.id)
        let newest = versions.max { $0.modified < $1.modified }
        try await container.conflicts.resolve(file.id, keeping: newest?.id, keepsOthers: true)
    }
}
