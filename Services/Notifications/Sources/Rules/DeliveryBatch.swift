internal import Bus
internal import Core
internal import Wire

/// What happened to the scopes in one batch of events, put together for their subscribers.
struct DeliveryBatch {
    /// Changes of one scope that travel in one frame; more go in further frames.
    static let notificationsPerFrameMax = 128

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
        return stride(from: 0, to: told.count, by: Self.notificationsPerFrameMax).map { start in
            var delivery = WireDelivery()
            delivery.notifications = Array(told[start..<min(start + Self.notificationsPerFrameMax, told.count)])
            return delivery.message
        }
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
