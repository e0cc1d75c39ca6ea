import Foundation
import NephosKit

private let usage = """
    notes sign-in CONNECTION ACCOUNT   Sign this device in, with the password in NEPHOS_PASSWORD.
    notes list                         List the notes.
    notes add TITLE TEXT               Add a note.
    notes edit TITLE TEXT              Change the text of a note.
    notes order title|newest           Choose the order of the list on all devices.
    notes follow                       Show the list after each change of another device.
    """

private func run(_ arguments: [String]) async throws(CloudError) {
    let session = try await Session.open()
    if arguments.first == "sign-in", arguments.count == 3 {
        let password = ProcessInfo.processInfo.environment["NEPHOS_PASSWORD"] ?? ""
        try await session.signIn(connection: arguments[1], account: arguments[2], password: password)
        return print("This device is signed in.")
    }
    let notebook = try await Notebook(session)
    let changes = notebook.changes
    switch (arguments.first, arguments.count) {
    case ("list", 1), ("follow", 1): break
    case ("add", 3): try await notebook.add(Note(title: arguments[1], text: arguments[2]))
    case ("edit", 3): try await notebook.edit(Note(title: arguments[1], text: arguments[2]))
    case ("order", 2): try notebook.setOrder(arguments[1])
    default: fail(usage)
    }
    // The change is saved on this device already, so being offline is no error.
    do { try await notebook.sync() } catch { print("Not in sync. \(error.message)") }
    try await show(notebook)
    if arguments.first == "follow" {
        for await _ in changes { try await show(notebook) }
    }
}

private func show(_ notebook: Notebook) async throws(CloudError) {
    print("Notes by \(notebook.order):")
    for note in try await notebook.list() { print("  \(note.title): \(note.text)") }
}

private func fail(_ message: String) -> Never {
    FileHandle.standardError.write(Data((message + "\n").utf8))
    exit(1)
}

do { try await run(Array(CommandLine.arguments.dropFirst())) } catch { fail(error.message) }
