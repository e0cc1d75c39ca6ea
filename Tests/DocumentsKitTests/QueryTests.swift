import Foundation
import GRDB
import NephosCore
import NephosPredicates
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// A query tells first what is there, then what changes, whoever changes it.
@Suite struct QueryTests {
    private static func gather(_ query: DocumentQuery) async throws -> [DocumentEntry] {
        var entries: [DocumentEntry] = []
        for try await event in query {
            switch event {
            case .gathered(let batch): entries += batch
            case .finishedGathering: return entries
            case .updated: Issue.record("updated before the end")
            }
        }
        return entries
    }

    @Test func itGathersInOrderAndInBatchesAndThenTells() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for (name, bytes) in [("b.pdf", 30), ("a.pdf", 20), ("c.pdf", 10), ("d.txt", 40)] {
                try await one.container.put(Data(count: bytes), at: "x/\(name)", makesFolders: true)
            }
            let query = try one.container.query(
                "name LIKE '*.pdf' AND size > 5", sortedBy: [DocumentSort(.size, isDescending: true)], batchMax: 2)
            let reader = QueryReader(query)
            #expect(await reader.wait { $0.isGathered })
            #expect(reader.now.batches == [2, 1])
            let names = reader.now.gathered.compactMap { reader.now.items[$0]?.name }
            #expect(names == ["b.pdf", "a.pdf", "c.pdf"])

