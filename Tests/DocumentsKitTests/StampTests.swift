import Foundation
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Files that are put again are read only if something was done to them.
@Suite struct StampTests {
    /// Files are settled two seconds after their last change, by the clock of this machine.
    private func settle() async throws { try await Task.sleep(for: .milliseconds(2100)) }

    private func write(_ text: String, to file: String) throws {
        let handle = try FileHandle(forUpdating: URL(fileURLWithPath: file))
        try handle.write(contentsOf: Data(text.utf8))
        try handle.close()
    }

    @Test func whatWasPutIsReadAgainOnceItWasWritten() async throws {
        let file = NSTemporaryDirectory() + "nephos-stamp-" + UUID().uuidString
        defer { unlink(file) }
        #expect(FileManager.default.createFile(atPath: file, contents: Data("one".utf8)))
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let source = DocumentSource.file(file, at: "a")
            func put() async throws -> DocumentEntry {
                let results = try await one.container.localFiles.imports.putEach([source], makesFolders: false)
                return try #require(results.first).get()
            }
            try await settle()
            let first = try await put()
            #expect(try one.container.localFiles.imports.unchanged([source])[0]?.item == first.id)
            #expect(try await put().version == first.version)
            // Whose bytes the server has lost some of is read, so that it can be sent again.
            func setDamaged(_ isDamaged: Bool) throws {
                try one.session.local.write { database in
                    let rows = ScopeTransaction(
                        database, DocumentsModel.place(of: one.container.id, in: try Facts(database).session))
                    var state = try rows.state()
                    var info = try WireContainerInfo(serializedBytes: state.info)
                    info.lostChunks = isDamaged ? 1 : 0
                    state.info = try info.serializedData()
                    try rows.save(state)
                }
            }
            try setDamaged(true)
            #expect(try one.container.localFiles.imports.unchanged([source]).isEmpty)
            try setDamaged(false)
            // As many bytes, and the time of writing set back.
            var status = stat()
            #expect(stat(file, &status) == 0)
            try write("two", to: file)
            #expect(utimensat(AT_FDCWD, file, [status.st_atim, status.st_mtim], 0) == 0)
            #expect(try one.container.localFiles.imports.unchanged([source]).isEmpty)
            let second = try await put()
            #expect(second.version != first.version)
            try await one.settle()
            try await two.settle()
            #expect(try await two.text("a") == "two")
            // Another has written to it: the file has not its bytes any more.
            try await settle()
            _ = try await put()
            #expect(!(try one.container.localFiles.imports.unchanged([source])).isEmpty)
            try await two.container.put(Data("three".utf8), at: "a")
            try await two.settle()
            try await one.settle()
            // The file is as it was put, and the item is newer: nothing is put.
            #expect(!(try one.container.localFiles.imports.unchanged([source])).isEmpty)
            _ = try await put()
            #expect(try await one.text("a") == "three")
        }
    }

    /// What was written just now may be again without its times telling it.
    @Test func whatWasReadTooSoonIsReadAgain() {
        var status = stat()
        status.st_mtim = timespec(tv_sec: 1000, tv_nsec: 0)
        status.st_ctim = timespec(tv_sec: 1001, tv_nsec: 0)
        #expect(!FileStamp(status).isSettled(at: 1_003_000_000_000))
        #expect(FileStamp(status).isSettled(at: 1_003_000_000_001))
        var other = status
        other.st_ctim.tv_nsec = 1
        #expect(FileStamp(status) != FileStamp(other) && FileStamp(status).data != FileStamp(other).data)
    }

    @Test func whatWasGotIsNotReadAgain() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("one".utf8), at: "a")
            try await settle()
            try await one.settle()
            try await two.settle()
            let file = cloud.root + "/got"
            try await two.container.get("a", to: file)
            let source = DocumentSource.file(file, at: "a")
            #expect(try two.container.localFiles.imports.unchanged([source])[0] != nil)
            // As many bytes, at once, and the time of writing is that of now.
            try write("two", to: file)
            #expect(try two.container.localFiles.imports.unchanged([source]).isEmpty)
            #expect(try await two.container.put(file: file, at: "a").version != nil)
            #expect(try await two.text("a") == "two")
        }
    }

    /// A mode is no content.
    @Test func aModeIsTakenOver() async throws {
        let file = NSTemporaryDirectory() + "nephos-stamp-" + UUID().uuidString
        defer { unlink(file) }
        #expect(FileManager.default.createFile(atPath: file, contents: Data("one".utf8)))
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let source = DocumentSource.file(file, at: "a")
            let first = try #require(
                try await one.container.localFiles.imports.putEach([source], makesFolders: false).first
            ).get()
            #expect(chmod(file, 0o700) == 0)
            let second = try #require(
                try await one.container.localFiles.imports.putEach([source], makesFolders: false).first
            ).get()
            #expect(!first.isExecutable && second.isExecutable && first.version == second.version)
        }
    }

    @Test func whatWasWrittenJustBeforeItWasPutIsReadAgain() async throws {
        let file = NSTemporaryDirectory() + "nephos-stamp-" + UUID().uuidString
        defer { unlink(file) }
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            #expect(FileManager.default.createFile(atPath: file, contents: Data("one".utf8)))
            let source = DocumentSource.file(file, at: "a")
            _ = try await one.container.localFiles.imports.putEach([source], makesFolders: false)
            #expect(try one.container.localFiles.imports.unchanged([source]).isEmpty)
            try await settle()
            _ = try await one.container.localFiles.imports.putEach([source], makesFolders: false)
            #expect(try !one.container.localFiles.imports.unchanged([source]).isEmpty)
        }
    }

    /// What is written to a file in memory leaves no time with it while a page of it waits for the disk.
    @Test func whatIsWrittenInMemoryIsReadAgain() async throws {
        let file = NSTemporaryDirectory() + "nephos-stamp-" + UUID().uuidString
        defer { unlink(file) }
        #expect(FileManager.default.createFile(atPath: file, contents: Data("one".utf8)))
        let descriptor = open(file, O_RDWR)
        defer { close(descriptor) }
        let page = try #require(mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0))
        defer { munmap(page, 4096) }
        func write(_ text: String) { page.copyMemory(from: Array(text.utf8), byteCount: 3) }
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let source = DocumentSource.file(file, at: "a")
            write("two")
            try await settle()
            _ = try await one.container.localFiles.imports.putEach([source], makesFolders: false)
            #expect(try !one.container.localFiles.imports.unchanged([source]).isEmpty)
            write("six")
            _ = try await one.container.localFiles.imports.putEach([source], makesFolders: false)
            #expect(try await one.text("a") == "six")
        }
    }
}
