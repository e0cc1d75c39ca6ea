public import NephosCore

/// Names a reservation within its owner: 16 bytes, of whoever asks for the room.
public struct ReservationID: Hashable, Sendable {
    public static let byteCount = 16
    public let bytes: [UInt8]

    /// - Returns: Nil if there are not 16 bytes.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        self.bytes = [UInt8](bytes)
    }
}

/// Room that is kept for content which is under way, and counts as if it were used.
public struct Reservation: Hashable, Sendable {
    public var id: ReservationID
    public var owner: Owner
    /// Where what is stored for it lies; nil: that is not known, and nobody finds it.
    public var partition: Int?
    public var app: AppID
    public var device: DeviceID
    /// Who has opened it, where the owner is an app; nil: that was not noted.
    public var account: AccountID?
    /// On what it counts.
    public var room: StorageRoom
    /// Bytes of room.
    public var bytes: UInt64
    /// Bytes of it that have something in them. Never more than there is room.
    public var filled: UInt64
    /// When it ends, by the purge clock (``PurgeClock``), unless it is used before.
    public var expires: Timestamp

    /// Whether it takes nothing more, and waits to be emptied. One whose time is over may still be used until then.
    public var hasEnded: Bool { expires.milliseconds == 0 }
}
