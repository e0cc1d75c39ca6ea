import NephosKit

// The samples of docs/sdk.md, verbatim and in their order: ``DocumentTests`` compares the two.
func signIn(connection: String, password: String) async throws {
    let session = try await Session.open()
    if try session.account == nil {
        try await session.signIn(connection: connection, account: "anna", password: password)
    }
    let store = try session.keyValueStore()
    try await store.ready()
}

func save(store: KeyValueStore) throws {
    try store.set("dark", forKey: "theme")
    try store.set(3, forKey: "starts")
    try store.set(Date(), forKey: "last")
    try store.set(["anna": 3, "ben": 5], forKey: "scores")
    try store.set(["size": 12, "font": "Serif"], forKey: "text")
    try store.set(nil, forKey: "isNew")
}

func read(store: KeyValueStore) throws {
    let theme = store.string(forKey: "theme") ?? "light"
    let starts = store.integer(forKey: "starts")
    let isNew = store.bool(forKey: "isNew")
    let last = store.date(forKey: "last")
    print(theme, starts ?? 0, isNew, last as Any)
    switch try store.read("theme") {
    case .value(let value): print("The theme is \(value).")
    case .absent: print("There is none.")
    case .notDownloadedYet: print("This device has not downloaded the store yet.")
    }
}

struct Settings: Codable {
    enum Theme: String, Codable { case light, dark }
    var theme: Theme
    var pinned: [String]
    var opened: Date?
}

func saveSettings(store: KeyValueStore) throws {
    try store.set(Settings(theme: .dark, pinned: ["a"]), forKey: "settings")
    let settings = try store.value(Settings.self, forKey: "settings")
    print(settings?.pinned ?? [])
}

func changeTogether(store: KeyValueStore) throws {
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
        case .quotaViolationChange: print("Rejected: \(change.changedKeys), \(change.error as Any)")
        case .accountChange: print("The account has changed. Read everything again.")
        }
    }
}

func saveAndReadFiles(session: Session) async throws {
    let container = try await session.container()
    try await container.ready()
    try await container.put(Data("Dear Ben".utf8), at: "Letters/ben.txt", makesFolders: true)
    try await container.localFiles.put(URL(fileURLWithPath: "/tmp/photo.jpg"), at: "photo.jpg")
    let letter = try await container.read("Letters/ben.txt")
    print(String(decoding: letter, as: UTF8.self))
    try await container.localFiles.get("photo.jpg", to: URL(fileURLWithPath: "/tmp/copy.jpg"))
}

func listFiles(in container: UbiquityContainer) async throws {
    for entry in try await container.children(of: "Letters") { print(entry) }
    for try await event in try container.query("name LIKE '*.txt'", sortedBy: [DocumentSort(.modified)]) {
        switch event {
        case .gathered(let entries): print(entries)
        case .finishedGathering: print("That is all.")
        case .updated(let update): print(update.added, update.changed, update.removed.map(\.path))
        }
    }
}

func moveAndDelete(in container: UbiquityContainer) async throws {
    try await container.makeFolder(at: "Archive")
    try await container.move("Letters/ben.txt", to: "Archive/ben.txt")
    try await container.copy("photo.jpg", to: "photo 2.jpg")
    let batch = try await container.trash(["photo 2.jpg"])
    try await container.trash.restore(batch)
}

func download(from container: UbiquityContainer) async throws {
    try await container.downloads.start("Photos")
    try await container.downloads.pin("Letters")
    for entry in try await container.children(of: "Photos") { print(entry.name, entry.download.percent) }
    try await container.downloads.evict("Photos/old.jpg")
}

func resolveConflicts(of container: UbiquityContainer) async throws {
    for file in try await container.conflicts.list() {
        let versions = try await container.conflicts.versions(of: file.id)
        let newest = versions.max { $0.modified < $1.modified }
        try await container.conflicts.resolve(file.id, keeping: newest?.id, keepsOthers: true)
    }
}

func restoreVersion(in container: UbiquityContainer) async throws {
    let versions = try await container.versions.list(of: "Letters/ben.txt")
    if let former = versions.first(where: { $0.standing == .former }) {
        try await container.versions.restore(former.id, of: "Letters/ben.txt")
    }
}

func shareLink(in container: UbiquityContainer) async throws {
    let link = try await container.links.publish("photo.jpg", expiresAfter: .seconds(86400))
    print(link.url as Any, link.expires)
    try await container.links.unpublish(link.id)
}

func pauseFile(in container: UbiquityContainer, text: Data) async throws {
    try await container.pauses.pause("Letters/ben.txt")
    try await container.put(text, at: "Letters/ben.txt")
    try await container.pauses.resume("Letters/ben.txt", with: .preserveLocalChanges)
}

func savePackage(in container: UbiquityContainer) async throws {
    try await container.localFiles.putPackage(URL(fileURLWithPath: "/tmp/trip.bundle"), at: "trip.bundle")
    for member in try await container.packages.members(of: "trip.bundle") where member.kind == .file {
        let data = try await container.packages.read(member, of: "trip.bundle")
        print(member.path, data.count)
    }
}

func waitForSync(of store: some SyncedStore) async throws {
    try await store.ready()
    try await store.waitUntilSent()
    try await store.waitUntilCurrent()
    print(try await store.status())
    for conflict in try await store.conflicts.list() { print(conflict) }
    for try await change in store.changes { print(change) }
}

func offline(store: KeyValueStore) async throws {
    let status = try await store.status()
    print(status.isInSync, status.problem?.message ?? "")
    for pending in status.pending { print(pending.keys, pending.reason, pending.blocker) }
    for rejected in status.refused { print(rejected.key, rejected.error) }
}

func errors(store: KeyValueStore, text: String) async {
    do {
        try store.set(text, forKey: "note")
        try await store.waitUntilSent(timeout: .seconds(10))
    } catch {
        switch error.code {
        case .quotaExceeded: print("Too much: \(error.details["limit"] ?? ""). Store less.")
        case .deadlineExceeded: print("It is saved here, and is sent later: \(error.details["reason"] ?? "")")
        default: print(error.message)
        }
    }
}
