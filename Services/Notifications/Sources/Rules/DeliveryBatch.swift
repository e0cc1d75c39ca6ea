internal import Bus
internal import Core
internal import Wire

internal import struct Foundation.Data

/// What happened to the scopes in one batch of events, put together for their subscribers.
struct DeliveryBatch {
    /// Changes of one scope that travel in one frame; more go in further frames.
    static let notificationsPerFrameMax = 128
    /// Bytes of one frame, far below the 4 MiB at which a connection is cut.
    static let frameBytesMax = 512 << 10

    /// In the order in which the scopes first changed.
    private(set) var scopes: [ScopeKey] = []
    private var notifications: [ScopeKey: [WireNotification]] = [:]

    var isEmpty: Bool { scopes.isEmpty }

    mutating func add(_ notification: WireNotification, to key: ScopeKey) {
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
            let isOwn = DeviceID(notification.deviceID) == device
            return notification.reason == .quotaViolationChange ? isOwn : !isOwn
        }
        return Self.frames(of: told).map(\.message)
    }

    private static func frames(of notifications: [WireNotification]) -> [WireDelivery] {
        var frames: [WireDelivery] = []
        var current = WireDelivery()
        var bytes = 0
        for notification in notifications.map(fitting) {
            let size = size(notification)
            let isFull = current.notifications.count == notificationsPerFrameMax || bytes + size > frameBytesMax
            if isFull, !current.notifications.isEmpty {
                frames.append(current)
                current = WireDelivery()
                bytes = 0
            }
            current.notifications.append(notification)
            bytes += size
        }
        if !current.notifications.isEmpty { frames.append(current) }
        return frames
    }

    /// The notification as it fits a frame: if need be without the items'
    /// states, and then with the first item alone. A device pulls what a
    /// notification does not bring.
    private static func fitting(_ notification: WireNotification) -> WireNotification {
        guard size(notification) > frameBytesMax else { return notification }
        var short = notification
        for index in short.changes.indices { short.changes[index].body = Data() }
        if size(short) > frameBytesMax { short.changes = Array(short.changes.prefix(1)) }
        return short
    }

    /// Bytes in the frame, and rather more: counted, since encoding it for this alone would cost as much again.
    private static func size(_ notification: WireNotification) -> Int {
        let names = notification.scope.utf8.count + notification.deviceID.utf8.count
        return notification.changes.reduce(128 + names) { $0 + $1.item.utf8.count + $1.body.count + 64 }
    }

    /// The devices that made a change to the scope.
    func originators(of key: ScopeKey) -> Set<DeviceID> {
        Set((notifications[key] ?? []).map { DeviceID($0.deviceID) })
    }
}

extension WireDelivery {
    /// The delivery as the server sends it by itself: a reply without a request id.
    var message: Message { ReplyEnvelope(id: nil, result: .success(Frame(encoding: self))).encoded() }
}
