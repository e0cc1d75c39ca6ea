internal import Crypto
internal import Foundation
public import NephosBus
public import NephosCore
public import NephosWire

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
    /// - Throws: ``CloudError`` `.constraintViolation` after a switch that came to no end: what was announced before it are
    ///   the services' keys by now, in part, and nothing else may take their place.
    public static func announce(
        _ roster: inout Roster, _ secrets: inout [ServiceSecrets], _ transport: some Transport, at now: Timestamp
    ) throws {
        // Secrets are written before the roster: only a switch leaves one without its next key there.
        guard zip(roster.services, secrets).allSatisfy({ $0.nextPublicKey == nil || $1.nextSecretKey != nil }) else {
            throw CloudError(
                .constraintViolation,
                "A switch to the announced keys came to no end. Finish it first: nephos secrets rotate-service-keys --switch --force"
            )
        }
        if roster.services.contains(where: { $0.nextPublicKey == nil }) || roster.nextKeysAnnounced == nil {
            roster.nextKeysAnnounced = now.milliseconds
        }
        for index in roster.services.indices
        where roster.services[index].nextPublicKey == nil {
            let keys = try transport.makeKeyPair()
            secrets[index].nextSecretKey = keys.secretKey.z85
            roster.services[index].nextPublicKey = keys.publicKey.z85
        }
    }

    /// Which keys are announced: 16 hexadecimal digits; empty: none.
    static func announced(in roster: Roster) -> String {
        let keys = roster.services.compactMap(\.nextPublicKey)
        guard !keys.isEmpty else { return "" }
        return SHA256.hash(data: Data(keys.joined(separator: " ").utf8)).prefix(8)
            .map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// Only identity tells devices of announced keys, and only as long as it runs: what the roster says of when they were
    /// announced is no proof that anybody could learn them.
    ///
    /// - Parameter identity: What it says of itself.
    /// - Throws: ``CloudError`` `.constraintViolation` when it runs with others, or does not run for ``learningTime`` yet.
    public static func requireTold(_ roster: Roster, by identity: WireCheckHealthReply) throws(CloudError) {
        guard identity.announcedKeys == announced(in: roster) else {
            throw CloudError(
                .constraintViolation,
                "Identity has not read the next keys, so that no device has been told of them. Where it has a folder of its own, hand the roster out (nephos init --if-missing --hand-out FOLDER); start it again, and switch in an hour, or with --force."
            )
        }
        let left = learningTime - .milliseconds(Int64(clamping: identity.uptimeMilliseconds))
        guard left <= .zero else { throw tooEarly(left) }
    }

    private static func tooEarly(_ left: Duration) -> CloudError {
        CloudError(
            .constraintViolation,
            "The next keys were announced too short a time ago, or identity was started since: devices that have not "
                + "learned them could not connect. Switch in \(left.components.seconds / 60 + 1) min, or with --force.",
            retryAfter: left)
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
                throw tooEarly(min(left, learningTime))
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
