public import NephosCore
public import NephosStorage

/// Room that is kept before content is sent, so that nobody sends a gigabyte to hear then that the plan is full.
///
/// A reservation is charged whole when it is made, filled as content is stored, and then either settled, by which what
/// was kept of it stays charged and the rest is given back, or ended (by its owner, or by its time), and emptied in
/// steps. Rows, so a restart changes nothing.
extension StorageLedger {
    /// Reservations of one owner, at most.
    static let reservationsMax = 1000
    /// Of one device, so that none takes them all.
    static let reservationsOfDeviceMax = 100
    /// The same of an app, whose public databases all accounts write to: those of all devices of one account are a part.
    static let reservationsOfAppMax = 10_000
    static let reservationsOfDeviceForAppMax = 8
    /// What one account may have reserved of an app's plan: a sixteenth, or so many bytes of a smaller one, of which half is
    /// left to others in any case.
    private static let reservedForAppPart: UInt64 = 16
    private static let reservedForAppLeast: UInt64 = 64 << 20
    static func reservedForAppMax(plan: UInt64) -> UInt64 {
        max(plan / reservedForAppPart, min(plan / 2, reservedForAppLeast))
    }
    /// Damaged rows that are set aside in one step.
    private static let setAsideMax = 64

    /// Keeps room, or changes what is kept under this id.
    ///
    /// - Parameters:
    ///   - bytes: In all. Less than before gives room back, but never what is filled.
    ///   - partition: Where what is stored for it will lie; nil: the owner is an account.
    ///   - room: On what it counts: of one that is known, the same as before.
    ///   - account: Who asks, where the owner is an app: none keeps others from its plan.
    ///   - expires: When it ends, where it is new or gets more room.
    /// - Throws: ``CloudError`` `.quotaExceeded`, `.serviceBusy` as ``charge(_:to:app:device:in:)``, and if the
    ///   owner or the device has too many, or the account too much of an app's plan; `.limitExceeded`: so much the account
    ///   never has of it. Nothing was changed then.
    public func reserve(
        _ bytes: UInt64, under id: ReservationID, for owner: Owner, at partition: Int? = nil,
        on room: StorageRoom = .plan, app: AppID, device: DeviceID, account: AccountID? = nil,
        until expires: Timestamp, in transaction: any HandlerTransaction
    ) throws -> Reservation {
        let known = try ReservationStore.find(id, of: owner, in: transaction)
        guard known?.hasEnded != true else {
            throw CloudError(
                .constraintViolation, "The upload of this id has ended, and is being removed. Use a new id.",
                details: CloudError.reservationHasEnded)
        }
        if known == nil {
            let ofDevice = owner.isApp ? Self.reservationsOfDeviceForAppMax : Self.reservationsOfDeviceMax
            guard try ReservationStore.count(of: device, for: owner, areOpen: true, in: transaction) < ofDevice
            else { throw Self.tooMany(ofDevice, of: "device") }
            let unremoved = Self.closedFactor * ofDevice
            guard try ReservationStore.count(of: device, for: owner, areOpen: false, in: transaction) < unremoved
            else { throw Self.tooManyClosed }
            let ofAll = owner.isApp ? Self.reservationsOfAppMax : Self.reservationsMax
            guard try ReservationStore.count(of: owner, in: transaction) < ofAll
            else { throw Self.tooMany(ofAll, of: owner.isApp ? "app" : "account") }
        }
        var reservation =
            known
            ?? Reservation(
                id: id, owner: owner, partition: partition ?? owner.account.map { ScopeName($0, "").partition },
                app: app, device: device, account: owner.isApp ? account : nil, room: room, bytes: 0, filled: 0,
                expires: expires)
        guard reservation.room.name == room.name else { throw CloudError.otherRoom }
        let bytes = max(bytes, reservation.filled)
        if bytes >= reservation.bytes {
            try checkPart(of: reservation, bytes, in: transaction)
            try charge(
                bytes - reservation.bytes, to: owner, on: room, app: reservation.app, device: reservation.device,
                in: transaction)
        } else {
            try release(
                reservation.bytes - bytes, of: owner, on: room, app: reservation.app, device: reservation.device,
                in: transaction)
        }
        // To ask again for what it has puts nothing off: room would be kept by asking alone.
        if bytes > reservation.bytes { reservation.expires = max(reservation.expires, expires) }
        reservation.bytes = bytes
        try ReservationStore.save(reservation, in: transaction)
        return reservation
    }

