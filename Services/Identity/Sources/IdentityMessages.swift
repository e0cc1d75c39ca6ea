internal import Core
internal import ServiceKit
internal import Wire

// Records as they travel.

extension WireDevice {
    init(_ device: DeviceRecord) {
        self.init()
        deviceID = device.id.rawValue
        name = device.name
        model = device.model
        platform = device.platform
        enrolledAt = device.enrolled.milliseconds
        lastSeenAt = device.lastSeen.milliseconds
        revoked = device.state != .active
        publicKey = device.key.z85
    }
}

extension WireApp {
    init(_ app: AppRecord) {
        self.init()
        appID = app.id.rawValue
        name = app.name
        storeID = app.store.rawValue
        containerIds = app.containers
    }
}

extension WireServiceAddress {
    /// Where clients reach the service.
    init(_ entry: Roster.Entry) {
        self.init()
        service = entry.service
        publicKey = entry.publicKey
        requestEndpoints = [entry.publicRequests ?? entry.requests]
        subscriptionEndpoints = [entry.publicSubscriptions ?? entry.subscriptions].compactMap { $0 }
    }
}
