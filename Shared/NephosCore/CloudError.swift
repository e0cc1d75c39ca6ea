/// The one error type of the system: what a handler throws, what travels in a
/// reply, and what a caller catches.
///
/// The message is a constant sentence; whatever varies is in ``details``. No
/// error carries user content (values, file bytes, passwords).
public struct CloudError: Error, Sendable, Hashable {
    /// What went wrong. Stable across releases; its number is in
    /// `Protos/nephos/errors.proto`.
    public var code: Code

    /// A constant sentence for people: what happened and how to cure it.
    public var message: String

    /// The varying facts: limits, sizes, ids. Keys are snake_case.
    public var details: [String: String]

    /// The detail of an `.operationExpired` that tells the server's time: milliseconds since 1970.
    public static let serverTimeDetail = "server_time"
    /// The details of whatever is refused because its upload has ended: under another id it is taken.
    public static let reservationHasEnded = ["reason": "upload_ended"]
    /// Whether nothing else is in the way than that.
    public var isOfEndedUpload: Bool { details["reason"] == Self.reservationHasEnded["reason"] }

    /// How long to wait before trying again, where the server said so.
    public var retryAfter: Duration?

    public init(
        _ code: Code,
        _ message: String,
        details: [String: String] = [:],
        retryAfter: Duration? = nil
    ) {
        self.code = code
        self.message = message
        self.details = details
        self.retryAfter = retryAfter
    }
}

extension CloudError {
    /// When a repeat of the same call can succeed.
    public enum Retry: Sendable, Hashable {
        /// Never: the call itself has to change.
        case never
        /// After a pause; ``CloudError/retryAfter`` says how long if the server knows.
        case afterBackoff
        /// After fetching what changed and deciding anew.
        case afterRefetch
    }

