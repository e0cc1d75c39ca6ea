internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

internal import struct Foundation.Data

/// What happened to the scopes in one batch of events, put together for their subscribers.
struct DeliveryBatch {
    /// Changes of one scope that travel in one frame; more go in further frames.
    static let notificationsPerFrameMax = 128
    /// Bytes of one frame, far below the 4 MiB at which a connection is cut.
    static let frameBytesMax = 512 << 10

    /// In the order in which the scopes first changed.
    private(set) var scopes: [ScopeKey] = []
    private var notifications: [ScopeKey: [ServiceEvent.Notification]] = [:]

    var isEmpty: Bool { scopes.isEmpty }

    mutating func add(_ notification: ServiceEvent.Notification, to key: ScopeKey) {
        if notifications[key] == nil { scopes.append(key) }
        notifications[key, default: []].append(notification)
    }

    /// The frames for a subscriber of the scope: all of its changes but the
    /// device's own, and of the refused writes only those.
    ///
    /// Most subscribers of a scope get the very same frames, so they are made
    /// once; `device` is one that made a change, or nil for all others.
    func messages(for key: ScopeKey, to device: DeviceID?) -> [Message] {
        let told = (notifications[key] ?? []).filter { notification in
            let isOwn = notification.device == device
            return notification.reason == .quotaViolationChange ? isOwn : !isOwn
        }
        return Self.frames(of: told).map { ReplyEnvelope(id: nil, result: .success($0)).encoded() }
    }

    /// Encoded deliveries. What a service has published goes on as it is.
    private static func frames(of notifications: [ServiceEvent.Notification]) -> [Frame] {
        var frames: [Frame] = []
        var current = FieldWriter()
        var count = 0
        for notification in notifications {
            let encoded = fitting(notification)
            let isFull = count == notificationsPerFrameMax || current.count + encoded.count + 8 > frameBytesMax
            if isFull, count > 0 {
                frames.append(Frame(taking: &current))
                count = 0
            }
            if count == 0 { current = FieldWriter(reserving: encoded.count + 8) }
            encoded.withUnsafeBytes { current.data(1, $0, isPresent: true) }
            count += 1
        }
        if count > 0 { frames.append(Frame(taking: &current)) }
        return frames
    }

    /// The notification as it fits a frame: if need be without the items'
    /// states, and then with the first item alone. A device pulls what a
    /// notification does not bring.
    private static func fitting(_ notification: ServiceEvent.Notification) -> Frame {
        guard notification.byteCount > frameBytesMax, var short = try? notification.decoded() else {
            return notification.encoded
        }
        for index in short.changes.indices { short.changes[index].body = Data() }
        let encoded = Frame(encoding: short)
        guard encoded.count > frameBytesMax else { return encoded }
        short.changes = Array(short.changes.prefix(1))
        return Frame(encoding: short)
    }

    /// The devices that made a change to the scope.
    func originators(of key: ScopeKey) -> Set<DeviceID> {
        Set((notifications[key] ?? []).map(\.device))
    }
}

extension WireDelivery {
    /// The delivery as the server sends it by itself: a reply without a request id.
    var message: Message { ReplyEnvelope(id: nil, result: .success(Frame(encoding: self))).encoded() }
}
