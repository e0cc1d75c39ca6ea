import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Which copies of contents stay in a home and which go, of documents and of records' assets.
@Suite struct ContentCacheTests {
    private static let account = AccountID("acc_one")

    private func withCache(_ body: (Database, ContentFolder) throws -> Void) throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let (local, folder) = (try LocalStore(), try ContentFolder(home: home))
        for migrations in [DocumentsModel.migrations, RecordItems.migrations] { try local.prepare(migrations) }
        try local.write { try body($0, folder) }
    }

    private func copies(of service: ServiceName, _ database: Database) -> ContentCache {
        ContentCache(database, LocalScope(account: Self.account, service: service, path: "c"))
    }

    private func content(_ number: UInt8, length: UInt64 = 300, depth: UInt32 = 0) -> WireRecordAsset {
        WireRecordAsset.with { ($0.root, $0.length, $0.depth) = (Data(repeating: number, count: 32), length, depth) }
    }

    private func makeFile() -> DocumentID {
        var generator = SystemRandomNumberGenerator()
        return .random(using: &generator)
    }

    private func time(_ seconds: UInt64) -> Timestamp { Timestamp(milliseconds: 1_750_000_000_000 + seconds * 1000) }

    private func add(
        _ content: WireRecordAsset, to copies: ContentCache, at seconds: UInt64
    ) throws -> DocumentID {
        let file = makeFile()
        #expect(try copies.add(content, in: file, [], now: time(seconds)) == nil)
        return file
    }

    @Test func documentsAndAssetsShareOneBound() throws {
        try withCache { database, folder in
            let (documents, assets) = (copies(of: .documents, database), copies(of: .records, database))
            let files = try [
                add(content(1), to: documents, at: 1), add(content(2), to: assets, at: 2),
                add(content(3), to: documents, at: 3),
            ]
            try documents.noteUse(of: content(1), now: time(4))
            for (bound, gone) in [(900, nil), (899, files[1]), (300, files[2]), (0, files[0])] {
                try ContentCache.set(UInt64(bound), database)
                #expect(try ContentCache.trim(database, folder) == [gone].compactMap { $0 })
            }
            #expect(try ContentCache.held(database) == (0, 0))
        }
    }

    @Test func whatAnUnsettledRecordNamesStays() throws {
        try withCache { database, folder in
            let assets = copies(of: .records, database)
            try ContentCache.set(0, database)
            try assets.hold(content(1).root, by: "r", of: "c/zone")
            let file = try add(content(1), to: assets, at: 1)
            #expect(try ContentCache.held(database) == (0, 0))
            // Nor does the flag alone decide.
            try database.execute(sql: "UPDATE content_copies SET need = 0")
            #expect(try ContentCache.trim(database, folder).isEmpty && assets.has(content(1)))
            try assets.noteReplaced(content(1).root)
            #expect(try ContentCache.trim(database, folder).isEmpty)
            try assets.release("r", of: "c/zone")
            #expect(try ContentCache.trim(database, folder) == [file])
        }
    }

    @Test func anUnreadableDocumentKeepsItsCopyAndStopsNoOther() throws {
        try withCache { database, folder in
            let (documents, assets) = (copies(of: .documents, database), copies(of: .records, database))
            try ContentCache.set(0, database)
            try documents.hold(content(1).root, by: makeFile().description, isNeeded: false)
            _ = try add(content(1), to: documents, at: 1)
            let other = try add(content(2), to: assets, at: 2)
            // Nothing that is kept of documents can be read.
            try database.execute(sql: "DROP TABLE document_downloads")
            try documents.weigh()
            #expect(try ContentCache.trim(database, folder) == [other])
            // The same bytes come again, and the copy is found damaged.
            let (second, again) = (makeFile(), copies(of: .documents, database))
            #expect(try again.add(content(1), in: second, [], now: time(3)) == second)
            #expect(try again.drop(heldBy: "another", and: content(1)).isEmpty)
            #expect(try again.has(content(1)) && !ContentCache.hasUnweighed(database))
        }
    }

    @Test func whatWasReplacedGoesAtOnce() throws {
        try withCache { database, folder in
            for service in [ServiceName.documents, .records] {
                let copies = copies(of: service, database)
                let file = try add(content(1), to: copies, at: 9)
                _ = try add(content(2), to: copies, at: 1)
                try copies.noteReplaced(content(1).root)
                #expect(try ContentCache.trim(database, folder) == [file])
                #expect(try copies.has(content(2)))
            }
        }
    }

    @Test(arguments: [ServiceName.documents, .records]) func whatTheServerMayHaveLostStays(service: ServiceName) throws
    {
        try withCache { database, folder in
            func tell(_ lost: UInt32) throws {
                let rows = copies(of: service, database).rows
                var state = try rows.state()
                state.info =
                    service == .documents
                    ? try WireContainerInfo.with { $0.lostChunks = lost }.serializedData()
                    : try WireDatabaseInfo.with { $0.lostChunks = lost }.serializedData()
                try rows.save(state)
            }
            try ContentCache.set(0, database)
            let file = try add(content(1), to: copies(of: service, database), at: 1)
            try tell(1)
            #expect(try ContentCache.trim(database, folder).isEmpty)
            try copies(of: service, database).noteReplaced(content(1).root)
            #expect(try ContentCache.trim(database, folder).isEmpty)
            try tell(0)
            #expect(try ContentCache.trim(database, folder) == [file])
        }
    }

    @Test func aSecondFileOfTheSameBytesIsNotNeededUnlessTheFirstIsDamaged() throws {
        try withCache { database, _ in
            let assets = copies(of: .records, database)
            let (first, second) = (try add(content(1), to: assets, at: 1), makeFile())
            #expect(try assets.add(content(1), in: second, [], now: time(2)) == second)
            #expect(try assets.copy(of: content(1))?.file == first)
            #expect(try assets.add(content(1), in: second, [], now: time(3), replacing: first) == first)
            #expect(try assets.copy(of: content(1))?.file == second)
        }
    }

    /// A record that somebody else has made may say anything of an asset's length.
    @Test func anotherLengthOfTheSameRootIsAnotherCopy() throws {
        try withCache { database, folder in
            let assets = copies(of: .records, database)
            try assets.hold(content(1).root, by: "r", of: "c/zone")
            let file = try add(content(1), to: assets, at: 1)
            for other in [content(1, length: 10), content(1, depth: 1)] { _ = try add(other, to: assets, at: 2) }
            try ContentCache.set(0, database)
            _ = try ContentCache.trim(database, folder)
            #expect(try assets.copy(of: content(1))?.file == file)
        }
    }
}