            try await one.container.move("x/d.txt", to: "x/d.pdf")
            #expect(await reader.wait { $0.items.count == 4 })
            #expect(reader.now.updates.last?.added.map(\.path) == ["/Documents/x/d.pdf"])
            try await one.container.put(Data(count: 7), at: "x/a.pdf")
            #expect(await reader.wait { $0.items.values.contains { $0.name == "a.pdf" && $0.size == 7 } })
            #expect(reader.now.updates.last?.changed.map(\.name) == ["a.pdf"])
            try await one.container.move("x/b.pdf", to: "x/b")
            #expect(await reader.wait { $0.items.count == 3 })
            #expect(reader.now.updates.last?.removed.map(\.path) == ["/Documents/x/b.pdf"])
            #expect(reader.now.contradictions.isEmpty)
        }
    }

    @Test func aFolderThatMovesTakesWhatIsInItIntoTheScopeAndOut() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "out/deep/x", makesFolders: true)
            try await one.container.put(Data("2".utf8), at: "in/y", makesFolders: true)
            try await one.container.put(Data("3".utf8), at: "/hidden/z", makesFolders: true)
            func paths(_ scope: DocumentQueryScope) async throws -> [String] {
                try await Self.gather(
                    try one.container.query("kind == 'file'", scope: scope, sortedBy: [DocumentSort(.path)])
                ).map(\.path)
            }
            #expect(try await paths(.container) == ["/Documents/in/y", "/Documents/out/deep/x", "/hidden/z"])
            #expect(try await paths(.documents) == ["/Documents/in/y", "/Documents/out/deep/x"])
            #expect(try await paths(.data) == ["/hidden/z"])
            #expect(try await paths(.folder("in")) == ["/Documents/in/y"])
            #expect(try await paths(.folder("i")).isEmpty)

            let reader = QueryReader(try one.container.query("kind == 'file'", scope: .folder("in")))
            #expect(await reader.wait { $0.isGathered && $0.items.count == 1 })
            try await one.container.move("out/deep", to: "in")
            #expect(await reader.wait { $0.items.values.contains { $0.path == "/Documents/in/deep/x" } })
            // The scope is a place: another folder that takes it is meant from then on.
            try await one.container.move("in", to: "away")
            #expect(await reader.wait { $0.items.isEmpty })
            try await one.container.move("out", to: "in")
            try await one.container.move("away", to: "in")
            #expect(await reader.wait { $0.items.count == 2 })
            #expect(Set(reader.now.items.values.map(\.path)) == ["/Documents/in/away/y", "/Documents/in/away/deep/x"])
            let batch = try await one.container.trash(["in/away"])
            #expect(await reader.wait { $0.items.isEmpty })
            try await one.container.trash.restore(batch)
            #expect(await reader.wait { $0.items.count == 2 })
            #expect(reader.now.contradictions.isEmpty)
        }
    }

    @Test func whatLiesInTheTrashIsFoundByWhoAsks() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.container.put(Data("2".utf8), at: "y")
            try await one.container.trash(["f"])
            func names(_ predicate: String) async throws -> [String] {
                try await Self.gather(try one.container.query(predicate, sortedBy: [DocumentSort(.name)])).map(\.name)
            }
            #expect(try await names("TRUEPREDICATE") == ["y"])
            #expect(try await names("isTrashed == TRUE") == ["f", "x"])
            #expect(try await names("isTrashed == TRUE OR name == 'y'") == ["f", "x", "y"])
        }
    }

    @Test func whatItAsksForIsWhatTheFieldsSay() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.makeFolder(at: "F")
            try await one.container.put(Data(count: 10), at: "F/Été.JPG")
            try await one.container.put(Data(count: 5000), at: "big.bin")
            try await one.container.put([.link(to: "F", at: "link")])
            try await one.settle()
            try await one.container.downloads.evict("big.bin")
            try await one.container.downloads.pin("F")
            for (predicate, expected) in [
                ("name ==[cd] 'ete.jpg'", ["Été.JPG"]), ("name BEGINSWITH[d] 'Ete'", ["Été.JPG"]),
                ("parent == '/Documents/F'", ["Été.JPG"]), ("parent == '/Documents'", ["F", "big.bin", "link"]),
                ("path ENDSWITH 'F/Été.JPG'", ["Été.JPG"]), ("contentType BEGINSWITH 'image/'", ["Été.JPG"]),
                ("contentType == 'inode/symlink'", ["link"]), ("contentType == NULL", ["big.bin"]),
                ("kind == 'folder'", ["F"]), ("size == NULL", ["F"]), ("size >= 5000", ["big.bin"]),
                ("state == 'notDownloaded'", ["big.bin"]), ("state == 'current' AND kind == 'file'", ["Été.JPG"]),
                ("percent == 100", ["F", "Été.JPG", "big.bin", "link"]), ("isExecutable == TRUE", []),
                ("downloadingStatus == 'notDownloaded'", ["big.bin"]), ("percentDownloaded < 100", ["big.bin"]),
                ("isPinned == TRUE", ["F", "Été.JPG"]),
                ("isConflicted == TRUE", []), ("tags CONTAINS 'a'", []), ("self CONTAINS 'jpg ete'", ["Été.JPG"]),
                ("created > date('2000-01-01') AND modified != NULL AND kind == 'file'", ["Été.JPG", "big.bin"]),
            ] as [(String, Set<String>)] {
                let found = try await Self.gather(try one.container.query(predicate)).map(\.name)
                #expect(Set(found) == expected && found.count == expected.count, "\(predicate)")
            }
        }
    }

    @Test func whatIsOnItsWayAndWhatWasRefusedIsFoundByItsState() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data(count: 9000), at: "x")
            try await one.settle()
            let reader = QueryReader(try one.container.query("state == 'uploading' AND percent == 0"))
            let refused = QueryReader(try one.container.query("state == 'refused'"))
            let waiting = QueryReader(try one.container.query("state == 'waiting'"))
            for reader in [reader, refused, waiting] { #expect(await reader.wait { $0.isGathered }) }
            one.setOffline(true)
            try await one.container.put(Data(count: 9001), at: "x")
            try await one.container.makeFolder(at: "f")
            #expect(await reader.wait { $0.items.values.map(\.name) == ["x"] })
            #expect(await waiting.wait { $0.items.values.map(\.name) == ["f"] })
            let id = try #require(reader.now.items.keys.first)
            try one.session.local.write { database in
                let rows = ScopeTransaction(
                    database, DocumentsModel.place(of: one.container.id, in: try Facts(database).session))
                let documents = DocumentTransaction(rows)
                let position = try #require(try documents.unstored().first?.position)
                try documents.setPercent(40, at: position)
            }
            #expect(await reader.wait { $0.items.isEmpty })
            #expect(try await one.container.item(id)?.percent == 40)
            func change(_ body: (DocumentTransaction, Int64) throws -> Void) throws {
                try one.session.local.write { database in
                    let rows = ScopeTransaction(
                        database, DocumentsModel.place(of: one.container.id, in: try Facts(database).session))
                    let position = try #require(
                        try Int64.fetchOne(database, sql: "SELECT position FROM document_contents"))
                    try body(DocumentTransaction(rows), position)
                }
            }
            try change { try $0.markStored(at: $1) }
            #expect(await waiting.wait { $0.items.count == 2 })
            try change { documents, position in
                let version = try Data.fetchOne(documents.rows.database, sql: "SELECT version FROM document_contents")
                try documents.moveContent(try #require(version), to: position)
                try documents.touchItems(at: position)
            }
            #expect(await waiting.wait { $0.items.count == 1 })
            one.setOffline(false)
            try await one.settle()
            #expect(await waiting.wait { $0.items.isEmpty })
            #expect(try await one.container.item(id)?.state == .current)
            // What another device has taken away for good is refused; a folder of its own stays.
            try one.session.local.write { database in
                let rows = ScopeTransaction(
                    database, DocumentsModel.place(of: one.container.id, in: try Facts(database).session))
                try DocumentTransaction(rows).recordRefusal(
                    of: id.name, at: "/Documents/x", CloudError(.quotaExceeded, "The plan is full."),
                    now: Timestamp(milliseconds: 1))
            }
            #expect(await refused.wait { $0.items.keys.contains(id) })
            try await one.container.scope.dismissRefused()
            #expect(await refused.wait { $0.items.isEmpty })
        }
    }

    @Test func anErrorOfAPredicateIsTypedAndPointsAtItsPlace() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let unknown = #expect(throws: QueryPredicateError.self) { try one.container.query("nmae LIKE '*.pdf'") }
            #expect(unknown?.code == .unknownField && unknown?.range == 0..<4)
            #expect(unknown?.message == "There is no such field. Did you mean name?")
            let wrong = #expect(throws: QueryPredicateError.self) { try one.container.query("size > '5'") }
            #expect(wrong?.code == .wrongType && wrong?.range == 7..<10)
            let syntax = #expect(throws: QueryPredicateError.self) { try one.container.query("size >") }
            #expect(syntax?.code == .syntax)
            let sort = #expect(throws: CloudError.self) { try DocumentSort.parse("-modified,nmae") }
            #expect(sort?.code == .invalidArguments)
            #expect(
                try DocumentSort.parse("-modified,name[cd]") == [
                    DocumentSort(.modified, isDescending: true),
                    DocumentSort(.name, folding: [.caseInsensitive, .diacriticInsensitive]),
                ])
        }
    }

    @Test func updatesThatAreHeldBackAreToldAsOne() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let query = try one.container.query("TRUEPREDICATE")
            let reader = QueryReader(query)
            #expect(await reader.wait { $0.isGathered })
            query.disableUpdates()
            for round in 0..<5 { try await one.container.put(Data("\(round)".utf8), at: "x") }
            try await one.container.put(Data("gone".utf8), at: "y")
            try await one.container.trash(["y"])
            try await Task.sleep(for: .milliseconds(200))
            #expect(reader.now.updates.isEmpty)
            query.enableUpdates()
            #expect(await reader.wait { !$0.updates.isEmpty })
            #expect(reader.now.updates.count == 1 && reader.now.updates[0].added.map(\.name) == ["x"])
            #expect(reader.now.updates[0].changed.isEmpty && reader.now.updates[0].removed.isEmpty)
        }
    }

    @Test func aSlowReaderIsToldEverythingInBoundedUpdates() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let query = try one.container.query("kind == 'file'", batchMax: 10)
            let events = query.makeAsyncIterator()
            while let event = try await events.next() { if case .finishedGathering = event { break } }
            try await one.container.put((0..<35).map { .data(Data([UInt8($0)]), at: "f/\($0)") }, makesFolders: true)
            try await one.container.move("f", to: "g")
            var sizes: [Int] = []
            var paths: Set<String> = []
            while case .updated(let update)? = try await events.next() {
                sizes.append(update.added.count)
                paths.formUnion(update.added.map(\.path))
                #expect(update.changed.isEmpty && update.removed.isEmpty)
                if !update.hasMore { break }
            }
            #expect(sizes == [10, 10, 10, 5] && paths.count == 35)
            #expect(paths.allSatisfy { $0.hasPrefix("/Documents/g/") })
        }
    }

    @Test func whoLagsBehindWhatIsKeptLooksAtEverythingAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put((0..<5).map { .data(Data([UInt8($0)]), at: "\($0)") })
            try await one.settle()
            let events = try one.container.query("kind == 'file'").makeAsyncIterator()
            while let event = try await events.next() { if case .finishedGathering = event { break } }
            // Nobody looks meanwhile.
            try await one.container.trash(["0"])
            try await one.container.trash.remove(try await one.container.trash(["2"]))
            try await one.container.move("1", to: "one")
            try await one.container.put(Data("new".utf8), at: "new")
            try one.session.local.write { try $0.execute(sql: "DELETE FROM document_touches") }
            guard case .updated(let update)? = try await events.next() else { return #expect(Bool(false)) }
            #expect(update.added.map(\.name) == ["new"] && update.changed.map(\.name) == ["one"])
            #expect(Set(update.removed.map(\.path)) == ["/Documents/0", "/Documents/2"] && !update.hasMore)
            // It goes on from there.
            try await one.container.move("3", to: "three")
            guard case .updated(let next)? = try await events.next() else { return #expect(Bool(false)) }
            #expect(next.changed.map(\.name) == ["three"] && next.added.isEmpty && next.removed.isEmpty)
        }
    }

    @Test func whatLeadsNowhereOrCannotBeReadIsNotFound() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "a/x", makesFolders: true)
            let id = try #require(try await one.container.item(at: "a")?.id)
            let reader = QueryReader(try one.container.query("TRUEPREDICATE", sortedBy: [DocumentSort(.name)]))
            #expect(await reader.wait { $0.isGathered && $0.items.count == 2 })
            func tell(_ id: DocumentID, _ body: Data?) throws {
                try one.session.local.write { database in
                    let rows = ScopeTransaction(
                        database, DocumentsModel.place(of: one.container.id, in: try Facts(database).session))
                    var state = try rows.state()
                    let documents = DocumentTransaction(rows)
                    let row = DocumentTransaction.Synced(name: id.name, sequence: 1, body: body)
                    try documents.put(row, replacing: try documents.synced(row.name), &state)
                }
            }
            var wire = WireDocumentItem()
            wire.kind = .folder
            wire.name = Data([0x61, 0xff])
            wire.parent = DocumentID.documents.wire
            let other = one.session.engine.makeDocumentID()
            try tell(other, wire.serializedData())
            #expect(await reader.wait { $0.items[other]?.nameBytes == wire.name })
            try tell(other, Data([0xff, 0xff]))
            #expect(await reader.wait { $0.items[other] == nil })
            // Two folders that lie in each other; what waits of the first is answered by then.
            try await one.settle()
            #expect(await reader.wait { $0.items.count == 2 })
            wire.parent = other.wire
            wire.name = Data("a".utf8)
            try tell(id, wire.serializedData())
            #expect(await reader.wait { $0.items.isEmpty })
            wire.parent = id.wire
            try tell(other, wire.serializedData())
            try await one.container.makeFolder(at: "b")
            #expect(await reader.wait { $0.items.values.map(\.name) == ["b"] })
            wire.parent = DocumentID.documents.wire
            try tell(other, wire.serializedData())
            #expect(await reader.wait { $0.items.count == 4 })
            #expect(reader.now.contradictions.isEmpty && reader.now.error == nil)
        }
    }

    @Test func itWaitsForTheFirstDownload() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try one.session.local.write { try $0.execute(sql: "UPDATE scopes SET synced = 0") }
            let reader = QueryReader(try one.container.query("TRUEPREDICATE"))
            try await Task.sleep(for: .milliseconds(100))
            #expect(!reader.now.isGathered)
            try one.session.local.write { try $0.execute(sql: "UPDATE scopes SET synced = 1") }
            #expect(await reader.wait { $0.isGathered })
            #expect(reader.now.items.values.map(\.path) == ["/Documents/x"] && reader.now.updates.isEmpty)
        }
    }

    @Test func itEndsWithTheReasonWhenTheAccountChangesOrTheSessionIsClosed() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            let left = QueryReader(try one.container.query("TRUEPREDICATE"))
            let other = QueryReader(try two.container.query("TRUEPREDICATE"))
            let cancelled = QueryReader(try two.container.query("TRUEPREDICATE"))
            for reader in [left, other, cancelled] { #expect(await reader.wait { $0.isGathered }) }
            cancelled.cancel()
            #expect(await cancelled.wait { $0.isOver } && cancelled.now.error == nil)
            try await one.session.signOut()
            #expect(await left.wait { $0.isOver } && left.now.error?.code == .notSignedIn)
            // Another account, without a moment between.
            let session = try #require(try two.session.account)
            func sign(in account: AccountID) throws {
                var changed = session
                changed.accountID = account
                try two.session.local.write { try Facts($0).setSession(changed) }
            }
            try sign(in: AccountID("other"))
            #expect(await other.wait { $0.isOver } && other.now.error?.code == .notSignedIn)
            try sign(in: session.accountID)
            let open = QueryReader(try two.container.query("TRUEPREDICATE"))
            #expect(await open.wait { $0.isGathered })
            two.session.close()
            #expect(await open.wait { $0.isOver } && open.now.error?.code == .operationCancelled)
            let late = QueryReader(try two.container.query("TRUEPREDICATE"))
            #expect(await late.wait { $0.isOver } && late.now.error?.code == .operationCancelled)
        }
    }
}