    /// A stable error code: a struct over a private enum, so that codes can be
    /// added without breaking anyone's `switch`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Value: UInt32, CaseIterable, Sendable {
            case internalError = 1
            case networkUnavailable = 3
            case networkFailure = 4
            case serviceUnavailable = 6
            case requestRateLimited = 7
            case missingEntitlement = 8
            case notAuthenticated = 9
            case permissionFailure = 10
            case unknownItem = 11
            case invalidArguments = 12
            case serverRecordChanged = 14
            case incompatibleVersion = 18
            case constraintViolation = 19
            case operationCancelled = 20
            case changeTokenExpired = 21
            case batchRequestFailed = 22
            case quotaExceeded = 25
            case zoneNotFound = 26
            case limitExceeded = 27
            case referenceViolation = 31
            case serverResponseLost = 34
            case assetNotAvailable = 35
            case accountTemporarilyUnavailable = 36
            // From 100 on: our own, where CloudKit has no number.
            case unknownMethod = 100
            case malformedRequest = 101
            case tokenExpired = 102
            case tokenNotBound = 103
            case deviceRevoked = 104
            case operationExpired = 105
            case deadlineExceeded = 106
            case serviceBusy = 107
            case storageFailure = 108
            case alreadyExists = 109
            case notSignedIn = 110
            case wrongCredentials = 111
            case configurationInvalid = 112
            case storeOutOfStep = 113
            case accessTokenUnknown = 114
            case operationReused = 115
        }

        private let value: Value

        private init(_ value: Value) { self.value = value }

        /// The code with this wire number, or nil if this build does not know it.
        public init?(number: UInt32) {
            guard let value = Value(rawValue: number) else { return nil }
            self.value = value
        }

        /// The number on the wire. Where CloudKit has the same error it has the
        /// same number (`CKError.Code`).
        public var number: UInt32 { value.rawValue }

        /// The name used in logs, metrics and `--json`.
        public var description: String { "\(value)" }

        /// Whether and when to try again.
        public var retry: Retry {
            switch value {
            case .networkUnavailable, .networkFailure, .serviceUnavailable, .requestRateLimited,
                .serverResponseLost, .accountTemporarilyUnavailable, .deadlineExceeded, .serviceBusy,
                .storageFailure:
                .afterBackoff
            case .changeTokenExpired, .tokenExpired, .storeOutOfStep, .accessTokenUnknown, .serverRecordChanged:
                .afterRefetch
            default:
                .never
            }
        }

        /// All codes, in the order of their numbers.
        public static var all: [Code] { Value.allCases.map(Code.init) }

        /// A defect on our side. Report it with the request id.
        public static let internalError = Code(.internalError)
        /// This device has no connection. Work is queued until it has.
        public static let networkUnavailable = Code(.networkUnavailable)
        /// The connection failed during the call. Retried under the same operation id.
        public static let networkFailure = Code(.networkFailure)
        /// The service is starting, stopping or cannot reach one that it needs.
        public static let serviceUnavailable = Code(.serviceUnavailable)
        /// The published budget is used up; ``CloudError/retryAfter`` says when to come back.
        public static let requestRateLimited = Code(.requestRateLimited)
        /// The app does not list what it asked for, or it does not exist (the two answer alike).
        public static let missingEntitlement = Code(.missingEntitlement)
        /// No valid access token. Sign in.
        public static let notAuthenticated = Code(.notAuthenticated)
        /// The caller may not do this.
        public static let permissionFailure = Code(.permissionFailure)
        /// No such item.
        public static let unknownItem = Code(.unknownItem)
        /// An argument is out of range or malformed; ``CloudError/details`` names it.
        public static let invalidArguments = Code(.invalidArguments)
        /// The record was saved by others since the device read it: merge into the server's record, and save that.
        public static let serverRecordChanged = Code(.serverRecordChanged)
        /// The two sides speak different protocol versions. Upgrade the older one.
        public static let incompatibleVersion = Code(.incompatibleVersion)
        /// The change would break a rule that the store keeps.
        public static let constraintViolation = Code(.constraintViolation)
        /// The caller gave up.
        public static let operationCancelled = Code(.operationCancelled)
        /// The token is below the compaction floor or of another epoch: fetch everything.
        public static let changeTokenExpired = Code(.changeTokenExpired)
        /// Nothing is wrong with this item; another of its zone failed, and the zone changes as a whole.
        public static let batchRequestFailed = Code(.batchRequestFailed)
        /// The write would pass a size or count quota. Nothing was stored.
        public static let quotaExceeded = Code(.quotaExceeded)
        /// The database has no such zone, or it was deleted. Fetch the database's changes.
        public static let zoneNotFound = Code(.zoneNotFound)
        /// The request itself is too large. Split it.
        public static let limitExceeded = Code(.limitExceeded)
        /// A record would refer to one that is not there, or one would go that others need.
        public static let referenceViolation = Code(.referenceViolation)
        /// The reply was lost; whether the call took effect is unknown. Repeat it under the same id.
        public static let serverResponseLost = Code(.serverResponseLost)
        /// The bytes of an asset are not there. Store them, and save the record again.
        public static let assetNotAvailable = Code(.assetNotAvailable)
        /// The account is locked or being moved. Keep caches and try later.
        public static let accountTemporarilyUnavailable = Code(.accountTemporarilyUnavailable)
        /// The service has no such method.
        public static let unknownMethod = Code(.unknownMethod)
        /// The bytes do not decode.
        public static let malformedRequest = Code(.malformedRequest)
        /// The access token has run out. The SDK refreshes it by itself.
        public static let tokenExpired = Code(.tokenExpired)
        /// The token belongs to another device's key.
        public static let tokenNotBound = Code(.tokenNotBound)
        /// The device was revoked. Sign in again.
        public static let deviceRevoked = Code(.deviceRevoked)
        /// The operation id is older than the retention, so a repeat could not be recognised.
        public static let operationExpired = Code(.operationExpired)
        /// The caller's deadline passed before the request was handled.
        public static let deadlineExceeded = Code(.deadlineExceeded)
        /// A bounded queue is full.
        public static let serviceBusy = Code(.serviceBusy)
        /// The database could not commit (disk full, I/O error). Nothing was stored.
        public static let storageFailure = Code(.storageFailure)
        /// An item with this name exists.
        public static let alreadyExists = Code(.alreadyExists)
        /// This home has no account signed in.
        public static let notSignedIn = Code(.notSignedIn)
        /// Unknown account or wrong password; the two answer alike.
        public static let wrongCredentials = Code(.wrongCredentials)
        /// A configuration file or key is missing or wrong.
        public static let configurationInvalid = Code(.configurationInvalid)
        /// Two copies of a store differ; ``CloudError/details`` says where.
        public static let storeOutOfStep = Code(.storeOutOfStep)
        /// The connection has not carried the token that a request names by its digest. Send the token itself; the
        /// SDK does.
        public static let accessTokenUnknown = Code(.accessTokenUnknown)
        /// The operation id was another request's. Use a new one; the SDK does.
        public static let operationReused = Code(.operationReused)
    }
}

extension CloudError {
    /// The answer to whatever needs room while there is none.
    public static let diskFull = CloudError(
        .storageFailure, "The server's disk is full; nothing was stored. What deletes is still taken.",
        retryAfter: .seconds(10))

    /// The answer to a request whose id was another's, of the same caller.
    public static let operationReused = CloudError(
        .operationReused, "This request id was used for another request. Nothing was done; use a new id.")
}

extension CloudError: CustomStringConvertible {
    public var description: String {
        guard !details.isEmpty else { return "\(code): \(message)" }
        let facts = details.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        return "\(code): \(message) (\(facts.joined(separator: ", ")))"
    }
}

extension CloudError {
    /// Any error as a ``CloudError``; a foreign one becomes ``Code/internalError``
    /// and keeps only its type's name, since its text may hold user content.
    public init(wrapping error: any Error) {
        if let error = error as? CloudError {
            self = error
        } else {
            self.init(
                .internalError,
                "An unexpected error stopped the operation.",
                details: ["type": String(describing: type(of: error))]
            )
        }
    }
}
