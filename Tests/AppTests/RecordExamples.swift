import NephosKit

// The samples of docs/records.md, verbatim and in their order: ``DocumentTests`` compares the two.
func openDatabase(session: Session) async throws {
    let database = try await session.recordContainer().privateDatabase
    try await database.ready()
}

func saveOne(database: RecordDatabase) async throws {
    var note = Record(RecordID("a"), type: "Note", fields: ["title": "one", "count": 1])
    note = try await database.save(note)
    note["title"] = "two"
    try await database.save(note)
}

struct Note: Codable {
    var title: String
    var count: Int
}

func saveNote(database: RecordDatabase) async throws {
    let record = try Record(type: "Note", encoding: Note(title: "three", count: 3))
    try await database.save(record)
    let note = try record.decode(Note.self)
    print(note.title)
}

func readOne(database: RecordDatabase) async throws {
    let id = RecordID("a", zone: "work")
    guard let note = try await database.record(id) else { return print("There is none.") }
    let title: String? = note["title"]
    print(title ?? "", note.isPending)
    let onTheServer = try await database.record(id, from: .server)
    print(onTheServer?.changeTag == note.changeTag)
}

func query(database: RecordDatabase) async throws {
    let query = RecordQuery(type: "Note", try QueryPredicate(parsing: "count > 0"), sort: [RecordSort("title")])
    for record in try await database.records(matching: query) { print(record) }
    for try await page in database.pages(matching: query) { print(page.count) }
}

func follow(database: RecordDatabase) async throws {
    for await change in database.changes {
        if let error = change.error { print("Not saved: \(error.message)") }
        print(change.zone, change.changed, change.deleted)
    }
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

func dismissRejected(database: RecordDatabase) async throws {
    let rejected = try await database.conflicts.rejected()
    for change in rejected { print(change.id, change.error.message) }
    try await database.conflicts.dismissRejected(rejected)
}

func saveTogether(database: RecordDatabase) async throws {
    let first = Record(RecordID("first"), type: "Note", fields: ["title": "one"])
    let second = Record(RecordID("second"), type: "Note", fields: ["title": "two"])
    try await database.modify(saving: [first, second], deleting: [RecordID("a")])
}

func useZones(database: RecordDatabase) async throws {
    try await database.zones.make("work")
    try await database.save(Record(RecordID("a", zone: "work"), type: "Note"))
    try await database.waitUntilSent(zone: "work")
    for zone in try await database.zones.list() { print(zone.name) }
}

func refer(database: RecordDatabase) async throws {
    let list = Record(RecordID("groceries"), type: "List")
    let item = Record(type: "Item", fields: ["list": .reference(RecordReference("groceries", deletesSelf: true))])
    try await database.modify(saving: [list, item], deleting: [])
    let query = RecordQuery(type: "Item", try QueryPredicate(parsing: "list == 'groceries'"))
    print(try await database.records(matching: query))
}

func assets(database: RecordDatabase) async throws {
    var note = Record(RecordID("photo"), type: "Note")
    // Or RecordAsset(data).
    note["photo"] = try await RecordAsset(contentsOf: URL(fileURLWithPath: "/tmp/photo.jpg"))
    note = try await database.save(note)
    // Other devices have the length, and download the bytes when they read them.
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
    try await shared.keepCopy()
}

func withoutAccount(session: Session, connection: ConnectionString, token: String) async throws {
    try await session.usePublicDatabase(connection: connection, appToken: token)
    let places = try await session.recordContainer().publicDatabase.records(matching: RecordQuery(type: "Place"))
    print(places)
}

func setRoles(shared: RecordDatabase) async throws {
    print(try await shared.roles())
    try await shared.modifyRoles(saving: [RecordTypeRoles(type: "Report", everyone: [])])
}
