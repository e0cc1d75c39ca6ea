internal import Crypto
public import NephosCore

private import struct Foundation.Data

/// Seals an owner's chunks, and opens them again, with the key of the owner.
///
/// What comes out names its suite in the first byte: AES-256-GCM of the chunk's bytes as they are, or of a Zstandard
/// frame of them:
///
///     0      suite, 1; of a frame, 2
///     1      nonce, 12 random bytes
///     13     ciphertext, as long as what was sealed
///     end-16 tag
///
/// Suite, owner and id are authenticated with it, so that a chunk opens nowhere else, whoever can write to the disk.
/// With random nonces one key is good for 2^32 seals at a risk of 2^-32 (NIST SP 800-38D): an owner's first petabyte,
/// with chunks of 256 KiB.
public struct ChunkSealer: Sendable {
    /// Bytes of a key.
    public static let keyByteCount = 32
    /// How many bytes longer the sealed form is.
    public static let overhead = 1 + nonceBytes + tagBytes
    private static let nonceBytes = 12
    private static let tagBytes = 16

    private let key: SymmetricKey
    private let owner: Owner

    /// - Parameter key: ``keyByteCount`` bytes.
    /// - Throws: ``CloudError`` `.invalidArguments` for another number.
    public init(key: [UInt8], owner: Owner) throws {
        guard key.count == Self.keyByteCount else {
            throw CloudError(.invalidArguments, "A key for content must be 32 bytes.")
        }
        self.key = SymmetricKey(data: key)
        self.owner = owner
    }

    /// The suite that seals what is encoded so.
    public static func suite(of encoding: ChunkEncoding) -> UInt8 {
        switch encoding {
        case .plain: 1
        case .zstandard: 2
        }
    }

    /// How the content is encoded that this suite has sealed; nil: it is not known here.
    public static func encoding(ofSuite suite: UInt8) -> ChunkEncoding? {
        switch suite {
        case 1: .plain
        case 2: .zstandard
        default: nil
        }
    }

    /// Seals a chunk into the buffer.
    ///
    /// - Parameters:
    ///   - chunk: Its bytes in this encoding.
    ///   - output: As long as these and ``overhead``.
    /// - Throws: ``CloudError`` `.invalidArguments` for another length; `.internalError`.
    public func seal(
        _ chunk: UnsafeRawBufferPointer, _ encoding: ChunkEncoding = .plain, id: ChunkID,
        into output: UnsafeMutableRawBufferPointer
    ) throws {
        guard output.count == chunk.count + Self.overhead else {
            throw CloudError(.invalidArguments, "The room for a sealed chunk must be as long as it will be.")
        }
        let suite = Self.suite(of: encoding)
        let context = context(id, suite: suite)
        guard let box = try? AES.GCM.seal(chunk, using: key, authenticating: context) else {
            throw CloudError(.internalError, "A chunk could not be sealed.")
        }
        // All of it as one run of bytes: a slice would be copied byte by byte.
        guard let combined = box.combined, combined.count == output.count - 1 else {
            throw CloudError(.internalError, "A chunk could not be sealed.")
        }
        output[0] = suite
        combined.withUnsafeBytes { UnsafeMutableRawBufferPointer(rebasing: output[1...]).copyMemory(from: $0) }
    }

    /// Opens what ``seal(_:_:id:into:)`` made.
    ///
    /// - Returns: The chunk's bytes, and how they are encoded.
    /// - Throws: ``ChunkFailure`` `.suiteUnknown`; `.notAuthentic`: another key, owner or id sealed it, or it is
    ///   damaged or cut.
    public func open(_ sealed: [UInt8], id: ChunkID) throws -> (bytes: [UInt8], encoding: ChunkEncoding) {
        var encoding = ChunkEncoding.plain
        let bytes = try [UInt8](unsafeUninitializedCapacity: max(0, sealed.count - Self.overhead)) { output, count in
            let room = UnsafeMutableRawBufferPointer(output)
            encoding = try sealed.withUnsafeBytes {
                try open(
                    $0, id: id, into: UnsafeMutableRawBufferPointer(rebasing: room[..<max(0, $0.count - Self.overhead)])
                )
            }
            count = max(0, sealed.count - Self.overhead)
        }
        return (bytes, encoding)
    }

    /// Opens it into the buffer.
    ///
    /// - Parameter output: As long as the sealed bytes, less ``overhead``.
    /// - Returns: How what was sealed is encoded.
    /// - Throws: As the other; ``CloudError`` `.invalidArguments` for another length.
    @discardableResult
    public func open(
        _ sealed: UnsafeRawBufferPointer, id: ChunkID, into output: UnsafeMutableRawBufferPointer
    ) throws -> ChunkEncoding {
        guard let suite = sealed.first else { throw ChunkFailure.notAuthentic }
        guard let encoding = Self.encoding(ofSuite: suite) else { throw ChunkFailure.suiteUnknown(suite) }
        guard sealed.count >= Self.overhead else { throw ChunkFailure.notAuthentic }
        guard output.count == sealed.count - Self.overhead, let start = sealed.baseAddress else {
            throw CloudError(.invalidArguments, "The room for a chunk must be as long as it will be.")
        }
        // Read where it lies, and not copied into the box.
        let combined = Data(
            bytesNoCopy: UnsafeMutableRawPointer(mutating: start + 1), count: sealed.count - 1, deallocator: .none)
        guard let box = try? AES.GCM.SealedBox(combined: combined),
            let opened = try? AES.GCM.open(box, using: key, authenticating: context(id, suite: suite)),
            opened.count == output.count
        else { throw ChunkFailure.notAuthentic }
        opened.withUnsafeBytes { output.copyMemory(from: $0) }
        return encoding
    }

    /// What the chunk is bound to: suite, length of the owner's name, the name, the id. Only the name's length varies,
    /// and it is told, so that no two are the same bytes.
    private func context(_ id: ChunkID, suite: UInt8) -> [UInt8] {
        let name = Array(owner.rawValue.utf8)
        let length = withUnsafeBytes(of: UInt32(truncatingIfNeeded: name.count).littleEndian) { [UInt8]($0) }
        return [suite] + length + name + id.bytes
    }
}

extension ChunkGroup {
    /// Whether a chunk of so many encoded bytes can still be added, once it is sealed.
    public func hasRoom(forUnsealed length: Int) -> Bool {
        length <= Self.chunkBytesMax - ChunkSealer.overhead && hasRoom(for: length + ChunkSealer.overhead)
    }

    /// Seals a chunk into the group.
    ///
    /// - Parameters:
    ///   - chunk: Its bytes in this encoding.
    ///   - contentLength: Bytes of the chunk as it is; nil: it is encoded as it is.
    /// - Throws: ``CloudError`` `.limitExceeded` when there is no room: put the group first.
    public mutating func append(
        _ id: ChunkID, sealing chunk: UnsafeRawBufferPointer, _ encoding: ChunkEncoding = .plain,
        contentLength: Int? = nil, with sealer: ChunkSealer
    ) throws {
        let form = SealedForm(
            suite: ChunkSealer.suite(of: encoding), contentLength: contentLength ?? chunk.count)
        try append(id, length: chunk.count + ChunkSealer.overhead, form) { room in
            try sealer.seal(chunk, encoding, id: id, into: room)
        }
    }
}
