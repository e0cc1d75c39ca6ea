public import Foundation
public import NephosCore
internal import NephosRecordRules
internal import NephosWire

/// Bytes beside a record that one of its fields names: a photo, a sound, a film. Shaped like `CKAsset`.
///
/// It has no file name and no type: use other fields for these. Its bytes do not count toward the record's size. They
/// are in this device's home once the record is saved, are sent before the record, and are downloaded on demand:
/// ``DatabaseAssets/data(of:in:timeout:)``, ``DatabaseAssets/download(_:of:to:timeout:onProgress:)``. Chunks that the
/// server already has are not sent.
///
/// Two assets are equal if they have the same bytes.
public struct RecordAsset: Hashable, Sendable {
    /// Where the bytes of one are that was not saved yet.
    enum Source: Sendable {
        case data(Data)
        case file(LocalPath)
    }

    /// Number of bytes: at most 1 GiB.
    public let length: UInt64
    /// What names the bytes; empty: there are none.
    let root: Data
    /// Levels of manifest nodes above the chunks.
    let depth: UInt32
    /// Nil: it is a record's.
    let source: Source?

    /// The id of its bytes, in hexadecimal; empty: it has no bytes.
    public var id: String { ChunkID(bytes: [UInt8](root))?.hex ?? "" }

    /// An asset of these bytes.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when there are more than 1 GiB.
    public init(_ data: Data) throws(CloudError) {
        do {
            try Self.require(UInt64(data.count))
            var cutter = ContentCutter()
            try data.withUnsafeBytes { try cutter.take($0) }
            self.init(try cutter.finish(), .data(data))
        } catch { throw CloudError(wrapping: error) }
    }

    /// An asset of a file's bytes. The file is read now, and copied into this device's home when the record is saved:
    /// do not change it until then.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when there are more than 1 GiB; `.invalidArguments` when it is no file;
    ///   `.unknownItem`, `.permissionFailure`, `.storageFailure` of files.
    public init(contentsOf file: URL) async throws(CloudError) {
        try await self.init(contentsOf: LocalPath(file))
    }

    package init(contentsOf file: LocalPath) async throws(CloudError) {
        let cut: Result<CutContent, any Error> = await Session.elsewhere {
            var cutter = ContentCutter()
            try Self.read(file) { try cutter.take($0) }
            return try cutter.finish()
        }
        do { self.init(try cut.get(), .file(file)) } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    private init(_ cut: CutContent, _ source: Source) {
        length = cut.length
        root = cut.length > 0 ? Data(cut.root.bytes) : Data()
        depth = cut.depth
        self.source = source
    }

    init(_ wire: WireRecordAsset) { (length, root, depth, source) = (wire.length, wire.root, wire.depth, nil) }

    /// - Parameter id: As ``id`` has it. Nil: nothing is named so.
    init?(length: UInt64, id: String, depth: UInt32) {
        let digits = id.utf8.map { Int8(Character(UnicodeScalar($0)).hexDigitValue ?? -1) }
        guard digits.count == (length > 0 ? 2 * WireRecordAsset.rootBytes : 0), !digits.contains(-1) else { return nil }
        root = Data(
            stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0]) << 4 | UInt8(digits[$0 + 1]) })
        (self.length, self.depth, source) = (length, depth, nil)
    }

    public static func == (left: RecordAsset, right: RecordAsset) -> Bool { left.wire == right.wire }
    public func hash(into hasher: inout Hasher) { hasher.combine(wire) }

    var wire: WireRecordAsset {
        var wire = WireRecordAsset()
        (wire.length, wire.root, wire.depth) = (length, root, depth)
        return wire
    }
}

extension RecordAsset: CustomStringConvertible {
    public var description: String { "\(length) bytes\(length > 0 ? " (\(id.prefix(12)))" : "")" }
}

extension RecordAsset {
    static func require(_ length: UInt64) throws(CloudError) {
        guard length <= RecordLimits.assetBytesMax else {
            throw CloudError(
                .limitExceeded, "An asset is too long. Divide it, or keep it as a document.",
                details: ["bytes": "\(length)", "bytes_max": "\(RecordLimits.assetBytesMax)"])
        }
    }

    /// Reads a file piece by piece.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`, `.invalidArguments`; of files.
    static func read(_ file: LocalPath, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        let descriptor = file.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NONBLOCK) }
        guard descriptor >= 0 else { throw ContentFolder.failure(file.text) }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw ContentFolder.failure(file.text) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw CloudError(.invalidArguments, "Only a file can be an asset.", details: ["file": file.text])
        }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)
        defer { buffer.deallocate() }
        try require(UInt64(max(0, status.st_size)))
        var length: UInt64 = 0
        while true {
            let count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw ContentFolder.failure(file.text) }
            if count == 0 { return }
            // It may grow meanwhile.
            length += UInt64(count)
            try require(length)
            try body(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
    }
}

extension RecordAsset.Source {
    func read(_ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        switch self {
        case .data(let data): try data.withUnsafeBytes { try body($0) }
        case .file(let file): try RecordAsset.read(file, body)
        }
    }
}

extension RecordValue {
    /// The assets that it names, in their order.
    public var assets: [RecordAsset] {
        switch self {
        case .asset(let asset): [asset]
        case .assets(let assets): assets
        default: []
        }
    }
}

extension WireRecordChange {
    /// The assets that it makes its record have. Those without bytes rest on nothing.
    var assets: Set<WireRecordAsset> {
        guard case .save(let save)? = kind else { return [] }
        return Set(save.fields.flatMap(\.assets).filter { $0.length > 0 })
    }
}
