internal import Crypto
internal import NephosCore

/// What an app compares to learn that another account has signed in.
enum IdentityToken {
    /// Opaque; equal for the same account of the same deployment, and says nothing else.
    static func token(deployment: String, account: AccountID) -> String {
        // The zero byte keeps the two parts apart.
        Base64URL.encode(SHA256.hash(data: Array(deployment.utf8) + [0] + Array(account.rawValue.utf8)))
    }
}
