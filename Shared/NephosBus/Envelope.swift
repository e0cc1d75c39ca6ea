public import NephosCore
private import NephosWire
public import SwiftProtobuf

private import struct Foundation.Data

/// The protocol version that this build speaks.
public let protocolVersion: UInt32 = 1

/// A request as it arrived: the envelope's fields, with the body not decoded yet.
public struct RequestEnvelope: Sendable {
    public var method: String
    public var id: OperationID
    public var accessToken: String
    /// In place of the token, where the connection has carried it before.
    public var accessTokenDigest: TokenDigest?
    /// How long the caller still waits; nil: it did not say.
    public var timeout: Duration?
    public var causeID: OperationID?
    public var body: Frame

    public init(
        method: String, id: OperationID, accessToken: String = "", accessTokenDigest: TokenDigest? = nil,
        timeout: Duration? = nil, causeID: OperationID? = nil, body: Frame
    ) {
        self.method = method
        self.id = id
        self.accessToken = accessToken
        self.accessTokenDigest = accessTokenDigest
        self.timeout = timeout
        self.causeID = causeID
        self.body = body
    }
}

/// What a server answered.
public struct ReplyEnvelope: Sendable {
    /// Nil: a delivery that the server sent by itself.
    public var id: OperationID?
    public var result: Result<Frame, CloudError>
    public var budget: Budget?

    public init(id: OperationID?, result: Result<Frame, CloudError>, budget: Budget? = nil) {
        self.id = id
        self.result = result
        self.budget = budget
    }

    /// What a service says on each new connection: that it knows of it.
    ///
    /// A client that had asked something on an earlier connection learns by
    /// this that the answer will not come there.
    public static let greeting = ReplyEnvelope(id: nil, result: .success(Frame([])))

    var isGreeting: Bool {
        guard id == nil, case .success(let body) = result else { return false }
        return body.isEmpty
    }
}

/// What remains of a caller's request budget: a token bucket.
public struct Budget: Hashable, Codable, Sendable {
    public var capacity: Int
    public var remaining: Int
    /// One call becomes available every so often.
    public var refill: Duration

    public init(capacity: Int, remaining: Int, refill: Duration) {
        self.capacity = capacity
        self.remaining = remaining
        self.refill = refill
    }
}

extension RequestEnvelope {
    /// The envelope as a message.
    public func encoded() -> Message {
        var wire = WireRequest()
        wire.version = protocolVersion
        wire.method = method
        wire.requestID = Data(id.bytes)
        if let accessTokenDigest {
            wire.accessTokenDigest = Data(accessTokenDigest.bytes)
        } else {
            wire.accessToken = accessToken
        }
        if let timeout { wire.timeoutMilliseconds = UInt32(clamping: timeout.milliseconds) }
        if let causeID { wire.causeID = Data(causeID.bytes) }
        wire.body = body.withUnsafeBytes { Data($0) }
        return [Frame(encoding: wire)]
    }

    /// Why a message is no request, and under which id to say so, if it had one.
    public struct Rejection: Error {
        public var error: CloudError
        public var id: OperationID?
    }

    /// The request in this message. Its body stays where it arrived.
    ///
    /// - Throws: ``Rejection`` with `.malformedRequest` or `.incompatibleVersion`.
    public init(decoding message: Message) throws(Rejection) {
        guard let first = message.first else {
            throw Rejection(error: CloudError(.malformedRequest, "The message is empty."), id: nil)
        }
        var fields = Fields()
        do { try first.withUnsafeBytes { try fields.read($0) } } catch {
            throw Rejection(error: CloudError(.malformedRequest, "The bytes are no request."), id: fields.id)
        }
        guard let id = fields.id else {
            throw Rejection(error: CloudError(.malformedRequest, "A request id must have 16 bytes."), id: nil)
        }
        guard fields.version == UInt64(protocolVersion) else {
            throw Rejection(
                error: CloudError(
                    .incompatibleVersion, "This server speaks another version of the protocol.",
                    details: ["server_version": "\(protocolVersion)", "client_version": "\(fields.version)"]),
                id: id)
        }
        self.init(
            method: fields.method, id: id, accessToken: fields.accessToken,
            accessTokenDigest: fields.accessTokenDigest,
            timeout: fields.timeout == 0 ? nil : .milliseconds(Int64(fields.timeout)), causeID: fields.causeID,
            body: first.part(fields.body))
    }

    /// The fields of a `Request`.
    private struct Fields {
        var version: UInt64 = 0
        var method = ""
        var id: OperationID?
        var accessToken = ""
        var accessTokenDigest: TokenDigest?
        var timeout: UInt32 = 0
        var causeID: OperationID?
        var body = 0..<0

