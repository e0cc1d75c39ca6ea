internal import NephosCore

/// What becomes of a key that signs in with an account.
enum EnrolmentRule {
    /// Active devices of one account.
    static let devicesMax = 100
    /// Devices of one account that have signed out and are still known.
    static let signedOutMax = 100
    /// For how long all are known that were seen: longer than any access token lives.
    static let signedOutRetention: Duration = .seconds(2 * 86_400)
    /// A browser that was not seen for this long may end for a new device.
    static let browserRest: Duration = .seconds(86_400)
    /// New devices of one account in an hour: each leaves something behind, in every service.
    static let enrolmentsPerHour = 300

    enum Decision: Hashable {
        /// The key was locked out: a new one is needed.
        case refuse
        /// The key is this device of the account (nil: a new one); the others end.
        case enrol(DeviceRecord?, ending: [DeviceRecord])
    }

    /// Which device has to end so that a new one has room: of the browsers the one that was seen longest ago, since few
    /// people sign out of a browser. Nil: there is room.
    ///
    /// - Parameter active: The account's active devices.
    /// - Throws: ``CloudError`` `.limitExceeded`: revoke a device, or sign one out.
    static func makeRoom(among active: [DeviceRecord], at now: Timestamp) throws(CloudError) -> DeviceRecord? {
        guard active.count >= devicesMax else { return nil }
        let resting = active.filter { $0.model == "browser" && $0.lastSeen < now.advanced(by: .zero - browserRest) }
        guard let oldest = resting.min(by: { $0.lastSeen < $1.lastSeen }) else {
            throw CloudError(
                .limitExceeded, "The account has as many devices as it may. Revoke one. See: nephos devices",
                details: ["devices_max": "\(devicesMax)"])
        }
        return oldest
    }

    /// - Parameter recent: Devices that the account has enrolled in the last hour.
    /// - Throws: ``CloudError`` `.requestRateLimited`.
    static func checkPace(recent: Int) throws(CloudError) {
        guard recent < enrolmentsPerHour else {
            throw CloudError(
                .requestRateLimited, "Too many new devices have signed in to the account within an hour.",
                details: ["new_devices_per_hour": "\(enrolmentsPerHour)"], retryAfter: .seconds(600))
        }
    }

    /// - Parameter appPassword: The app password's id; empty: the account's own password. With another than before the key
    ///   is another device, which may do other things.
    static func decide(enrolments: [DeviceRecord], account: AccountID, appPassword: String = "") -> Decision {
        // Also with another account: the key itself is what was lost.
        if enrolments.contains(where: \.state.isLockedOut) { return .refuse }
        let active = enrolments.filter { $0.state == .active }
        let isSame = { (device: DeviceRecord) in device.account == account && device.appPassword == appPassword }
        return .enrol(active.first(where: isSame), ending: active.filter { !isSame($0) })
    }
}
