import Foundation
import NephosKit

private func run(_ arguments: [String]) async throws {
    let isDownload = arguments.first == "get"
    guard arguments.count == (isDownload ? 2 : 1) else { fail("photo-drop FOLDER | photo-drop get FOLDER") }
    let folder = URL(fileURLWithPath: arguments[arguments.count - 1], isDirectory: true)

    // `nephos sign-in` has signed this device in: programs can share a home.
    let container = try await Session.open().container()
    try await container.ready()
    let album = Album(container: container)
    print(isDownload ? "Downloading. Ctrl-C ends this." : "Watching \(folder.path). Ctrl-C ends this.")
    if isDownload { return try await album.download(to: folder) }
    async let progress: Void = album.showUploads()
    try await album.upload(from: folder)
    try await progress
}

private func fail(_ message: String) -> Never {
    FileHandle.standardError.write(Data((message + "\n").utf8))
    exit(1)
}

do {
    try await run(Array(CommandLine.arguments.dropFirst()))
} catch let error as CloudError {
    fail(error.message)
} catch {
    fail(error.localizedDescription)
}
