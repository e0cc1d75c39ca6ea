import NephosCore

/// Who has to do something before a pending item can move on.
public enum Blocker: String, Codable, Sendable, Hashable {
    /// This device, or who uses it: sign in, make room on its disk.
    case thisDevice
    /// Nobody but the network: it is tried again.
    case network
    /// The server, or its operator.
    case server
    /// Whoever can delete something, or give the account more room.
    case quota
    /// Whoever decides what this device, app or account may do.
    case policy
}

/// What becomes of a push that failed.
enum PushOutcome: Hashable {
    /// Send it again under the same id after a pause.
    case repeatLater
    /// It may change until it is sent again after a pause, under a new id.
    case thaw
    /// Send it again at once under a new id, with its original time.
    case renew
    /// It will never be stored: drop it, and tell the app.
    case refuse
    /// It waits for a person.
    case block
}

enum PushRules {
    /// - Parameter isOutdated: Whether a new id would say another time than the one that failed.
    static func outcome(of error: CloudError, isOutdated: Bool = false) -> PushOutcome {
        switch error.code {
        case .operationReused: .renew
        case .operationExpired: isOutdated ? .renew : .thaw
        // It says nothing of earlier attempts: a repeat is refused before anybody looks whether it was stored. Under
        // another id it would be carried out once more, and undo what came after it; also a write with a timestamp, which
        // the server has cut back if it was ahead, and knows no more.
        case .requestRateLimited: .repeatLater
        // Also of a locked account: nobody knows until when, and whoever comes next asks anew.
        case .notAuthenticated, .deviceRevoked, .tokenNotBound, .notSignedIn, .missingEntitlement, .permissionFailure,
            .accountTemporarilyUnavailable, .incompatibleVersion, .unknownMethod:
            .block
        // An id that is still in flight from before a token was renewed; a defect on the server's side may be cured.
        case .internalError, .operationCancelled: .repeatLater
        default:
            error.code.retry == .never ? .refuse : .repeatLater
        }
    }

    /// Whether a write that is answered so waits for a person.
    static func blocks(_ error: CloudError) -> Bool { outcome(of: error) == .block }

    static func blocker(of error: CloudError) -> Blocker {
        switch error.code {
        case .networkUnavailable, .networkFailure, .serverResponseLost: .network
        case .quotaExceeded, .limitExceeded: .quota
        case .notSignedIn, .wrongCredentials: .thisDevice
        case .storageFailure: LocalFailure.isHere(error) ? .thisDevice : .server
        case .accountTemporarilyUnavailable, .missingEntitlement, .permissionFailure, .deviceRevoked, .notAuthenticated,
            .tokenNotBound,
            .incompatibleVersion:
            .policy
        default: .server
        }
    }
}
