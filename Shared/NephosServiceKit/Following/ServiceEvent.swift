public import NephosBus
public import NephosCore
internal import NephosStorage
public import NephosWire
private import SwiftProtobuf

public import struct Foundation.Data

/// What a service has published: an `Event`, read where it lies.
///
/// Every follower gets every event, and of most it only takes note. So what
/// says whom it concerns is read, and the rest stays as it came.
public struct ServiceEvent: Sendable {
    public private(set) var service = ""
    public private(set) var partition = 0
    /// The partition's head after this event.
    public private(set) var position = ChangeToken.zero
    /// The partition's head before it; that after it, when nothing was stored.
    public private(set) var previousSequence: UInt64 = 0
    public private(set) var notification: Notification?
    /// The request that it comes from, in that service; nil: that is not known.
    public private(set) var causeID: OperationID?
    /// It tells where a scope stands, and not what has happened to it: some of that was missed.
    public private(set) var isHeadAlone = false

    /// Whether it is of identity's directory: the host heeds that, and its service hears of it as facts.
    var isOfDirectory: Bool {
        service == ServiceName.identity.rawValue && notification?.scope == directoryScope
    }

    /// What happened to one scope: a `Notification`.
    public struct Notification: Sendable {
        public private(set) var scope = ScopeName(Owner(""), "")
        public private(set) var reason = WireChangeReason.serverChange
        /// The scope's head after the change.
        public private(set) var token = ChangeToken.zero
        /// The device that made the change.
        public private(set) var device = DeviceID("")
        /// The first bytes of the scope's digest; empty: it is not told.
        public private(set) var digest = Data()
        /// Whether others may follow the scope than before.
        public private(set) var isAccessChanged = false
        private let frame: Frame
        private let range: Range<Int>

        /// - Throws: ``FieldReader/Malformed``.
        init(_ frame: Frame, _ range: Range<Int>, _ message: UnsafeRawBufferPointer) throws(FieldReader.Malformed) {
            self.frame = frame
            self.range = range
            var reader = FieldReader(message)
            while let field = try reader.next() {
                switch (field.number, field.value) {
                case (2, .range(let range)): scope.path = ItemName(try reader.text(range))
                case (3, .number(let number)):
                    reason = WireChangeReason(rawValue: Int(truncatingIfNeeded: number)) ?? .serverChange
                case (4, .range(let range)): try reader.read(range, into: &token)
                case (6, .range(let range)): device = DeviceID(try reader.text(range))
                case (9, .range(let range)): digest = Data(reader.bytes(range))
                case (10, .range(let range)): scope.owner = Owner(try reader.text(range))
                case (11, .number(let number)): isAccessChanged = number != 0
                case (2...4, _), (6, _), (9...11, _): throw FieldReader.Malformed()
                default: break
                }
            }
        }

        /// - Throws: ``CloudError`` `.malformedRequest`.
        public init(decoding frame: Frame) throws(CloudError) {
            do {
                self = try frame.withUnsafeBytes { try Notification(frame, 0..<frame.count, $0) }
            } catch { throw ServiceEvent.malformed }
        }

        /// As it was published.
        public var encoded: Frame { frame.part(range) }

        /// Bytes of ``encoded``.
        public var byteCount: Int { range.count }

        /// All of it.
        ///
        /// - Throws: ``CloudError`` `.malformedRequest`.
        public func decoded() throws(CloudError) -> WireNotification { try encoded.decode(WireNotification.self) }
    }

    /// What a partition's page says of a scope: several changes in one, so that
    /// whoever is behind the head has missed some of them.
    ///
    /// - Returns: Nil for an item that is no scope's head.
    init?(of service: ServiceName, partition: Int, head change: WireChange) {
        guard let head = try? WireScopeHead(serializedBytes: change.body), !head.owner.isEmpty else { return nil }
        var notification = WireNotification()
        notification.service = service.rawValue
        notification.owner = head.owner
        notification.scope = head.scope
        notification.token = head.token
        notification.previousSequence = head.token.sequence
        notification.digest = head.digest
        guard let notification = try? Notification(decoding: Frame(encoding: notification)) else { return nil }
        self.service = service.rawValue
        self.partition = partition
        self.notification = notification
        isHeadAlone = true
        position = notification.token
        previousSequence = notification.token.sequence
    }

    /// The events of an `EventBatch`.
    ///
    /// - Throws: ``CloudError`` `.malformedRequest`: nothing of the batch can be used.
    public static func batch(_ frame: Frame) throws(CloudError) -> [ServiceEvent] {
        do {
            return try frame.withUnsafeBytes { message in
                var events: [ServiceEvent] = []
                var reader = FieldReader(message)
                while let field = try reader.next() {
                    guard field.number == 1 else { continue }
                    guard case .range(let range) = field.value else { throw FieldReader.Malformed() }
                    events.append(try ServiceEvent(frame, at: range.lowerBound, reader.bytes(range)))
                }
                return events
            }
        } catch { throw malformed }
    }

    /// - Parameter start: Where the message lies in the frame.
    private init(
        _ frame: Frame, at start: Int, _ message: UnsafeRawBufferPointer
    ) throws(FieldReader.Malformed) {
        var reader = FieldReader(message)
        while let field = try reader.next() {
            switch (field.number, field.value) {
            case (1, .range(let range)): service = try reader.text(range)
            case (2, .number(let number)): partition = Int(UInt32(truncatingIfNeeded: number))
            case (3, .range(let range)): try reader.read(range, into: &position)
            case (4, .number(let number)): previousSequence = number
            // No service publishes it in parts, which would have to be put together.
            case (5, .range(let range)) where notification == nil:
                let place = start + range.lowerBound..<start + range.upperBound
                notification = try Notification(frame, place, reader.bytes(range))
            case (6, .range(let range)): causeID = OperationID(bytes: reader.bytes(range))
            case (1...6, _): throw FieldReader.Malformed()
            default: break
            }
        }
    }

    private static let malformed = CloudError(.malformedRequest, "The bytes are no events.")
}