    /// Checks that what an account has of an app's plan is a part of it.
    private func checkPart(of reservation: Reservation, _ bytes: UInt64, in transaction: any HandlerTransaction) throws
    {
        // As long as the plan is not known there is no room either.
        guard let account = reservation.account, bytes > reservation.bytes,
            let plan = try plan(of: reservation.owner, in: transaction)
        else { return }
        let most = Self.reservedForAppMax(plan: plan)
        guard bytes <= most else {
            throw CloudError(
                .limitExceeded, "One account has no such part of the app's plan for its uploads. Send less.",
                details: ["bytes_max": "\(most)"])
        }
        let all = try ReservationStore.bytes(of: account, for: reservation.owner, in: transaction).reserved
        let others = all - min(all, reservation.bytes)
        guard others <= most - bytes else {
            throw CloudError(
                .serviceBusy,
                "The account's other uploads have its part of the app's plan. Close some of them, or try again later.",
                details: ["bytes_max": "\(most)"], retryAfter: .seconds(60))
        }
    }

    /// A device has so many times its uploads that are closed and not removed yet, with those that are open.
    private static let closedFactor = 4
    private static let tooManyClosed = CloudError(
        .serviceBusy, "So many uploads of the device were closed that not all are removed yet. Try again in a moment.",
        retryAfter: .milliseconds(200))

    /// It passes by itself: an upload that stands still ends.
    private static func tooMany(_ maximum: Int, of whom: String) -> CloudError {
        CloudError(
            .serviceBusy, "Too many uploads of the \(whom) are open. Close some of them, or try again later.",
            details: ["maximum": "\(maximum)"], retryAfter: .seconds(60))
    }

    /// The reservation, also one that has ended and is not empty yet.
    public func reservation(
        _ id: ReservationID, of owner: Owner, in transaction: any Transaction
    ) throws -> Reservation? {
        try ReservationStore.find(id, of: owner, in: transaction)
    }

    /// Bytes that the account has reserved of an app's plan and not stored yet.
    public func unfilledBytes(of account: AccountID, for owner: Owner, in transaction: any Transaction) throws -> UInt64
    {
        let (reserved, filled) = try ReservationStore.bytes(of: account, for: owner, in: transaction)
        return reserved - min(filled, reserved)
    }

    /// Which app has a reservation; nil: there is none of this id.
    public static func app(
        ofReservation id: ReservationID, of owner: Owner, in transaction: any ReadTransaction
    ) throws -> AppID? {
        try ReservationStore.find(id, of: owner, in: transaction)?.app
    }

    /// Notes that something was stored in it, which puts its end off.
    ///
    /// - Parameter bytes: No more than has room (``Reservation/bytes`` less ``Reservation/filled``).
    public func fill(
        _ reservation: Reservation, by bytes: UInt64, until expires: Timestamp, in transaction: any Transaction
    ) throws {
        var reservation = reservation
        reservation.filled = min(reservation.bytes, reservation.filled + bytes)
        reservation.expires = max(reservation.expires, expires)
        try ReservationStore.save(reservation, in: transaction)
    }

    /// Ends it: what is not filled is given back at once, and it takes nothing more.
    public func end(_ reservation: Reservation, in transaction: any HandlerTransaction) throws {
        var ended = reservation
        ended.expires = Timestamp(milliseconds: 0)
        try giveBack(reservation.bytes - reservation.filled, of: &ended, in: transaction)
        try ReservationStore.save(ended, in: transaction)
    }

    /// Gives back what was removed of one that has ended.
    ///
    /// - Parameter isEmpty: Whether that was the last of it; it is forgotten then.
    public func empty(
        _ reservation: Reservation, by bytes: UInt64, isEmpty: Bool, in transaction: any HandlerTransaction
    ) throws {
        var reservation = reservation
        try giveBack(isEmpty ? reservation.bytes : bytes, of: &reservation, in: transaction)
        reservation.filled -= min(bytes, reservation.filled)
        if isEmpty {
            try ReservationStore.remove(reservation, in: transaction)
        } else {
            try ReservationStore.save(reservation, in: transaction)
        }
    }

    /// Takes bytes out of a reservation that stay charged: something keeps what was stored in it.
    ///
    /// - Parameters:
    ///   - bytes: Of what it is filled with.
    ///   - app: Who keeps it.
    public func keep(
        _ bytes: UInt64, of reservation: Reservation, app: AppID, device: DeviceID,
        in transaction: any HandlerTransaction
    ) throws {
        var reservation = reservation
        let bytes = min(bytes, reservation.filled)
        reservation.filled -= bytes
        reservation.bytes -= bytes
        try ReservationStore.save(reservation, in: transaction)
        guard reservation.room.isPlan else { return }
        try move(
            bytes, of: reservation.owner, from: (reservation.app, reservation.device), to: (app, device),
            in: transaction)
    }

