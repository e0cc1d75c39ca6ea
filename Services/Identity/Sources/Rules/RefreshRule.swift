internal import Core

/// What a presented refresh token is good for.
enum RefreshRule {
    enum Decision: Hashable {
        /// The newest of its family: exchange it.
        case rotate
        /// A repeat of the exchange that made the newest: answer it alike.
        case answerAgain
        /// An older one comes back. Either this copy or the other is stolen: end the family.
        case reused
        case expired
        /// It belongs to another device's key.
        case notBound
    }

    static func decide(
        family: RefreshFamily, boundTo deviceKey: PublicKey, presentedHash: [UInt8], operation: OperationID,
        peer: PublicKey, now: Timestamp
    ) -> Decision {
        if peer != deviceKey { return .notBound }
        if family.expires <= now { return .expired }
        if ConstantTime.equal(presentedHash, family.tokenHash) { return .rotate }
        if let previous = family.previousHash, ConstantTime.equal(presentedHash, previous),
            operation == family.issuedBy
        {
            return .answerAgain
        }
        return .reused
    }
}
