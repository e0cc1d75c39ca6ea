public import Configuration
public import NephosCore

/// The settings of the notifications service.
///
/// | key | environment | default |
/// | --- | --- | --- |
/// | `notifications.heartbeat.milliseconds` | `NEPHOS_NOTIFICATIONS_HEARTBEAT_MILLISECONDS` | 5000 |
/// | `notifications.connections.max` | `NEPHOS_NOTIFICATIONS_CONNECTIONS_MAX` | 50000 |
/// | `notifications.connections.per.device.max` | `NEPHOS_NOTIFICATIONS_CONNECTIONS_PER_DEVICE_MAX` | 64 |
/// | `notifications.subscriber.queue.max` | `NEPHOS_NOTIFICATIONS_SUBSCRIBER_QUEUE_MAX` | 1000 |
public struct NotificationsConfiguration: Sendable {
    /// How often each connection gets the heads of what it follows.
    public var heartbeat: Duration = .seconds(5)
    /// Subscribed connections in all. One more is refused with `.serviceBusy`.
    public var connectionsMax = 50_000
    /// Subscribed connections of one device (its processes).
    public var connectionsPerDeviceMax = 64
    /// Deliveries that may wait for one connection. One that is slower than that
    /// is told to refetch instead.
    public var subscriberQueueMax = 1000
    /// Scopes that one connection may follow.
    public var scopesPerConnectionMax = 256

    public init() {}

    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that is not above zero.
    public init(_ reader: ConfigReader) throws(CloudError) {
        let reader = reader.scoped(to: "notifications")
        func positive(_ key: ConfigKey, _ standard: Int) throws(CloudError) -> Int {
            let value = reader.int(forKey: key, default: standard)
            guard value > 0 else {
                throw CloudError(
                    .configurationInvalid, "A setting must be above zero.", details: ["key": "notifications.\(key)"])
            }
            return value
        }
        heartbeat = .milliseconds(try positive("heartbeat.milliseconds", 5000))
        connectionsMax = try positive("connections.max", connectionsMax)
        connectionsPerDeviceMax = try positive("connections.per.device.max", connectionsPerDeviceMax)
        subscriberQueueMax = try positive("subscriber.queue.max", subscriberQueueMax)
    }
}
