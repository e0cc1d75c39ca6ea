internal import NephosCore

/// What a presented refresh token is good for.
///
/// Each is good for one exchange. The answer to an exchange can be lost, so the
/// device keeps the id of its request on disk and repeats it, however much
/// later, until it is answered; whoever comes with the same token under another
/// id is somebody else with a copy of the device's home (the token works with
/// its key alone).
enum RefreshRule {
    enum Decision: Hashable {
        /// The newest of its family: exchange it.
        case rotate
        /// A repeat of the exchange that made the newest: answer it alike.
        case answerAgain
        /// A repeat of an exchange before the newest, a moment after that one: a copy of a request that was overtaken
        /// on its way. It gets nothing, and proves nothing.
        case late
        /// An older one under a new id: it is in two places. End the device.
        case reused
        case expired
        /// It belongs to another device's key.
        case notBound
        /// It was never one of this family's.
        case foreign
    }

    /// How much later than the exchange that followed it a repeat may still be under way. Whoever repeats it after that
    /// never heard the answer, and somebody else has used it: a copy of a home whose exchange was waiting.
    static let lateMax: Duration = .seconds(120)

    struct Presented: Hashable {
        var generation: UInt64
        var hash: [UInt8]
        /// Made with one of the keys that this service has.
        var isGenuine: Bool
    }

    static func decide(
        family: RefreshFamily, boundTo deviceKey: PublicKey, presented: Presented, operation: OperationID,
        peer: PublicKey, now: Timestamp
    ) -> Decision {
        if peer != deviceKey { return .notBound }
        if family.expires <= now { return .expired }
        // By its hash, should the key that it was made with be gone.
        if ConstantTime.equal(presented.hash, family.tokenHash) { return .rotate }
        let isPrevious = family.previousHash.map { ConstantTime.equal(presented.hash, $0) } ?? false
        if isPrevious, operation == family.issuedBy { return .answerAgain }
        guard isPrevious || presented.isGenuine else { return .foreign }
        // Newer than the newest that is known: the database is an old copy of itself, and the token is right.
        if presented.generation > family.generation { return .rotate }
        let overtaken = family.earlierRequests.last { $0.operation == operation }
        return overtaken.map { now.since($0.overtaken) <= lateMax } ?? (family.issuedBy == operation) ? .late : .reused
    }
}
