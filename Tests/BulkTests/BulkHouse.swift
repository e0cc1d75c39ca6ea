import Foundation
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// A cloud whose documents move content, with segment files in a folder of its own.
final class BulkHouse {
    let cloud: TestCloud
    let folder: String
    let store: SegmentStore

    init(
        seed: UInt64 = 1, configuration: Transfers.Configuration = Transfers.Configuration(),
        folder: String? = nil, engine: SQLiteEngine? = nil, log: LogLines? = nil,
        wrapping wrap: (SegmentStore) -> any BlobStore = { $0 }
    ) throws {
        self.folder = folder ?? NSTemporaryDirectory() + "bulk-tests-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: self.folder, withIntermediateDirectories: true)
        store = try SegmentStore(folder: self.folder, segmentBytesMax: 1 << 20)
        cloud = try TestCloud(
            seed: seed, engines: engine.map { [.documents: $0] } ?? [:],
            content: ContentOptions(store: wrap(store), configuration: configuration), logger: log?.logger)
    }

    deinit {
        cloud.close()
        try? FileManager.default.removeItem(atPath: folder)
    }

    /// Asks for a ticket. Room is asked for until there is some.
    func open(
        _ mover: TestBulk, upload: [UInt8] = [], bytes: UInt64 = 0
    ) throws -> WireOpenTransferReply {
        var request = WireOpenTransfer()
        request.transferID = Data(upload)
        request.uploadBytes = bytes
        return try mover.client.call(
            "OpenTransfer", request, at: .requests(.documents), accessToken: mover.accessToken)
    }

    func close(_ mover: TestBulk, upload: [UInt8]) throws {
        var request = WireCloseTransfer()
        request.transferID = Data(upload)
        let _: WireCloseTransferReply = try mover.client.call(
            "CloseTransfer", request, at: .requests(.documents), accessToken: mover.accessToken)
    }

    /// Stores chunks, and lets time pass until each has its answer.
    func store(_ chunks: [[UInt8]], with client: BulkClient) -> [Result<Void, CloudError>] {
        let results = Results<Void>(chunks.count)
        for (index, chunk) in chunks.enumerated() {
            client.store(bytes: chunk.count, { $0.fill(with: chunk) }) { results.note($0, index) }
        }
        cloud.network.run(within: .seconds(120)) { results.areAll }
        return results.all
    }

    /// Fetches chunks, and lets time pass until each has its answer.
    func fetch(_ chunks: [ChunkID], with client: BulkClient) -> [Result<[UInt8], CloudError>] {
        let results = Results<[UInt8]>(chunks.count)
        for (index, chunk) in chunks.enumerated() {
            client.fetch(chunk) { results.note($0.map { $0.withContent { [UInt8]($0) } }, index) }
        }
        cloud.network.run(within: .seconds(120)) { results.areAll }
        return results.all
    }

    /// Bytes that count on an account's plan here.
    func used(by account: AccountID) throws -> Int64 {
        try cloud.storage(of: .documents).write {
            try $0.first(Self.selectUsed, [.text(account.rawValue)]) { $0.integer(0) } ?? 0
        }
    }

    func chunkCount(of account: AccountID) throws -> Int64 {
        try cloud.storage(of: .documents).write {
            try $0.first(Self.selectChunks, [.text(account.rawValue)]) { $0.integer(0) } ?? 0
        }
    }

    /// Bytes of the segments of an account's partition.
    func diskBytes(of account: AccountID) throws -> Int {
        let partition = ScopeName(account, ItemName("")).partition
        return try store.segments(in: partition).reduce(0) { $0 + $1.length }
    }

    /// Changes the last byte of each segment of an account's partition: a chunk's.
    func damageAll(of account: AccountID) throws {
        let partition = ScopeName(account, ItemName("")).partition
        let digits = String(partition)
        let path = folder + "/" + String(repeating: "0", count: 4 - digits.count) + digits
        try SegmentDamage.damageAll(in: path)
    }

    private static let selectUsed = SQL("SELECT used FROM storage_owners WHERE owner_id = ?1")
    private static let selectChunks = SQL("SELECT COUNT(*) FROM content_chunks WHERE owner = ?1")
}

/// What completions said, by their places.
final class Results<Value> {
    private var results: [Result<Value, CloudError>?]
    init(_ count: Int) { results = Array(repeating: nil, count: count) }
    func note(_ result: Result<Value, CloudError>, _ index: Int) { results[index] = result }
    var areAll: Bool { !results.contains { $0 == nil } }
    var answered: Int { results.count { $0 != nil } }
    /// What was not answered has failed.
    var all: [Result<Value, CloudError>] {
        results.map { $0 ?? .failure(CloudError(.deadlineExceeded, "It was not answered.")) }
    }
}

/// Bytes that are this chunk's alone, and do not compress.
func content(_ number: Int, count: Int = 100_000) -> [UInt8] {
    [UInt8](SplitMix64.bytes(count, seed: UInt64(number)))
}

/// Bytes that are this chunk's alone, and compress to about half.
func digits(_ number: Int, count: Int = 100_000) -> [UInt8] {
    [UInt8](SplitMix64.bytes(count, seed: UInt64(number), of: 48...57))
}

func id(of chunk: [UInt8]) -> ChunkID { chunk.withUnsafeBytes { ChunkID(hashing: $0) } }

/// An upload's id.
func upload(_ number: UInt8) -> [UInt8] { [UInt8](repeating: number, count: 16) }

func ticket(_ reply: WireOpenTransferReply) throws -> BulkTicket {
    try #require([UInt8](reply.ticket).withUnsafeBytes { BulkTicket(bytes: $0) })
}

func frame(_ ticket: BulkTicket, number: UInt64 = 1, _ chunk: [UInt8], as id: ChunkID? = nil) -> Frame {
    BulkFrame.chunk(ticket, number: number, contentBytes: chunk.count) { room in
        let own = room.fill(with: chunk)
        return id ?? own
    }
}

extension UnsafeMutableRawBufferPointer {
    /// Writes the chunk, and returns its id.
    @discardableResult
    func fill(with chunk: [UInt8]) -> ChunkID {
        chunk.withUnsafeBytes { copyMemory(from: $0) }
        return id(of: chunk)
    }
}

extension BulkFrame {
    var kind: Kind? { try? kind(contentBytesMax: BulkLimits.chunkBytesMax) }
}

extension Result where Failure == CloudError {
    var isSuccess: Bool { if case .success = self { true } else { false } }
    var code: CloudError.Code? { if case .failure(let error) = self { error.code } else { nil } }
}

/// The code that a body fails with, nil if it does not fail.
func code(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return CloudError(wrapping: error).code }
    return nil
}
