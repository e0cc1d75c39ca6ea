import NephosKit

// What docs/records.md shows, to the letter and in its order: ``DocumentTests`` compares the two.
func saveAndQuery(session: Session) async throws {
    let database = try await session.recordContainer().privateDatabase
    try await database.ready()
    try await database.zones.make("work")
    var note = Record(RecordID("a", zone: "work"), type: "Note", fields: ["title": "one", "count": 1])
    // On this device's disk when this returns; sent when it can be.
    note = try await database.save(note)
    note["title"] = "two"
    try await database.save(note)
    let query = RecordQuery(type: "Note", try QueryPredicate(parsing: "count > 0"), sort: [RecordSort("title")])
    for record in try await database.records(matching: query, in: "work") { print(record) }
    // All zones; `zone: "work"` is that one alone.
    try await database.waitUntilSent()
}

func readOne(database: RecordDatabase) async throws {
    let id = RecordID("a", zone: "work")
    guard let note = try await database.record(id) else { return print("There is none.") }
    let title: String? = note["title"]
    print(title ?? "", note.isPending)
    let onTheServer = try await database.record(id, from: .server)
    print(onTheServer?.changeTag == note.changeTag)
}

func resolveAll(database: RecordDatabase) async throws {
    for conflict in try await database.conflicts.list() {
        guard var merged = conflict.server, let mine = conflict.client else {
            try await database.conflicts.resolve(conflict, keeping: .client)
            continue
        }
        for field in mine.changedFields { merged.fields[field] = mine.fields[field] }
        try await database.conflicts.resolve(conflict, keeping: .merged(merged))
    }
}

func assets(database: RecordDatabase) async throws {
    var note = Record(RecordID("photo"), type: "Note")
    // Or RecordAsset(data).
    note["photo"] = try await RecordAsset(contentsOf: URL(fileURLWithPath: "/tmp/photo.jpg"))
    note = try await database.save(note)
    // Its length is here; its bytes are fetched when they are wanted.
    guard let photo: RecordAsset = note["photo"] else { return }
    let data = try await database.assets.data(of: photo, in: note.id)
    print(data.count)
    try await database.assets.download(photo, of: note.id, to: URL(fileURLWithPath: "/tmp/copy.jpg")) { done, all in
        print("\(done) of \(all)")
    }
}

func shared(session: Session) async throws {
    let shared = try await session.recordContainer().publicDatabase
    try await shared.save(Record(RecordID("sea"), type: "Place", fields: ["title": "Sea"]))
    let query = RecordQuery(type: "Place", try QueryPredicate(parsing: "title ==[c] 'sea'"))
    print(try await shared.records(matching: query))
    // Or else the server is asked.
    try await shared.keepCopy()
}

func withoutAccount(session: Session, connection: ConnectionString, token: String) async throws {
    try await session.usePublicDatabase(connection: connection, appToken: token)
    let places = try await session.recordContainer().publicDatabase.records(matching: RecordQuery(type: "Place"))
    print(places)
}
