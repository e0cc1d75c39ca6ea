internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

/// Answers what the console's pages ask for: the pages themselves, calls, uploads, contents and the live stream.
///
/// Another site cannot act through a user's browser: the cookie is not sent with its requests (`SameSite=Strict`), and
/// each request has to come from these pages (`Sec-Fetch-Site`), with a header that no form can set where it changes
/// something.
struct ConsoleHandler {
    /// No form of another site can set it. Its value is the id of the device that the page is for, and `1` before the page
    /// knows that.
    private static let header = "X-Nephos"

    let access: ConsoleAccess
    let request: HTTPRequest

    /// - Returns: Nil: the console has no such address.
    func answer() async -> HTTPResponse? {
        if let page = ConsolePages.page(request) { return page }
        guard request.path.hasPrefix("/api/") else { return nil }
        do { return try await call(String(request.path.dropFirst(5))) } catch let ended as HTTPRequestBody.Ended {
            return ended.isTooLong
                ? HTTPResponse(413, text: "The request's body is too long.")
                : HTTPResponse(400, text: "The request's body ended early. Nothing was changed.")
        } catch { return Self.response(CloudError(wrapping: error)) }
    }

    private func call(_ name: String) async throws -> HTTPResponse {
        if let site = request.header("Sec-Fetch-Site"), !["same-origin", "none"].contains(site) { throw Self.foreign }
        switch (request.method, name) {
        case (.get, "events"):
            let cookie = cookie ?? ""
            return ConsoleEvents.response(try await user()) { await access.noteUse(cookie: cookie) }
        case (.get, "content"), (.head, "content"): return try await ConsoleContent.response(user(), request)
        case (.get, "asset"): return try await ConsoleAsset.response(user(), request)
        case (.put, "upload"):
            try requireOwn()
            return try await Self.response(UploadCalls.put(user(), request))
        case (.post, _):
            try requireOwn()
            guard request.header("Content-Type")?.lowercased().hasPrefix("application/json") == true else {
                throw CloudError(.invalidArguments, "A call is JSON: Content-Type: application/json")
            }
            switch name {
            case "sign-in": return try await signIn(ConsoleJSON.decode(body(max: Self.signInBytesMax)))
            case "sign-out": return try await signOut()
            default:
                guard let method = ConsoleMethod.all[name] else {
                    throw CloudError(.unknownMethod, "There is no such call.", details: ["name": name])
                }
                // Before the body, which may be long.
                let user = try await user()
                return Self.response(try await method.run(user, body(max: ConsoleMethod.bodyBytesMax)))
            }
        default: throw CloudError(.unknownMethod, "There is no such call.", details: ["name": name])
        }
    }

    /// A name, a password and a code.
    private static let signInBytesMax = 16 << 10

    private func body(max: Int) async throws -> Data { Data(try await request.body?.all(max: max) ?? []) }

    private func requireOwn() throws(CloudError) {
        guard request.header(Self.header)?.isEmpty == false else { throw Self.foreign }
    }

    private static let foreign = CloudError(.permissionFailure, "Only the console's own pages may ask for this.")

    // MARK: Sign-in

    /// The sign-in's cookie, if the request has one.
    private var cookie: String? {
        request.values(of: "Cookie").flatMap { $0.split(separator: ";") }
            .map { $0.trimmingCharacters(in: .whitespaces) }
            .first { $0.hasPrefix("\(access.cookieName)=") }
            .map { String($0.dropFirst(access.cookieName.utf8.count + 1)) }
    }

    private func user() async throws(CloudError) -> WebUser {
        guard let cookie else { throw WebSessions.notSignedIn }
        let user = try await access.user(cookie: cookie)
        // Another account may have signed in to this browser since.
        if let page = request.header(Self.header), page != "1", page != (try user.session.account)?.deviceID.rawValue {
            throw WebSessions.notSignedIn
        }
        return user
    }

    private struct SignIn: Decodable {
        var account: String
        var password: String
        var code: String?
        /// Whether the sign-in lasts longer than the browser is open.
        var keep: Bool?
    }

    private func signIn(_ arguments: SignIn) async throws -> HTTPResponse {
        guard case .sessions(let sessions, _) = access else { throw Self.isOwn }
        let name = BrowserName(request.header("User-Agent") ?? "").text
        let (cookie, user): (String, WebUser)
        do throws(CloudError) {
            (cookie, user) = try await sessions.signIn(
                account: arguments.account, password: arguments.password, code: arguments.code ?? "",
                deviceName: name, from: request.network)
        } catch {
            var error = error
            // While the password is being guessed, a code of another device lets the account's owner in.
            if error.code == .requestRateLimited, error.details["limit"] == "sign_in_attempts" {
                error.details["code_needed"] = "1"
            }
            throw error
        }
        var response = Self.response(try ConsoleJSON.encode(try AccountCalls.session(of: user)))
        let life = arguments.keep == true ? "; Max-Age=\(Int(WebSessions.homeRetention))" : ""
        response.headers.append(access.setCookie(cookie, life, request))
        return response
    }

    private func signOut() async throws -> HTTPResponse {
        guard case .sessions(let sessions, _) = access else { throw Self.isOwn }
        if let cookie { await sessions.signOut(cookie: cookie) }
        var response = Self.response(Data("{}".utf8))
        response.headers.append(access.setCookie("", "; Max-Age=0", request))
        return response
    }

    private static let isOwn = CloudError(
        .invalidArguments, "This console shows this machine's own home. Sign in and out with nephos.")

    // MARK: Answers

    static func response(_ json: Data) -> HTTPResponse {
        HTTPResponse(200, headers: [jsonType], .bytes([UInt8](json)))
    }

    static func response(_ value: some Encodable) throws -> HTTPResponse { response(try ConsoleJSON.encode(value)) }

    static func response(_ error: CloudError) -> HTTPResponse {
        struct Answer: Encodable {
            struct Failure: Encodable {
                var code: String
                var message: String
                var details: [String: String]
                var retryAfter: Int64?
            }
            var error: Failure
        }
        let plain = error.response
        let failure = Answer.Failure(
            code: "\(error.code)", message: error.message, details: error.details,
            retryAfter: error.retryAfter?.components.seconds)
        let body = (try? ConsoleJSON.encode(Answer(error: failure))) ?? Data()
        // The pages sign in by themselves; a browser would ask for a name and a password.
        let headers = plain.headers.filter { !["content-type", "www-authenticate"].contains($0.name.lowercased()) }
        // WebDAV has other numbers for these.
        let status =
            switch error.code {
            case .alreadyExists: 409
            case .unknownMethod: 404
            default: plain.status
            }
        return HTTPResponse(status, headers: headers + [jsonType], .bytes([UInt8](body)))
    }

    private static let jsonType = (name: "Content-Type", value: "application/json; charset=utf-8")
}

/// A browser's name in the list of devices: `Firefox on Linux`.
struct BrowserName {
    let text: String

    init(_ agent: String) {
        // The order counts: most browsers also name those that they resemble.
        let browsers = [
            ("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrom", "Chrome"), ("Safari", "Safari"),
        ]
        let systems = [
            ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Mac OS X", "macOS"),
            ("Windows", "Windows"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
        ]
        func first(_ names: [(String, String)]) -> String? { names.first { agent.contains($0.0) }?.1 }
        text = (first(browsers) ?? "Browser") + (first(systems).map { " on \($0)" } ?? "")
    }
}
