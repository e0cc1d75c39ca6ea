import Foundation
import NephosKit

/// Opens this device's home, and signs in the first time.
func openNotes() async throws(CloudError) -> RecordDatabase {
    let session = try await Session.open()
    if try session.account == nil {
        let environment = ProcessInfo.processInfo.environment
        try await session.signIn(
            connection: environment["CONNECTION"] ?? "", account: environment["ACCOUNT"] ?? "",
            password: environment["PASSWORD"] ?? "")
    }
    let notes = try await session.recordContainer().privateDatabase
    try await notes.ready()
    return notes
}

extension Record {
    var text: String { self["text"] ?? "" }
}

/// Saves a note: a new record, or the record of this name with another text.
func write(_ text: String, to name: String, in notes: RecordDatabase) async throws(CloudError) {
    var note = try await notes.record(RecordID(name)) ?? Record(RecordID(name), type: "Note")
    note["text"] = text
    try await notes.save(note)
    await sync(notes)
}

/// Sends pending changes and fetches new ones.
func sync(_ notes: RecordDatabase) async {
    do throws(CloudError) {
        try await notes.waitUntilSent(isImpatient: true)
        try await notes.waitUntilCurrent(isImpatient: true)
    } catch { print("Not in sync. \(error.message)") }
}

func list(_ notes: RecordDatabase) async throws(CloudError) {
    await sync(notes)
    for note in try await notes.records(matching: RecordQuery(type: "Note")) { print(note.id, note.text) }
    for conflict in try await notes.conflicts.list() { print("Conflict in", conflict.id) }
}

/// Shows each note that another device saves, until you end the program.
func follow(_ notes: RecordDatabase) async throws(CloudError) {
    let changes = notes.changes
    print("Waiting for notes")
    for await change in changes {
        for note in try await notes.records(change.changed).values { print(note.id, note.text) }
    }
}

/// Resolves each conflict: the note gets both texts.
func merge(_ notes: RecordDatabase) async throws(CloudError) {
    for conflict in try await notes.conflicts.list() {
        guard var both = conflict.server, let mine = conflict.client else { continue }
        both["text"] = "\(both.text) + \(mine.text)"
        try await notes.conflicts.resolve(conflict, keeping: .merged(both))
    }
    try await list(notes)
}

let words = CommandLine.arguments
do throws(CloudError) {
    let notes = try await openNotes()
    switch words.dropFirst().first {
    case "write" where words.count == 4: try await write(words[3], to: words[2], in: notes)
    case "follow": try await follow(notes)
    case "merge": try await merge(notes)
    default: try await list(notes)
    }
} catch { print(error.message) }
