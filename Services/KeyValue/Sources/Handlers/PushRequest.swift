internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// A `PushKeys`, read where it lies: the one message that is decoded for every
/// write, and of which nearly every value is one string or piece of data, which
/// is canonical as it comes.
///
/// It takes nothing that the generated code would not, and makes of it what
/// that would (`PushRequestTests`).
struct PushRequest {
    struct Write: Equatable {
        var key: ItemName = ""
        /// As it came, until ``PushRequest/canonical()``; nil: delete the key.
        var value: [UInt8]?
        var timestamp: UInt64 = 0
        /// Empty: the caller.
        var deviceID = ""
        /// Of the value that the device had from the server when it wrote this; 0: it had none.
        var seenTimestamp: UInt64 = 0
    }

    var storeID = ""
    var writes: [Write] = []
    /// The device's own head.
    var head = ChangeToken.zero
    /// Bytes that ``canonical()`` had to bring into form.
    private(set) var reshapedBytes = 0

    /// - Throws: ``CloudError`` `.malformedRequest`, or what a value throws that is none.
    init(decoding frame: Frame) throws(CloudError) {
        do {
            self = try frame.withUnsafeBytes { try PushRequest($0) }
        } catch is FieldReader.Malformed {
            throw CloudError(
                .malformedRequest, "The bytes do not decode.", details: ["message": WirePushKeys.protoMessageName])
        } catch let error as CloudError {
            throw error
        } catch {
            throw CloudError(wrapping: error)
        }
    }

    /// How many rows it will read and write at least: two for each of its writes.
    static func rows(in frame: Frame) -> Int {
        frame.withUnsafeBytes { message in
            var reader = FieldReader(message)
            var count = 0
            // What is malformed, or has too many, is refused at once.
            while count <= PushLimits.writesMax, let field = try? reader.next() {
                if field.number == 2 { count += 1 }
            }
            return 2 * count
        }
    }

    private static let tooMany = CloudError(
        .limitExceeded, "The push has too many writes. Split it.", details: ["writes_max": "\(PushLimits.writesMax)"])

    private init(_ message: UnsafeRawBufferPointer) throws {
        var reader = FieldReader(message)
        while let field = try reader.next() {
            switch (field.number, field.value) {
            case (1, .range(let range)): storeID = try reader.text(range)
            case (2, .range(let range)):
                // Further ones are not looked at: they cost too much to be refused for it afterwards.
                guard writes.count < PushLimits.writesMax else { throw Self.tooMany }
                writes.append(try Self.write(reader.bytes(range)))
            case (3, .range(let range)): try reader.read(range, into: &head)
            case (1...3, _): throw FieldReader.Malformed()
            default: break
            }
        }
    }

    private static func write(_ message: UnsafeRawBufferPointer) throws -> Write {
        var write = Write()
        var value: [UInt8]?
        var reader = FieldReader(message)
        while let field = try reader.next() {
            switch (field.number, field.value) {
            case (1, .range(let range)): write.key = ItemName(try reader.text(range))
            // One that comes in parts is their sum, as protobuf has it. In place: there can be very many parts.
            case (2, .range(let range)):
                if value == nil { value = [] }
                value?.append(contentsOf: message[range])
            case (3, .number(let number)): write.timestamp = number
            case (4, .range(let range)): write.deviceID = try reader.text(range)
            case (5, .number(let number)): write.seenTimestamp = number
            case (1...5, _): throw FieldReader.Malformed()
            default: break
            }
        }
        write.value = value
        return write
    }

    /// The same push with its values in canonical form.
    ///
    /// - Throws: ``CloudError`` `.malformedRequest`, what a value throws that is
    ///   none, or `.limitExceeded` when too much of it is not canonical.
    func canonical() throws(CloudError) -> PushRequest {
        let others = writes.indices.filter { writes[$0].value?.withUnsafeBytes(CanonicalForm.has) == false }
        guard !others.isEmpty else { return self }
        var push = self
        for index in others {
            guard let value = writes[index].value else { continue }
            push.reshapedBytes += value.count
            guard push.reshapedBytes <= PushLimits.uncanonicalBytesMax else {
                throw CloudError(
                    .limitExceeded, "Large values have to come in their canonical form: entries sorted by key.",
                    details: ["bytes_max": "\(PushLimits.uncanonicalBytesMax)"])
            }
            // Through the native value: it has one canonical form, and its depth is limited.
            let wire: WirePropertyValue
            do { wire = try WirePropertyValue(serializedBytes: value) } catch {
                throw CloudError(
                    .malformedRequest, "The bytes do not decode.", details: ["message": WirePushKeys.protoMessageName])
            }
            push.writes[index].value = try PropertyValue(wire).canonicalBytes
        }
        return push
    }
}
