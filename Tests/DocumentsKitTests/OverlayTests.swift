import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// What waits is laid over what the server told, and nothing that the server tells leads astray.
@Suite struct OverlayTests {
    private let scope = LocalScope(account: AccountID("acc"), service: .documents, path: "c")
    private let local: LocalStore

    init() throws {
        local = try LocalStore()
        try local.prepare(DocumentsModel.migrations)
    }

    private func write<Value>(_ body: (DocumentTransaction, inout ScopeState) throws -> Value) throws -> Value {
        try local.write { database in
            let documents = DocumentTransaction(ScopeTransaction(database, scope))
            var state = try documents.rows.state()
            let value = try body(documents, &state)
            try documents.rows.save(state)
            return value
        }
    }

    private func id(_ number: UInt64) -> DocumentID {
        DocumentID(bytes: [0, 0, 0, 0, 0, 0, 0, 1] + withUnsafeBytes(of: number.bigEndian) { [UInt8]($0) }) ?? .top
    }

    private func item(_ name: String, in parent: DocumentID, _ kind: WireItemKind = .folder) -> WireDocumentItem {
        var item = WireDocumentItem()
        item.kind = kind
        item.parent = parent.wire
        item.name = Data(name.utf8)
        return item
    }

    private func tell(_ number: UInt64, _ item: WireDocumentItem?, at sequence: UInt64) throws {
        try write { documents, state in
            let row = DocumentTransaction.Synced(
                name: id(number).name, sequence: sequence, body: try item?.serializedData())
            try documents.put(row, replacing: try documents.synced(row.name), &state)
        }
    }

    private func queue(_ changes: [WireDocumentChange]) throws -> Int64 {
        try write { documents, _ in
            var request = WireApplyChanges()
            request.changes = changes
            return try documents.append(
                request, id: OperationID(high: 1, low: .random(in: 0 ... .max)), writer: 1,
                now: Timestamp(milliseconds: 1))
        }
    }

    private func place(_ name: String, in parent: DocumentID) -> WireDocumentChange.OneOf_Kind {
        var place = WirePlaceItem()
        place.parent = parent.wire
        place.name = Data(name.utf8)
        return .place(place)
    }

    private func names(in folder: DocumentID) throws -> [String] {
        try write { documents, _ in
            try documents.children(of: folder).map { String(decoding: $0.wire.name, as: UTF8.self) }
        }
    }

    @Test func whatWaitsIsSeenUntilItIsAnswered() throws {
        try tell(1, item("a", in: .documents), at: 1)
        let first = try queue([WireDocumentChange(id(1), place("b", in: .documents))])
        let second = try queue([WireDocumentChange(id(1), .trash(WireTrashItem()))])
        #expect(try names(in: .documents).isEmpty)
        try write { documents, _ in try documents.removeChanges(at: second) }
        #expect(try names(in: .documents) == ["b"])
        // What somebody else did meanwhile lies below it.
        var newer = item("c", in: .documents)
        newer.attributes.executable = true
        try tell(1, newer, at: 2)
        #expect(try names(in: .documents) == ["b"])
        let held = try write { documents, _ in try documents.document(id(1)) }
        #expect(held?.wire.attributes.executable == true)
        try write { documents, _ in try documents.removeChanges(at: first) }
        #expect(try names(in: .documents) == ["c"])
        try tell(1, nil, at: 3)
        #expect(try names(in: .documents).isEmpty)
    }

    @Test func foldersThatLieInEachOtherLeadNowhere() throws {
        try tell(1, item("a", in: id(2)), at: 1)
        try tell(2, item("b", in: id(1)), at: 2)
        try tell(3, item("c", in: id(3)), at: 3)
        try tell(4, item("d", in: .documents), at: 4)
        try write { documents, _ in
            for number in 1...3 as ClosedRange<UInt64> {
                let held = try #require(try documents.document(id(number)))
                #expect(try documents.path(of: held) == nil)
                #expect(try documents.entry(held) != nil)
                #expect(try documents.isFolder(id(number), in: id(number)))
            }
            #expect(try documents.descendants(of: id(1), at: DocumentPath("/")).count == 1)
            #expect(try documents.descendants(of: .top, at: DocumentPath("/")).map(\.path.text) == ["/Documents/d"])
            #expect(try documents.height(of: id(1)) == 1)
        }
    }

    @Test func whatCannotBeReadIsInTheDigestAndNowhereElse() throws {
        try write { documents, state in
            state.digestKey = [1, 2, 3]
            for (name, body) in [("strange", Data([0xff, 0xff])), (id(1).description, Data([0xff]))] {
                let row = DocumentTransaction.Synced(name: ItemName(name), sequence: 1, body: body)
                try documents.put(row, replacing: nil, &state)
            }
            var digest = SetDigest.empty
            let items = try documents.allSynced()
            while let item = try items.next() {
                digest.add(SetDigest(ofItem: [1, 2, 3] + [UInt8](item.name.utf8) + [0] + (item.body ?? Data())))
            }
            #expect(state.digest == digest && digest != .empty)
            #expect(try documents.all().isEmpty)
        }
    }

    @Test func aRemovedItemIsInNoDigestAndStaysRemoved() throws {
        try tell(1, item("a", in: .documents), at: 1)
        try tell(1, nil, at: 2)
        let (digest, greatest) = try write { documents, state in (state.digest, try documents.greatestSequence()) }
        #expect(digest == .empty && greatest == 2)
    }
}
