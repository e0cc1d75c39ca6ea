internal import Core

/// What becomes of a key that signs in with an account.
enum EnrolmentRule {
    enum Decision: Hashable {
        /// The key was locked out: a new one is needed.
        case refuse
        /// The key is this device of the account (nil: a new one); the others end.
        case enrol(DeviceRecord?, ending: [DeviceRecord])
    }

    static func decide(enrolments: [DeviceRecord], account: AccountID) -> Decision {
        // Also with another account: the key itself is what was lost.
        if enrolments.contains(where: { $0.state == .revoked }) { return .refuse }
        return .enrol(
            enrolments.first { $0.account == account && $0.state == .active },
            ending: enrolments.filter { $0.account != account && $0.state == .active })
    }
}
