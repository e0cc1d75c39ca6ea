public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What travels on a `bulk` socket: one frame a message, a header of 64 bytes and what belongs to it. Numbers have
/// their least significant byte first.
///
///     0   kind
///     1   version, 1
///     2   encoding of the content, 0: as it is, 1: a Zstandard frame (``ChunkEncoding``). Of a `get`: the one that the
///         device takes besides 0
///     3   0
///     4   bytes behind the header, 4 bytes
///     8   number, 8 bytes
///     16  ticket, 16 bytes
///     32  id of the chunk, 32 bytes
///     64  the content, or what else belongs to the kind
///
/// The receiver uses the content where it lies in the frame, and the sender writes it there.
public struct BulkFrame: Sendable {
    /// Bytes of the header.
    public static let headerBytes = 64
    static let version: UInt8 = 1

    public enum Kind: UInt8, Sendable {
        /// A chunk with its content, either way. `number` is the sender's choice when it is stored, and the one of the
        /// `get` when it is fetched.
        case chunk = 1
        /// Asks for a chunk.
        case get = 2
        /// `number`: how many bytes, counted (``BulkLimits/counted(_:)``) since the connection was made, the device
        /// takes in all.
        case credit = 3
        /// The chunk is stored: it survives a crash of the service.
        case stored = 4
        /// What was asked is not done; a `Failure` follows. Without an id it is about the ticket.
        case refused = 5
        /// The answer to the probe on a new connection.
        case greeting = 6
    }

    /// The whole frame.
    public let frame: Frame
    /// Of a frame that is too short for them: nothing.
    public let ticket: BulkTicket
    public let number: UInt64
    public let chunk: ChunkID
    private let first: UInt64

    /// Reads the header; whether it is one, ``kind(contentBytesMax:)`` says.
    public init(_ frame: Frame) {
        self.frame = frame
        (ticket, number, chunk, first) = frame.withUnsafeBytes { bytes in
            guard bytes.count >= Self.headerBytes, let ticket = BulkTicket(bytes: bytes.part(16, 16)),
                let chunk = ChunkID(bytes: bytes.part(32, 32))
            else { return (.none, 0, .none, 0) }
            return (ticket, bytes.number(at: 8), chunk, bytes.number(at: 0))
        }
    }

    /// - Throws: ``CloudError`` `.malformedRequest`; `.incompatibleVersion`: another version, kind or encoding than
    ///   this build knows; `.limitExceeded`: more content than may be.
    public func kind(contentBytesMax: Int) throws(CloudError) -> Kind {
        guard frame.count >= Self.headerBytes else { throw Self.malformed }
        // In the order of the bytes, the first one lowest.
        let (kind, version) = (UInt8(truncatingIfNeeded: first), UInt8(truncatingIfNeeded: first >> 8))
        guard version == Self.version, let kind = Kind(rawValue: kind), isKnownEncoding(of: kind) else {
            throw CloudError(
                .incompatibleVersion, "The frame's version, kind or encoding is not known here. Upgrade the older side."
            )
        }
        guard first >> 24 & 0xff == 0, Int(first >> 32) == contentBytes else { throw Self.malformed }
        let isContent = kind == .chunk || kind == .refused
        guard isContent == (contentBytes > 0) else { throw Self.malformed }
        guard contentBytes <= contentBytesMax else { throw Self.tooLarge(contentBytes, contentBytesMax) }
        return kind
    }

    private var encodingByte: UInt8 { UInt8(truncatingIfNeeded: first >> 16) }

    private func isKnownEncoding(of kind: Kind) -> Bool {
        switch kind {
        case .chunk, .get: ChunkEncoding(rawValue: encodingByte) != nil
        case .credit, .stored, .refused, .greeting: encodingByte == ChunkEncoding.plain.rawValue
        }
    }

    /// How the content is written; of a `get`, how it may be. Of a frame that ``kind(contentBytesMax:)`` takes.
    public var encoding: ChunkEncoding { ChunkEncoding(rawValue: encodingByte) ?? .plain }

    /// Bytes behind the header.
    public var contentBytes: Int { max(0, frame.count - Self.headerBytes) }

