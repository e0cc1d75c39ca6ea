import Foundation
import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf

/// One writer's pushes: encoded once, then patched.
///
/// The generator shares its two cores with the servers, so what it spends on
/// each request is taken from them. Id, timestamp and the value's first bytes
/// have fixed lengths and places, and are overwritten for each push.
struct PushTemplate {
    private var bytes: [UInt8]
    private let idOffset: Int
    private let timestampOffset: Int
    private let valueOffset: Int
    private let patchedValueBytes: Int

    /// - Throws: ``CloudError`` `.internalError` if the encoding is not what this expects.
    ///
    /// - Parameter byDigest: For a connection that has carried the token.
    init(store: String, key: String, valueBytes: Int, accessToken: String, byDigest: Bool = false) throws {
        let idMark: [UInt8] = Array("\u{1}id-mark-of-load\u{2}".utf8.prefix(16))
        let valueMark = Array("\u{3}value\u{4}\u{5}".utf8.prefix(min(8, valueBytes)))
        // Any time of this millennium, shifted, takes nine bytes.
        let timestampMark: UInt64 = 0x01ff_ffff_1234_5678
        var write = WireKeyWrite()
        write.key = key
        write.value.data = Data(valueMark + [UInt8](repeating: 0x5a, count: max(0, valueBytes - valueMark.count)))
        write.timestamp = timestampMark
        var push = WirePushKeys()
        push.storeID = store
        push.writes = [write]
        var request = WireRequest()
        request.version = protocolVersion
        request.method = "PushKeys"
        request.requestID = Data(idMark)
        if byDigest {
            request.accessTokenDigest = Data(TokenDigest(of: accessToken).bytes)
        } else {
            request.accessToken = accessToken
        }
        request.body = try push.serializedData()
        bytes = try request.serializedBytes()
        idOffset = try Self.place(of: idMark, in: bytes)
        valueOffset = valueMark.isEmpty ? 0 : try Self.place(of: valueMark, in: bytes)
        patchedValueBytes = valueMark.count
        timestampOffset = try Self.place(of: Self.varint(timestampMark), in: bytes)
    }

    /// The push under this id, with a value that no earlier one had.
    mutating func frame(id: OperationID, timestamp: UInt64, number: UInt64) -> Frame {
        bytes.withUnsafeMutableBytes { buffer in
            buffer.storeBytes(of: id.high.bigEndian, toByteOffset: idOffset, as: UInt64.self)
            buffer.storeBytes(of: id.low.bigEndian, toByteOffset: idOffset + 8, as: UInt64.self)
            for index in 0..<9 {
                let septet = UInt8(truncatingIfNeeded: timestamp >> (7 * UInt64(index))) & 0x7f
                buffer[timestampOffset + index] = index < 8 ? septet | 0x80 : septet
            }
            for index in 0..<patchedValueBytes {
                buffer[valueOffset + index] = UInt8(truncatingIfNeeded: number >> (8 * UInt64(index)))
            }
        }
        return Frame(bytes)
    }

    private static func varint(_ value: UInt64) -> [UInt8] {
        (0..<9).map { UInt8(truncatingIfNeeded: value >> (7 * UInt64($0))) & 0x7f | ($0 < 8 ? 0x80 : 0) }
    }

    private static func place(of part: [UInt8], in whole: [UInt8]) throws -> Int {
        let places = whole.indices.filter { whole[$0...].starts(with: part) }
        guard places.count == 1 else {
            throw CloudError(.internalError, "A request's encoding is not what the generator expects.")
        }
        return places[0]
    }
}