        /// What stands before something malformed is kept: perhaps the id, so that the caller can be told.
        mutating func read(_ message: UnsafeRawBufferPointer) throws(FieldReader.Malformed) {
            var reader = FieldReader(message)
            while let field = try reader.next() {
                switch (field.number, field.value) {
                case (1, .number(let value)): version = value & 0xffff_ffff
                case (2, .range(let range)): method = try reader.text(range)
                case (3, .range(let range)): id = OperationID(bytes: message[range])
                case (4, .range(let range)): accessToken = try reader.text(range)
                case (5, .number(let value)): timeout = UInt32(truncatingIfNeeded: value)
                case (6, .range(let range)): causeID = OperationID(bytes: message[range])
                case (7, .range(let range)): body = range
                case (8, .range(let range)):
                    guard let digest = TokenDigest(bytes: reader.bytes(range)) else {
                        throw FieldReader.Malformed()
                    }
                    accessTokenDigest = digest
                case (1...8, _): throw FieldReader.Malformed()
                default: break
                }
            }
        }
    }
}

extension ReplyEnvelope {
    /// The envelope as a message.
    public func encoded() -> Message {
        let error: CloudError
        switch result {
        case .success(let body): return [Self.encoded(id, body, budget)]
        case .failure(let failure): error = failure
        }
        var wire = WireReply()
        if let id { wire.requestID = Data(id.bytes) }
        wire.failure = WireFailure(error)
        if let budget {
            wire.budget.capacity = UInt32(clamping: budget.capacity)
            wire.budget.remaining = UInt32(clamping: budget.remaining)
            wire.budget.refillMicroseconds = UInt64(clamping: budget.refill.nanoseconds / 1000)
        }
        return [Frame(encoding: wire)]
    }

    /// What encoding a `WireReply` of these gives, without copying the body
    /// twice on the way: nearly every message that a service sends is one.
    private static func encoded(_ id: OperationID?, _ body: Frame, _ budget: Budget?) -> Frame {
        body.withUnsafeBytes { body in
            var writer = FieldWriter(reserving: body.count + OperationID.byteCount + 40)
            if let id { writer.operation(1, id) }
            writer.data(3, body)
            if let budget {
                writer.message(4) {
                    $0.number(1, UInt64(UInt32(clamping: budget.capacity)))
                    $0.number(2, UInt64(UInt32(clamping: budget.remaining)))
                    $0.number(3, UInt64(clamping: budget.refill.nanoseconds / 1000))
                }
            }
            return Frame(taking: &writer)
        }
    }

    /// The reply in this message.
    ///
    /// - Throws: ``CloudError`` `.malformedRequest` when the bytes do not decode.
    public init(decoding message: Message) throws(CloudError) {
        guard let first = message.first else {
            throw CloudError(.malformedRequest, "The message is empty.")
        }
        let wire = try first.decode(WireReply.self)
        self.init(
            id: OperationID(bytes: wire.requestID),
            result: wire.hasFailure
                ? .failure(CloudError(wire.failure)) : .success(Frame(storage: DataStorage(wire.body))),
            budget: wire.hasBudget
                ? Budget(
                    capacity: Int(wire.budget.capacity), remaining: Int(wire.budget.remaining),
                    refill: .microseconds(Int64(clamping: wire.budget.refillMicroseconds)))
                : nil
        )
    }
}

extension Frame {
    /// A frame with the encoded message.
    public init(encoding message: some SwiftProtobuf.Message) {
        // Encoding a message without required fields cannot fail.
        let bytes: [UInt8] = (try? message.serializedBytes()) ?? []
        self.init(bytes)
    }

    /// The message in this frame, decoded from the frame's own bytes.
    ///
    /// - Throws: ``CloudError`` `.malformedRequest` when the bytes do not decode.
    public func decode<Decoded: SwiftProtobuf.Message>(_ type: Decoded.Type) throws(CloudError) -> Decoded {
        do {
            return try withUnsafeBytes { try Decoded(serializedBytes: $0.bytes) }
        } catch {
            throw CloudError(
                .malformedRequest, "The bytes do not decode.", details: ["message": Decoded.protoMessageName])
        }
    }
}

extension Result where Success == Frame, Failure == CloudError {
    /// The reply in the frame, or why there is none.
    public func decoded<Reply: SwiftProtobuf.Message>(as type: Reply.Type) -> Result<Reply, CloudError> {
        flatMap { frame in
            do throws(CloudError) { return .success(try frame.decode(type)) } catch { return .failure(error) }
        }
    }
}

/// The body of a reply, without another copy.
private final class DataStorage: FrameStorage {
    private let data: Data

    init(_ data: Data) { self.data = data }

    var count: Int { data.count }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try data.withUnsafeBytes(body)
    }
}
