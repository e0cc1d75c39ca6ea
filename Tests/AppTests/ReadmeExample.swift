import NephosKit

// What README shows of an app, to the letter: ``DocumentTests`` compares the two.
func readmeExample() async throws {
    let session = try await Session.open()
    if try session.account == nil {
        try await session.signIn(connection: "nephos://...", account: "anna", password: "...")
    }
    let store = try session.keyValueStore()
    try await store.ready()

    try store.set("dark", forKey: "theme")
    try store.transaction { t in
        let starts = t.integer(forKey: "starts") ?? 0
        try t.set(starts + 1, forKey: "starts")
        t.removeValue(forKey: "old")
    }
    for await change in store.changes {
        print(change.reason, change.changedKeys)
    }
}
