internal import Foundation
internal import NephosCore
internal import NephosHTTP

/// The answer to a request that is not carried out.
struct DavRefusal: Error {
    var response: HTTPResponse

    init(_ status: Int, _ text: String, headers: [(name: String, value: String)] = []) {
        response = HTTPResponse(status, text: text, headers: headers)
    }

    /// With the name of the condition that does not hold.
    init(_ status: Int, condition: String) {
        response = HTTPResponse(
            status, headers: [(name: "Content-Type", value: "application/xml; charset=utf-8")],
            .bytes(Array("\(XMLText.head)<error xmlns=\"DAV:\"><\(condition)/></error>\n".utf8)))
    }

    static let notFound = DavRefusal(404, "There is nothing here.")
    static let locked = DavRefusal(423, condition: "lock-token-submitted")
    static let failed = DavRefusal(412, "It is not as the request takes it to be. Look again.")
    static let noParent = DavRefusal(409, "The folder does not exist.")
    static let badBody = DavRefusal(400, "The request's XML is malformed.")
}

extension CloudError {
    /// The answer to a request that failed so.
    var response: HTTPResponse {
        var headers: [(name: String, value: String)] = []
        let status = httpStatus
        if status == 401 {
            headers.append((name: "WWW-Authenticate", value: "Basic realm=\"Nephos\", charset=\"UTF-8\""))
        }
        if [429, 503].contains(status) {
            let seconds = max(1, retryAfter?.components.seconds ?? 5)
            headers.append((name: "Retry-After", value: "\(seconds)"))
        }
        return HTTPResponse(status, text: message, headers: headers)
    }

    private var httpStatus: Int {
        switch code {
        case .wrongCredentials, .notSignedIn, .notAuthenticated, .deviceRevoked, .tokenNotBound, .tokenExpired: 401
        case .permissionFailure, .missingEntitlement: 403
        case .accountTemporarilyUnavailable: 403
        case .unknownItem: 404
        case .alreadyExists: 405
        case .constraintViolation, .serverRecordChanged: 412
        case .invalidArguments: 400
        case .quotaExceeded: 507
        case .limitExceeded: 507
        case .storageFailure: 507
        case .requestRateLimited: 429
        case .operationCancelled, .deadlineExceeded, .networkFailure, .networkUnavailable, .serviceUnavailable,
            .serviceBusy, .storeOutOfStep:
            503
        default: 500
        }
    }
}

extension DateFormatter {
    private static func make(_ format: String) -> DateFormatter {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        formatter.dateFormat = format
        return formatter
    }

    /// As HTTP has dates: `Sun, 06 Nov 1994 08:49:37 GMT`.
    static let http = make("EEE, dd MMM yyyy HH:mm:ss 'GMT'")
    /// As RFC 3339 has them.
    static let iso = make("yyyy-MM-dd'T'HH:mm:ss'Z'")
}