    /// Counts bytes on the plan for another app and device of the same owner.
    public func move(
        _ bytes: UInt64, of owner: Owner, from old: (app: AppID, device: DeviceID),
        to new: (app: AppID, device: DeviceID), in transaction: any HandlerTransaction
    ) throws {
        guard bytes > 0, old != new else { return }
        let bytes = Int64(clamping: bytes)
        try LedgerStore.addUsed(-bytes, of: owner, app: old.app, device: old.device, in: transaction)
        try LedgerStore.addUsed(bytes, of: owner, app: new.app, device: new.device, in: transaction)
    }

    /// Ends it with what was committed: so much stays charged, and the rest is given back.
    public func settle(
        _ reservation: Reservation, keeping bytes: UInt64, in transaction: any HandlerTransaction
    ) throws {
        var reservation = reservation
        try giveBack(reservation.bytes - min(bytes, reservation.bytes), of: &reservation, in: transaction)
        try ReservationStore.remove(reservation, in: transaction)
    }

    /// One that was ended and is not empty yet, of the first owner behind this one; nil: there is none behind it.
    ///
    /// - Parameter owner: Whose turn was last, so that nobody waits for all that another has ended; nil: nobody's.
    public func endedReservation(
        after owner: Owner?, in transaction: any HandlerTransaction
    ) throws -> Reservation? {
        try firstWhole(in: transaction) { try ReservationStore.ended(after: owner ?? Owner(""), in: transaction) }
    }

    /// The first whose time is over and that was not ended yet.
    ///
    /// - Parameter latest: When one ends at the latest that is made now. Those that end later were made while the clock
    ///   was ahead, and would keep their room until that time: they end then.
    public func expiredReservation(
        at now: Timestamp, latest: Timestamp, in transaction: any HandlerTransaction
    ) throws -> Reservation? {
        try ReservationStore.bringForward(to: latest, in: transaction)
        return try firstWhole(in: transaction) { try ReservationStore.expired(at: now, in: transaction) }
    }

    /// The first of those that end soon and have room that nothing has come into.
    public func idleReservation(
        endingBefore time: Timestamp, in transaction: any HandlerTransaction
    ) throws -> Reservation? {
        try firstWhole(in: transaction) { try ReservationStore.idle(endingBefore: time, in: transaction) }
    }

    /// Gives back the room that nothing has come into. One that has nothing else ends by it.
    public func giveBackUnfilled(_ reservation: Reservation, in transaction: any HandlerTransaction) throws {
        guard reservation.filled > 0 else { return try end(reservation, in: transaction) }
        var left = reservation
        try giveBack(reservation.bytes - reservation.filled, of: &left, in: transaction)
        try ReservationStore.save(left, in: transaction)
    }

    /// Sets aside one whose row is damaged, so that it keeps no other waiting. What it holds stays charged and stored.
    public func setAside(_ reservation: Reservation, in transaction: any HandlerTransaction) throws {
        try setAside(reservation.id.bytes, of: reservation.owner, in: transaction)
    }

    private func setAside(_ id: [UInt8], of owner: Owner, in transaction: any HandlerTransaction) throws {
        try ReservationStore.setAside(id, of: owner, in: transaction)
        transaction.afterCommit { [host] in
            host.report(
                "The row of a reservation is damaged, and was set aside. Restore the last backup to give its room back",
                details: [
                    "owner": owner.rawValue, "id": id.prefix(32).map { String($0, radix: 16) }.joined(separator: " "),
                ])
        }
    }

    /// The first that is not damaged. Those that are make way; of very many, some do at the next call.
    private func firstWhole(
        in transaction: any HandlerTransaction, _ next: () throws -> ReservationStore.Row?
    ) throws -> Reservation? {
        for _ in 0..<Self.setAsideMax {
            switch try next() {
            case .whole(let reservation): return reservation
            case .damaged(let owner, let id): try setAside(id, of: owner, in: transaction)
            case nil: return nil
            }
        }
        return nil
    }

    private func giveBack(
        _ bytes: UInt64, of reservation: inout Reservation, in transaction: any HandlerTransaction
    ) throws {
        let bytes = min(bytes, reservation.bytes)
        reservation.bytes -= bytes
        try release(
            bytes, of: reservation.owner, on: reservation.room, app: reservation.app, device: reservation.device,
            in: transaction)
    }
}

extension CloudError {
    /// An upload is for a container that counts otherwise than the one that it is used for.
    public static let otherRoom = CloudError(
        .invalidArguments,
        "The upload was opened for what counts otherwise. Name the container when you open it, and use another id.",
        details: ["argument": "transfer_id"])
}
