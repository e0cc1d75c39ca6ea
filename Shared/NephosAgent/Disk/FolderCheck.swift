internal import Foundation
package import NephosCore
internal import NephosFiles

/// Tries what a folder's file system can do for an agent, with files of its own that it removes.
package actor FolderCheck {
    package struct Result: Encodable, Sendable {
        /// The name of the test.
        package var test: String
        package var works: Bool
        /// The consequence if it does not work.
        package var without: String
        /// The agent cannot keep the folder without it.
        package var isRequired: Bool
    }

    private let folder: HeldFolder
    /// An agent that keeps the folder leaves it alone.
    private let name = FileName(".nephos-check-\(UUID().uuidString.lowercased()).nosync".utf8)
    private let executor = DiskExecutor(label: "nephos.agent.check")
    private var results: [Result] = []

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Throws: ``CloudError`` `.unknownItem` when there is no such folder.
    package init(path: String) throws(CloudError) {
        do { folder = try HeldFolder(path: path) } catch {
            throw CloudError(
                .unknownItem, "There is no such folder, or it cannot be opened.",
                details: ["folder": path, "reason": error.reason])
        }
    }

    /// - Throws: ``CloudError`` `.storageFailure` when nothing can be made in the folder.
    package func run() async throws(CloudError) -> [Result] {
        let own: HeldFolder
        do throws(FileFailure) {
            try folder.makeFolder(name, mode: 0o700)
            own = try folder.folder([name])
        } catch {
            throw CloudError(
                .storageFailure, "Nothing can be made in the folder. Check its disk, and who may write there.",
                details: ["reason": error.reason])
        }
        defer { folder.removeAll(name) }
        results = []
        tryRequired(own)
        tryNames(own)
        tryMetadata(own)
        await tryEvents(own)
        return results
    }

    private func test(
        _ test: String, without: String, isRequired: Bool = false, _ body: () throws -> Bool
    ) {
        results.append(
            Result(test: test, works: (try? body()) ?? false, without: without, isRequired: isRequired))
    }

    /// Makes an empty file.
    private static func make(_ name: FileName, in folder: HeldFolder) throws {
        close(try folder.makeFile(name, mode: 0o600))
    }

    private func tryRequired(_ own: HeldFolder) {
        let (one, other) = (FileName("one".utf8), FileName("other".utf8))
        test("rename without replacing", without: "the folder cannot be kept", isRequired: true) {
            try Self.make(one, in: own)
            try Self.make(other, in: own)
            do throws(FileFailure) { try own.move(one, to: own, as: other) } catch { return error.number == EEXIST }
            return false
        }
        test("exchange two files in one step", without: "the folder cannot be kept", isRequired: true) {
            try own.move(one, to: own, as: other, replacing: .exchange)
            return true
        }
        test("flush files and folders", without: "the folder cannot be kept", isRequired: true) {
            try own.flush()
            return FileSystem.flush(own.descriptor) == 0
        }
    }

    private func tryNames(_ own: HeldFolder) {
        func keeps(_ names: [FileName]) throws -> Bool {
            for name in names { try Self.make(name, in: own) }
            return Set(names).isSubset(of: Set(try own.names()))
        }
        test("names that differ only in case", without: "the second of two is blocked") {
            try keeps([FileName("case".utf8), FileName("CASE".utf8)])
        }
        test("the two forms of \u{e9}", without: "the second of two is blocked") {
            try keeps([[0xc3, 0xa9], [0x65, 0xcc, 0x81]])
        }
        test("names that are not UTF-8", without: "files with such names are blocked") { try keeps([[0xff, 0xfe]]) }
        test("names of 255 bytes", without: "files with such names are blocked") {
            try keeps([FileName(repeating: UInt8(ascii: "n"), count: 255)])
        }
        test("names that end in a dot or space", without: "files with such names are blocked") {
            try keeps([FileName("dot.".utf8), FileName("space ".utf8)])
        }
        test("symbolic links", without: "links are blocked") {
            let link = FileName("link".utf8)
            try own.makeLink(link, to: Array("target".utf8))
            return try own.linkTarget(link) == Array("target".utf8)
        }
    }

    private func tryMetadata(_ own: HeldFolder) {
        let name = FileName("facts".utf8)
        guard let descriptor = try? own.makeFile(name, mode: 0o600) else { return }
        defer { close(descriptor) }
        test("executable or not", without: "other devices' programs are not executable here") {
            guard try !own.facts(name).isExecutable, fchmod(descriptor, 0o700) == 0 else { return false }
            return try own.facts(name).isExecutable
        }
        test("extended attributes (user.*)", without: "they are not kept here") {
            try ExtendedAttributes.set(Array("user.nephos.check".utf8), to: [1], of: descriptor)
            return true
        }
        test("dates with fractions of a second", without: "more files are read again to find changes") {
            var times = [
                timespec(tv_sec: 1_000_000_000, tv_nsec: 123_456_700),
                timespec(tv_sec: 1_000_000_000, tv_nsec: 123_456_700),
            ]
            guard futimens(descriptor, &times) == 0 else { return false }
            return try own.facts(name).modified == 1_000_000_000_123_456_700
        }
        test("files that are known after a rename", without: "a moved file is sent again") {
            let before = try own.facts(name)
            try own.move(name, to: own, as: FileName("renamed".utf8))
            let after = try own.facts(FileName("renamed".utf8))
            return before.born != 0 && before.inode == after.inode && before.born == after.born
        }
        test("files that a program writes", without: "a file may be replaced while a program writes it") {
            let reader = try own.openFile(FileName("renamed".utf8))
            defer { close(reader) }
            return HeldFolder.isWritten(reader)
        }
    }

    private func tryEvents(_ own: HeldFolder) async {
        let watch = FolderWatch {}
        var works = watch.watch(own, as: .top)
        if works {
            try? Self.make(FileName("event".utf8), in: own)
            works = false
            for _ in 0..<100 where !works {
                try? await Task.sleep(for: .milliseconds(10))
                let events = watch.takeEvents()
                works = events.isOverflown || !events.dirty.isEmpty || !events.written.isEmpty
            }
        }
        results.append(
            Result(
                test: "events of changes", works: works, without: "the folder is scanned every 5 minutes",
                isRequired: false))
    }
}
