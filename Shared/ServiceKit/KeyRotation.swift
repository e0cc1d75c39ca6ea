public import Bus
public import Core

/// How the services' CURVE keys are replaced: the next ones are announced in
/// the roster, so that devices learn them from identity's directory and find
/// the services by either; and later they become the services' own.
public enum KeyRotation {
    /// - Parameter secrets: Those of the roster's services, in its order.
    public static func announce(
        _ roster: inout Roster, _ secrets: inout [ServiceSecrets], _ transport: some Transport
    ) throws {
        for index in roster.services.indices
        where roster.services[index].nextPublicKey == nil || secrets[index].nextSecretKey == nil {
            let keys = try transport.makeKeyPair()
            secrets[index].nextSecretKey = keys.secretKey.z85
            roster.services[index].nextPublicKey = keys.publicKey.z85
        }
    }

    /// - Throws: ``CloudError`` `.constraintViolation` when none are announced.
    public static func makeCurrent(_ roster: inout Roster, _ secrets: inout [ServiceSecrets]) throws(CloudError) {
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
    }
}
