import Foundation
import NephosCore
import NephosSync
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// What a container's rows are to the rule for two histories.
@Suite struct DocumentReconcilingTests {
    private func row(_ kind: WireItemKind?, _ name: String = "f", at sequence: UInt64) throws
        -> DocumentTransaction.Synced
    {
        var item = WireDocumentItem()
        item.kind = kind ?? .file
        item.name = Data(name.utf8)
        return DocumentTransaction.Synced(
            name: "id", sequence: sequence, body: kind == nil ? nil : try item.serializedData())
    }

    @Test func anItemThatIsComingCountsAsNone() throws {
        let rows = [try row(.file, at: 3), try row(.folder, at: 3), try row(.coming, at: 3), try row(nil, at: 3)]
        #expect(rows.map(\.held) == [.live, .live, .deleted, .deleted])
    }

    @Test func whichStateIsLaterOnlyTheServiceKnows() throws {
        let history = HistoryRelation(
            of: ChangeToken(epoch: 1, sequence: 9), to: ChangeToken(epoch: 2, sequence: 9), wentBack: false,
            isComparing: false, start: 5)
        func decide(_ mine: DocumentTransaction.Synced?) throws -> [ReconcileRule.Decision] {
            try [5, 6].map { DocumentsModel.decide(try row(.file, "there", at: $0), over: mine, history) }
        }
        #expect(try decide(row(.file, at: 5)) == [.take, .take])
        #expect(try decide(row(.file, at: 6)) == [.takeAndOffer(isLater: true), .takeAndOffer(isLater: false)])
        #expect(try decide(row(.file, "there", at: 6)) == [.take, .take])
        #expect(try decide(nil) == [.take, .take])
    }
}
