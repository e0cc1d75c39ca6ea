public import NephosCore
public import NephosServiceKit

/// The settings of the notifications service.
///
/// | key | environment | default |
/// | --- | --- | --- |
/// | `notifications.heartbeat_milliseconds` | `NEPHOS_NOTIFICATIONS_HEARTBEAT_MILLISECONDS` | 5000 |
/// | `notifications.connections_max` | `NEPHOS_NOTIFICATIONS_CONNECTIONS_MAX` | 50000 |
/// | `notifications.connections_per_device_max` | `NEPHOS_NOTIFICATIONS_CONNECTIONS_PER_DEVICE_MAX` | 64 |
/// | `notifications.subscriber_queue_max` | `NEPHOS_NOTIFICATIONS_SUBSCRIBER_QUEUE_MAX` | 1000 |
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

    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws(CloudError) {
        heartbeat = .milliseconds(
            try settings.integer("heartbeat_milliseconds", default: 5000, in: 10...3_600_000))
        connectionsMax = try settings.integer("connections_max", default: connectionsMax, in: 1...1_000_000)
        connectionsPerDeviceMax = try settings.integer(
            "connections_per_device_max", default: connectionsPerDeviceMax, in: 1...1_000_000)
        subscriberQueueMax = try settings.integer(
            "subscriber_queue_max", default: subscriberQueueMax, in: 1...1_000_000)
    }
}
