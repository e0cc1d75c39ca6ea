import Foundation
import NephosCore
import NephosSync
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// What a zone's rows are to the rule for two histories.
@Suite struct RecordReconcilingTests {
    private func item(_ text: String?, at seconds: Int64 = 1, type: String? = "Note") throws -> RecordItems.Item {
        var item = RecordItems.Item(name: "a", sequence: 3)
        guard let text else { return item }
        var record = WireRecord()
        record.type = "Note"
        record.version = Data(text.utf8)
        record.modified.time = seconds
        (item.body, item.type) = (try record.serializedData(), type)
        return item
    }

    @Test func aRecordIsLiveUntilItIsDeleted() throws {
        #expect(try item("x").held == .live && item(nil).held == .deleted)
    }

    /// Stamps only rise in one history; in another nobody here can tell.
    @Test func onlyInOneHistoryTheDateTellsTheLaterRecord() throws {
        let (older, newer) = (try item("x", at: 1), try item("y", at: 2))
        #expect(newer.later(older, isOwn: true) == .mine && older.later(newer, isOwn: true) == .unknown)
        #expect(newer.later(older, isOwn: false) == .unknown)
        #expect(newer.later(newer, isOwn: false) == .same)
        #expect(newer.later(try item(nil), isOwn: true) == .unknown)
        // What is no record, as a zone, has no such date.
        #expect(try item("y", at: 2, type: nil).later(older, isOwn: true) == .unknown)
    }
}
