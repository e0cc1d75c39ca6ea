public import NephosBus
public import NephosCore

/// How the services' CURVE keys are replaced: the next ones are announced in
/// the roster, so that devices learn them from identity's directory and find
/// the services by either; and later they become the services' own.
public enum KeyRotation {
    /// How long announced keys wait. A device that is used renews its token, and learns of them, within a token's life
    /// of 15 minutes; this leaves room for one that sleeps at lunch.
    public static let learningTime: Duration = .seconds(3600)

    /// - Parameters:
    ///   - secrets: Those of the roster's services, in its order.
    ///   - now: From when on devices can learn the keys.
    public static func announce(
        _ roster: inout Roster, _ secrets: inout [ServiceSecrets], _ transport: some Transport, at now: Timestamp
    ) throws {
        if roster.services.contains(where: { $0.nextPublicKey == nil }) || roster.nextKeysAnnounced == nil {
            roster.nextKeysAnnounced = now.milliseconds
        }
        for index in roster.services.indices
        where roster.services[index].nextPublicKey == nil || secrets[index].nextSecretKey == nil {
            let keys = try transport.makeKeyPair()
            secrets[index].nextSecretKey = keys.secretKey.z85
            roster.services[index].nextPublicKey = keys.publicKey.z85
        }
    }

    /// - Parameter forced: Whether not to wait for ``learningTime``: for a key that somebody else knows.
    /// - Throws: ``CloudError`` `.constraintViolation` when none are announced, or when it is too early, with the time
    ///   that is left.
    public static func makeCurrent(
        _ roster: inout Roster, _ secrets: inout [ServiceSecrets], at now: Timestamp, forced: Bool
    ) throws(CloudError) {
        if let announced = roster.nextKeysAnnounced, !forced {
            let left = learningTime - now.since(Timestamp(milliseconds: announced))
            guard left <= .zero else {
                // A clock that was set back makes nobody wait longer than from the beginning.
                let left = min(left, learningTime)
                throw CloudError(
                    .constraintViolation,
                    "The next keys were announced too short a time ago: devices that have not learned them could not "
                        + "connect. Switch in \(left.components.seconds / 60 + 1) min, or with --force.",
                    retryAfter: left)
            }
        }
        for index in roster.services.indices {
            guard let next = roster.services[index].nextPublicKey else {
                throw CloudError(
                    .constraintViolation,
                    "No keys are announced. Run this without --switch first, and give devices time.",
                    details: ["service": roster.services[index].service])
            }
            roster.services[index].publicKey = next
            roster.services[index].nextPublicKey = nil
            // Without one, a run that was interrupted has switched it already.
            if let secret = secrets[index].nextSecretKey { secrets[index].secretKey = secret }
            secrets[index].nextSecretKey = nil
        }
        roster.nextKeysAnnounced = nil
    }
}
