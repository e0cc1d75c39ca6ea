import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A comparison goes down to the items that differ, and reads nothing of what is the same.
@Suite struct WalkTests {
    /// A container of folders within folders: 4 of 4, with 10 files each, and one of another device.
    private func fill(_ device: ContainerCloud.Device) async throws {
        try await device.settle()
        for outer in 0..<4 {
            for inner in 0..<4 {
                let folder = "o\(outer)/i\(inner)"
                if inner == 0 { try await device.container.makeFolder(at: "o\(outer)") }
                try await device.container.makeFolder(at: folder)
                for file in 0..<10 { try await device.container.put(Data("\(file)".utf8), at: "\(folder)/f\(file)") }
            }
        }
        try await device.settle()
    }

    /// How many requests the service has answered.
    private func requestCount(_ cloud: ContainerCloud) throws -> UInt64 {
        cloud.simulation.use { $0.requestCount(.documents) }
    }

    /// Changes what is here without the server's doing, as a disk does that forgets; the digest that is kept stays.
    private func change(_ device: ContainerCloud.Device, _ sql: String, _ arguments: StatementArguments) throws {
        try device.session.local.write { try $0.execute(sql: sql, arguments: arguments) }
    }

    private func id(_ path: String, _ device: ContainerCloud.Device) async throws -> DocumentID {
        try #require(try await device.container.item(at: path)).id
    }

