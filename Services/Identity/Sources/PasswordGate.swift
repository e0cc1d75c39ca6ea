internal import NephosCore
internal import Synchronization

/// Bounds the password checks that wait or run, so that strangers do not keep
/// the password check to themselves: it takes a tenth of a second on one of two threads.
///
/// A stranger finds a place among eight, one for each key, so that whoever has
/// a key that is known, or a code, never waits behind more than half a second
/// of other people's guesses.
final class PasswordGate: Sendable {
    enum Applicant: Hashable, Sendable {
        /// Anybody; by the key of the connection.
        case stranger(PublicKey)
        /// A device of the account, or who has its code.
        case known(AccountID)
    }

    /// A place, given back when nobody holds it any more: whatever becomes of the request that took it.
    final class Place: Sendable {
        private let applicant: Applicant
        private let gate: PasswordGate

        fileprivate init(_ applicant: Applicant, _ gate: PasswordGate) {
            self.applicant = applicant
            self.gate = gate
        }

        deinit { gate.leave(applicant) }
    }

    private struct Taken {
        var places: [Applicant: Int] = [:]
        var strangers = 0
        var known = 0
    }

    static let strangersMax = 8
    static let knownMax = 40
    private static let eachStrangerMax = 1
    private static let eachAccountMax = 2

    private let taken = Mutex(Taken())

    /// - Throws: ``CloudError`` `.serviceBusy` when there is no place.
    func enter(_ applicant: Applicant) throws(CloudError) -> Place {
        let found = taken.withLock { taken in
            let own = taken.places[applicant] ?? 0
            switch applicant {
            case .stranger:
                guard taken.strangers < Self.strangersMax, own < Self.eachStrangerMax else { return false }
                taken.strangers += 1
            case .known:
                guard taken.known < Self.knownMax, own < Self.eachAccountMax else { return false }
                taken.known += 1
            }
            taken.places[applicant] = own + 1
            return true
        }
        guard found else {
            throw CloudError(
                .serviceBusy,
                "Many try to sign in. Try again, or use a code from a signed-in device: nephos devices allow-sign-in",
                retryAfter: .seconds(1))
        }
        return Place(applicant, self)
    }

    private func leave(_ applicant: Applicant) {
        taken.withLock { taken in
            let own = taken.places[applicant] ?? 0
            taken.places[applicant] = own > 1 ? own - 1 : nil
            switch applicant {
            case .stranger: taken.strangers -= 1
            case .known: taken.known -= 1
            }
        }
    }
}
