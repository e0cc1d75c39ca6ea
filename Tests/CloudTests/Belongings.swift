import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// What somebody keeps at documents and records: a file, a chunk of content and a record, each with a text that nobody
/// else may read.
final class Belongings {
    static let app = "T.notes"
    static let container = "T.notes"

    let account: AccountID
    let chunk: ChunkID
    /// Good for the upload that the chunk is of.
    let ticket: BulkTicket
    var token: String { bulk.accessToken }

    private let bulk: TestBulk
    private let cloud: TestCloud
    private let text: String
    private static let upload = [UInt8](repeating: 1, count: 16)

    /// Needs an app of this name that lists this container.
    init(in cloud: TestCloud, account: String = TestCloud.accountName, text: String) throws {
        self.cloud = cloud
        self.text = text
        bulk = try TestBulk(of: cloud, account: account, app: Self.app)
        self.account = bulk.account
        let bytes = Array(text.utf8)
        chunk = bytes.withUnsafeBytes { ChunkID(hashing: $0) }

        var open = WireOpenTransfer()
        open.transferID = Data(Self.upload)
        open.uploadBytes = 1 << 20
        open.container = Self.container
        var opened = WireOpenTransferReply()
        // Room on the plan is asked for first.
        for _ in 0..<100 where opened.ticket.isEmpty {
            do {
                opened = try bulk.client.call(
                    "OpenTransfer", open, at: .requests(.documents), accessToken: bulk.accessToken)
            } catch let error as CloudError where error.code == .serviceBusy {
                cloud.network.run(for: .milliseconds(100))
            }
        }
        ticket = try #require([UInt8](opened.ticket).withUnsafeBytes { BulkTicket(bytes: $0) })
        try bulk.send(Self.frame(ticket, bytes, as: chunk))
        cloud.network.run(within: .seconds(5)) { !self.bulk.frames.isEmpty }
        try #require(bulk.frames.map { try? $0.kind(contentBytesMax: 1 << 20) } == [.stored])
        bulk.clear()

        try retry { _ = try $0.change("mine", in: Self.container) }
        try retry { _ = try $0.save("mine", in: Self.container) }
    }

    /// A chunk, said to be this one.
    static func frame(_ ticket: BulkTicket, _ bytes: [UInt8], as id: ChunkID) -> Frame {
        BulkFrame.chunk(ticket, number: 1, contentBytes: bytes.count) { room in
            room.copyBytes(from: bytes)
            return id
        }
    }

    private func retry(_ body: (Belongings) throws -> Void) throws {
        for _ in 0..<100 {
            do { return try body(self) } catch let error as CloudError where error.code == .serviceBusy {
                cloud.network.run(for: .milliseconds(100))
            }
        }
        throw CloudError(.serviceBusy, "There was no room on the plan.")
    }

    // MARK: Requests that anyone may try

    /// A file with the text is to be made.
    static func change(_ name: String, in container: String, text: String) -> WireApplyChanges {
        var change = WireDocumentChange()
        change.item = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.create.kind = .file
        change.create.parent = Data(DocumentID.documents.bytes)
        change.create.name = Data(name.utf8)
        change.create.placeVersion = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.create.content.version = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.create.content.inline = Data(text.utf8)
        change.create.content.length = UInt64(text.utf8.count)
        var request = WireApplyChanges()
        request.container = container
        request.changes = [change]
        return request
    }

    /// A record with the text is to be saved.
    static func save(_ name: String, in container: String, text: String) -> WireModifyRecords {
        var field = WireRecordField()
        field.name = "text"
        field.value = .string(text)
        var change = WireRecordChange()
        change.record = name
        change.save.version = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.save.type = "Note"
        change.save.fields = [field]
        var zone = WireZoneChanges()
        zone.zoneID = RecordLimits.defaultZone
        zone.changes = [change]
        var request = WireModifyRecords()
        request.container = container
        request.zones = [zone]
        return request
    }

    private func change(_ name: String, in container: String) throws -> WireApplyChangesReply {
        try bulk.client.call(
            "ApplyChanges", Self.change(name, in: container, text: text), at: .requests(.documents),
            accessToken: bulk.accessToken)
    }

    private func save(_ name: String, in container: String) throws -> WireModifyRecordsReply {
        let reply: WireModifyRecordsReply = try bulk.client.call(
            "ModifyRecords", Self.save(name, in: container, text: text), at: .requests(.records),
            accessToken: bulk.accessToken)
        for outcome in reply.zones where outcome.hasFailure { throw CloudError(outcome.failure) }
        return reply
    }

    /// Ends the upload that the chunk is of, and with it the chunk.
    func closeUpload() throws {
        var request = WireCloseTransfer()
        request.transferID = Data(Self.upload)
        try bulk.client.call(
            "CloseTransfer", request, at: .requests(.documents), accessToken: token, as: WireCloseTransferReply.self)
    }

    // MARK: What is there

    /// What is not as it was, or is not given out; empty: all is well.
    func faults() throws -> [String] {
        var faults: [String] = []
        for (service, scope) in [
            (ServiceName.documents, Self.container), (.records, "\(Self.container)/\(RecordLimits.defaultZone)"),
        ] {
            var request = WireReadChanges()
            request.scope = scope
            let reply: WireReadChangesReply = try bulk.client.call(
                "ReadChanges", request, at: .requests(service), accessToken: bulk.accessToken)
            let live = reply.changes.filter { !$0.deleted }
            if live.count != 1 || !live[0].body.contains(Data(text.utf8)) {
                faults.append("\(service) has \(live.count)")
            }
        }
        try bulk.send(BulkFrame.control(.credit, ticket, number: 1 << 20))
        try bulk.send(BulkFrame.control(.get, ticket, number: 2, chunk: chunk))
        cloud.network.run(within: .seconds(5)) { !self.bulk.frames.isEmpty }
        let fetched = bulk.frames.first.map { $0.withContent { Array($0) } }
        if fetched != Array(text.utf8) { faults.append("the chunk is not given out: \(bulk.frames.map(\.failure))") }
        bulk.clear()
        return faults
    }
}

extension Data {
    fileprivate func contains(_ other: Data) -> Bool { range(of: other) != nil }
}