    @Test func whatDiffersIsNamedByItsPathOnBothSides() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await fill(device)
            let same = try await device.container.scope.verify()
            #expect(same.agrees && same.localDigest == same.serverDigest)
            // Renamed, gone, and of another folder.
            let renamed = try await id("o1/i2/f3", device)
            var item = try device.session.local.read { database in
                try WireDocumentItem(
                    serializedBytes: Data.fetchOne(
                        database, sql: "SELECT body FROM documents WHERE item = ?",
                        arguments: [renamed.description]) ?? Data())
            }
            item.name = Data("other".utf8)
            try change(
                device, "UPDATE documents SET body = ? WHERE item = ?",
                [try item.serializedData(), renamed.description])
            let gone = try await id("o3/i0/f9", device)
            try change(device, "DELETE FROM documents WHERE item = ?", [gone.description])
            let made = DocumentID(bytes: [UInt8](repeating: 9, count: 16)) ?? .top
            item.name = Data("new".utf8)
            try change(
                device,
                "INSERT INTO documents (account, container, item, parent, name, sequence, body, kind, name_key) "
                    + "SELECT account, container, ?, parent, 'new', sequence, ?, kind, 'new' FROM documents WHERE item = ?",
                [made.description, try item.serializedData(), renamed.description])
            let found = try await device.container.scope.verify()
            #expect(!found.agrees && !found.hasMore)
            let differences = Dictionary(found.differences.map { ($0.key, $0) }) { $1 }
            #expect(differences.count == 3)
            let other = try #require(differences[renamed.name])
            #expect(other.kind == .differs)
            #expect(other.path == "/Documents/o1/i2/other" && other.serverPath == "/Documents/o1/i2/f3")
            let lost = try #require(differences[gone.name])
            #expect(lost.kind == .missingHere && lost.path == nil && lost.serverPath == "/Documents/o3/i0/f9")
            let new = try #require(differences[made.name])
            #expect(new.kind == .missingOnServer && new.path == "/Documents/o1/i2/new" && new.serverPath == nil)
            // Everything that is read says the same.
            let all = try await device.container.scope.verify(readsAll: true)
            #expect(all.differences.map(\.key) == found.differences.map(\.key))
            #expect(all.differences.map(\.kind) == found.differences.map(\.kind))
            #expect(all.localDigest == same.localDigest)
        }
    }

    /// What differs is named in as many answers as there is room for.
    @Test func largeItemsThatDifferAreAllNamed() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await device.settle()
            let large = Data(repeating: 7, count: 32_000)
            for number in 0..<50 {
                try await device.container.put(Data("\(number)".utf8), at: "f\(number)")
                try await device.container.setAttributes([.extended("large", large)], of: "f\(number)")
            }
            try await device.settle()
            var before = try requestCount(cloud)
            _ = try await device.container.scope.verify()
            let same = try requestCount(cloud) - before
            try change(device, "DELETE FROM documents WHERE kind = 1", [])
            before = try requestCount(cloud)
            let found = try await device.container.scope.verify()
            let paths = (0..<50).map { "/Documents/f\($0)" }
            #expect(found.differences.compactMap(\.serverPath).sorted() == paths.sorted())
            // The top, Documents, and what the items are called, in two pages.
            #expect(try requestCount(cloud) - before - same == 4)
        }
    }

    /// One request for each folder on the way, and two besides.
    @Test func onlyTheFoldersOnTheWayAreRead() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await fill(device)
            var before = try requestCount(cloud)
            _ = try await device.container.scope.verify()
            let same = try requestCount(cloud) - before
            #expect(same <= 3)
            let gone = try await id("o2/i1/f5", device)
            try change(device, "DELETE FROM documents WHERE item = ?", [gone.description])
            before = try requestCount(cloud)
            let found = try await device.container.scope.verify()
            #expect(found.differences.map(\.serverPath) == ["/Documents/o2/i1/f5"])
            // The top, Documents, o2, i1, and what it is called.
            #expect(try requestCount(cloud) - before - same == 5)
        }
    }

    /// A folder that is on one side alone, or elsewhere, is one difference, and what differs in it is found all the same.
    @Test func aFolderThatIsElsewhereIsOneDifference() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await fill(device)
            let (folder, target) = (try await id("o1/i1", device), try await id("o2", device))
            func move(_ id: DocumentID, to parent: DocumentID) throws {
                try device.session.local.write { database in
                    let body = try Data.fetchOne(
                        database, sql: "SELECT body FROM documents WHERE item = ?", arguments: [id.description])
                    var item = try WireDocumentItem(serializedBytes: body ?? Data())
                    item.parent = parent.wire
                    try database.execute(
                        sql: "UPDATE documents SET body = ?, parent = ? WHERE item = ?",
                        arguments: [try item.serializedData(), parent.wire, id.description])
                }
            }
            try move(folder, to: target)
            let moved = try await device.container.scope.verify()
            #expect(moved.differences.map(\.kind) == [.differs])
            #expect(moved.differences.first?.path == "/Documents/o2/i1")
            #expect(moved.differences.first?.serverPath == "/Documents/o1/i1")
            let file = try #require(
                try device.session.local.read { database in
                    try String.fetchOne(
                        database, sql: "SELECT item FROM documents WHERE parent = ? ORDER BY item LIMIT 1",
                        arguments: [folder.wire])
                })
            try change(device, "DELETE FROM documents WHERE item = ?", [file])
            let both = try await device.container.scope.verify()
            #expect(Set(both.differences.map(\.kind)) == [.differs, .missingHere])
            // The folder is gone, and all that is in it.
            try change(device, "DELETE FROM documents WHERE item = ? OR parent = ?", [folder.description, folder.wire])
            let without = try await device.container.scope.verify()
            #expect(without.differences.map(\.kind) == [.missingHere])
            #expect(without.differences.first?.serverPath == "/Documents/o1/i1")
        }
    }

    /// What lies in no folder no walk comes to: the digests say that something is left, and everything is read.
    @Test func whatLiesNowhereIsFoundByReadingEverything() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await fill(device)
            let lost = try await id("o0/i0/f0", device)
            let nowhere = [UInt8](repeating: 7, count: 16)
            try device.session.local.write { database in
                let body = try Data.fetchOne(
                    database, sql: "SELECT body FROM documents WHERE item = ?", arguments: [lost.description])
                var item = try WireDocumentItem(serializedBytes: body ?? Data())
                item.parent = Data(nowhere)
                let made = DocumentID(bytes: [UInt8](repeating: 8, count: 16)) ?? .top
                try database.execute(
                    sql:
                        "INSERT INTO documents (account, container, item, parent, name, sequence, body, kind, name_key) "
                        + "SELECT account, container, ?, ?, name, sequence, ?, kind, name_key FROM documents WHERE item = ?",
                    arguments: [made.description, Data(nowhere), try item.serializedData(), lost.description])
            }
            let found = try await device.container.scope.verify()
            #expect(found.differences.map(\.kind) == [.missingOnServer])
        }
    }

    /// A folder of more items than a page has.
    @Test func aLargeFolderIsComparedPageByPage() async throws {
        try await withContainers { cloud in
            let device = try await cloud.open()
            try await device.settle()
            try await device.container.makeFolder(at: "large")
            for start in stride(from: 0, to: 2500, by: 500) {
                try await device.container.handle.change { draft in
                    for number in start..<start + 500 {
                        _ = try draft.folder(at: DocumentPath("large/\(number)"), makes: true)
                    }
                }
            }
            try await device.settle()
            for number in [0, 2499] {
                let gone = try await id("large/\(number)", device)
                try change(device, "DELETE FROM documents WHERE item = ?", [gone.description])
            }
            let found = try await device.container.scope.verify()
            #expect(
                Set(found.differences.map(\.serverPath)) == ["/Documents/large/0", "/Documents/large/2499"])
        }
    }

    @Test func theServersHeadMayMoveMeanwhile() async throws {
        try await withContainers { cloud in
            let (device, other) = (try await cloud.open(), try await cloud.open())
            try await fill(device)
            try await other.settle()
            for number in 0..<20 {
                try await other.container.put(Data("\(number)".utf8), at: "o1/new\(number)")
                let found = try await device.container.scope.verify()
                #expect(found.agrees, "\(found)")
            }
        }
    }
}
