internal import Crypto
internal import Foundation
internal import NephosCore
internal import NephosHTTP

/// Whose console it is.
enum ConsoleAccess: Sendable {
    /// Each browser signs in.
    case sessions(WebSessions, hasCertificate: Bool)
    /// One home's, on the person's own machine. The secret lets a browser in.
    case own(WebUser, secret: String, port: Int)

    /// Browsers send a cookie to all ports of a host, so each console on a machine has a cookie of its own.
    var cookieName: String {
        switch self {
        case .sessions: "nephos"
        case .own(_, _, let port): "nephos-\(port)"
        }
    }

    /// - Throws: ``CloudError`` `.notSignedIn`, `.deviceRevoked`.
    func user(cookie: String) async throws(CloudError) -> WebUser {
        switch self {
        case .sessions(let sessions, _): return try await sessions.user(cookie: cookie)
        case .own(let user, let secret, _):
            guard Self.areEqual(cookie, secret) else { throw WebSessions.notSignedIn }
            return user
        }
    }

    /// Compares digests, so that the time tells nothing of a secret.
    static func areEqual(_ text: String, _ secret: String) -> Bool {
        SHA256.hash(data: Data(text.utf8)) == SHA256.hash(data: Data(secret.utf8))
    }

    func noteUse(cookie: String) async {
        if case .sessions(let sessions, _) = self { await sessions.noteUse(cookie: cookie) }
    }

    /// - Parameter life: How long the browser keeps it.
    func setCookie(_ value: String, _ life: String, _ request: HTTPRequest) -> (name: String, value: String) {
        var isSecure = request.header("X-Forwarded-Proto")?.lowercased() == "https"
        if case .sessions(_, hasCertificate: true) = self { isSecure = true }
        // Without HTTPS browsers would not keep a `Secure` cookie of a plain address.
        let attributes = "; Path=/; HttpOnly; SameSite=Strict" + (isSecure ? "; Secure" : "")
        return (name: "Set-Cookie", value: "\(cookieName)=\(value)\(attributes)\(life)")
    }
}
