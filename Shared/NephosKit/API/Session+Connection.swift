private import Foundation
public import NephosCore

extension Session {
    /// Signs this device in, with a connection string as text.
    ///
    /// - Parameters:
    ///   - connection: As the deployment's operator hands it out (`nephos status --connection`):
    ///     `nephos://host:port/key`. Spaces around it are ignored.
    ///   - account: The account's name.
    ///   - password: The account's password. It is not kept.
    ///   - deviceName: What the account's other devices list this one as, at most 256 bytes; nil: the host's name.
    ///   - app: The app to sign in as; nil: the deployment's default app.
    ///   - discardsUnsent: Whether changes of another account that wait to be sent, were refused or are in conflict may
    ///     be thrown away.
    ///   - code: From `nephos devices allow-sign-in` on another device, when others guess at the password.
    ///   - timeout: How long to wait for the answer.
    /// - Returns: Who is signed in now.
    /// - Throws: ``CloudError`` `.invalidArguments` for a text that is no connection string, before anything is asked
    ///   or changed: get it anew from the operator. Else as with a
    ///   ``ConnectionString``.
    @discardableResult
    public func signIn(
        connection: String, account: String, password: String, deviceName: String? = nil, app: AppID? = nil,
        discardsUnsent: Bool = false, code: String = "", timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> SessionRecord {
        try await signIn(
            connection: ConnectionString(connection), account: account, password: password,
            deviceName: deviceName ?? Self.hostName, app: app, discardsUnsent: discardsUnsent, code: code,
            timeout: timeout)
    }

    /// What this machine calls itself.
    private static var hostName: String {
        let name = ProcessInfo.processInfo.hostName
        return name.isEmpty ? "device" : name
    }
}
