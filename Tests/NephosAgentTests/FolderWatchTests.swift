import Foundation
import NephosCore
import NephosFiles
import Testing

@testable import NephosAgent

@Suite struct FolderWatchTests {
    /// A folder may get another id between an event and the pass that takes it, for example since two devices have made it.
    @Test(arguments: [true, false]) func noEventIsLostWithAFoldersId(isRenamed: Bool) async throws {
        let path = NSTemporaryDirectory() + "/nephos-watch-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: path) }
        let folder = try HeldFolder(path: path)
        var random = SystemRandomNumberGenerator()
        let (old, new) = (DocumentID.random(using: &random), DocumentID.random(using: &random))
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        let watch = FolderWatch { continuation.yield() }
        watch.watch(folder, as: old)
        try FileManager.default.createDirectory(atPath: path + "/made", withIntermediateDirectories: false)
        for await _ in stream { break }
        if isRenamed { watch.rename(old, to: new) } else { watch.watch(folder, as: new) }
        #expect(watch.takeEvents().dirty[new]?.contains(FileName("made".utf8)) == true)
        try FileManager.default.createDirectory(atPath: path + "/later", withIntermediateDirectories: false)
        for await _ in stream { break }
        #expect(watch.takeEvents().dirty[new]?.contains(FileName("later".utf8)) == true)
    }
}
