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
    ///   - deviceName: This device's name in the account's list, at most 256 bytes; nil: the host's name.
    ///   - app: The app to sign in as; nil: the deployment's default app.
    ///   - discardsUnsent: Whether pending, rejected and conflicting changes of another account may be discarded.
    ///   - code: From `nephos devices allow-sign-in` on another device, while someone else guesses the password.
    ///   - timeout: How long to wait for the answer.
    /// - Returns: The new sign-in.
    /// - Throws: ``CloudError`` `.invalidArguments` for a malformed connection string, before anything is asked or
    ///   changed: ask the operator for it again. Otherwise as with a ``ConnectionString``.
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
