internal import Crypto
internal import Foundation
package import NephosCore
internal import NephosHTTP
package import NephosKit
internal import Synchronization

/// The console of one home, on the machine that has it: a person's own files and values, with or without a network.
///
/// It listens on this machine alone. The address that opens it works once; from then on the browser's cookie does.
package final class HomeConsole: Sendable {
    /// To be opened in a browser.
    package let address: String
    private let server: HTTPServer
    private let door: HomeDoor

    /// Whether the address was used. It does not work again.
    package var isOpened: Bool { door.isUsed.load(ordering: .relaxed) }

    /// Begins to answer.
    ///
    /// - Parameters:
    ///   - session: A home with an account.
    ///   - port: 0: one that is free.
    /// - Throws: ``CloudError`` `.configurationInvalid` where another program has the port; `.storageFailure`.
    package init(_ session: Session, port: Int) throws(CloudError) {
        let door = HomeDoor(try WebUser(session, isOwn: true))
        self.door = door
        server = try HTTPServer(
            host: "127.0.0.1", port: port, limits: WebConfiguration.standardLimits,
            methods: [.get, .head, .post, .put]
        ) { request, answer in
            Task { answer(await door.answer(request)) }
        }
        door.port.store(server.port, ordering: .relaxed)
        address = "http://127.0.0.1:\(server.port)/open?key=\(door.key)"
    }
}

/// Lets a browser in that has the key, once.
private final class HomeDoor: Sendable {
    let key = HomeDoor.random()
    let port = Atomic(0)
    private let secret = HomeDoor.random()
    let isUsed = Atomic(false)
    private let user: WebUser

    init(_ user: WebUser) { self.user = user }

    func answer(_ request: HTTPRequest) async -> HTTPResponse {
        let access = ConsoleAccess.own(user, secret: secret, port: port.load(ordering: .relaxed))
        guard request.path == "/open", request.method == .get else {
            return await ConsoleHandler(access: access, request: request).answer()
                ?? HTTPResponse(404, text: "There is nothing here.")
        }
        guard ConsoleAccess.areEqual(Query(request)["key"] ?? "", key), !isUsed.exchange(true, ordering: .relaxed)
        else {
            return HTTPResponse(403, text: "This address worked once. Run nephos console again for another.")
        }
        return HTTPResponse(303, headers: [(name: "Location", value: "/"), access.setCookie(secret, "", request)])
    }

    private static func random() -> String {
        SymmetricKey(size: .bits256).withUnsafeBytes { bytes in
            bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
    }
}
