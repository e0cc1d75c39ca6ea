internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

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
        policyClass = device.policyClass == .smallDevice ? .smallDevice : .computer
    }
}

extension WireApp {
    init(_ app: AppRecord) {
        self.init()
        appID = app.id.rawValue
        name = app.name
        storeID = app.entitlements.store?.rawValue ?? ""
        containerIds = app.entitlements.containers.map(\.rawValue)
        capabilities = app.entitlements.capabilities.wire
        version = app.entitlements.version
    }
}

extension WireAccount {
    init(_ account: AccountRecord, devices: Int) {
        self.init()
        accountID = account.id.rawValue
        accountName = account.name
        createdAt = account.created.milliseconds
        deviceCount = UInt32(clamping: devices)
        locked = account.isLocked
        planID = account.plan.rawValue
    }
}

extension WireServiceAddress {
    /// Where clients reach the service.
    init(_ entry: Roster.Entry) {
        self.init()
        service = entry.service
        publicKey = entry.publicKey
        nextPublicKey = entry.nextPublicKey ?? ""
        requestEndpoints = [entry.publicRequests ?? entry.requests]
        subscriptionEndpoints = [entry.publicSubscriptions ?? entry.subscriptions].compactMap { $0 }
        bulkEndpoints = [entry.publicBulk ?? entry.bulk].compactMap { $0 }
    }
}