    /// The bytes behind the header, valid during the call.
    public func withContent<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try frame.withUnsafeBytes { bytes in
            try body(UnsafeRawBufferPointer(rebasing: bytes[min(Self.headerBytes, bytes.count)...]))
        }
    }

    /// Of a frame that refuses: why.
    public var failure: CloudError {
        withContent { content in
            guard let failure = try? WireFailure(serializedBytes: [UInt8](content)) else {
                return CloudError(.internalError, "The server refused, and its reason could not be read.")
            }
            return CloudError(failure)
        }
    }

    private static var malformed: CloudError { CloudError(.malformedRequest, "The frame is not one of content.") }

    /// The answer to a chunk that is too large.
    public static func tooLarge(_ bytes: Int, _ max: Int) -> CloudError {
        CloudError(
            .limitExceeded, "The chunk is too large. Make smaller ones.",
            details: ["bytes": "\(bytes)", "bytes_max": "\(max)"])
    }
}

// MARK: Making frames

extension BulkFrame {
    /// A frame with content.
    ///
    /// - Parameters:
    ///   - contentBytes: As it is encoded; one at least, and fewer than 2^32.
    ///   - write: Writes the content where it will be sent from, and returns the chunk's id.
    public static func chunk(
        _ ticket: BulkTicket, number: UInt64, encoding: ChunkEncoding = .plain, contentBytes: Int,
        _ write: (UnsafeMutableRawBufferPointer) throws -> ChunkID
    ) rethrows -> Frame {
        try Frame(
            storage: BulkBuffer(count: headerBytes + contentBytes) { bytes in
                let id = try write(UnsafeMutableRawBufferPointer(rebasing: bytes[headerBytes...]))
                writeHeader(.chunk, ticket, number, id, encoding, contentBytes, to: bytes)
            })
    }

    /// A frame that is its header alone.
    ///
    /// - Parameter encoding: Of a `get`: the one that is taken besides plain.
    public static func control(
        _ kind: Kind, _ ticket: BulkTicket, number: UInt64 = 0, chunk: ChunkID = .none,
        encoding: ChunkEncoding = .plain
    ) -> Frame {
        Frame(
            storage: BulkBuffer(count: headerBytes) { writeHeader(kind, ticket, number, chunk, encoding, 0, to: $0) })
    }

    /// Says why something is not done.
    public static func refused(
        _ ticket: BulkTicket, number: UInt64, chunk: ChunkID, _ error: CloudError
    ) -> Frame {
        // It is made of an error's own texts, and these can be encoded.
        let failure: [UInt8] = (try? WireFailure(error).serializedBytes()) ?? []
        return Frame(
            storage: BulkBuffer(count: headerBytes + failure.count) { bytes in
                writeHeader(.refused, ticket, number, chunk, .plain, failure.count, to: bytes)
                UnsafeMutableRawBufferPointer(rebasing: bytes[headerBytes...]).copyBytes(from: failure)
            })
    }

    private static func writeHeader(
        _ kind: Kind, _ ticket: BulkTicket, _ number: UInt64, _ chunk: ChunkID, _ encoding: ChunkEncoding,
        _ contentBytes: Int, to bytes: UnsafeMutableRawBufferPointer
    ) {
        let first =
            UInt64(kind.rawValue) | UInt64(version) << 8 | UInt64(encoding.rawValue) << 16
            | UInt64(UInt32(clamping: contentBytes)) << 32
        bytes.storeBytes(of: first.littleEndian, as: UInt64.self)
        bytes.storeBytes(of: number.littleEndian, toByteOffset: 8, as: UInt64.self)
        ticket.write(to: UnsafeMutableRawBufferPointer(rebasing: bytes[16..<32]))
        chunk.withBytes { UnsafeMutableRawBufferPointer(rebasing: bytes[32..<64]).copyMemory(from: $0) }
    }
}

extension UnsafeRawBufferPointer {
    fileprivate func part(_ start: Int, _ count: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[start..<start + count])
    }

    fileprivate func number(at offset: Int) -> UInt64 {
        UInt64(littleEndian: loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
}
