/// How long an account's password is: checked by the service, and said before it is asked for.
public enum PasswordLimits {
    /// Characters.
    public static let lengthMin = 8
    /// Bytes of UTF-8; bounds the work of one request.
    public static let bytesMax = 1024

    /// The prompt for a new password.
    public static let prompt = "New password (at least \(lengthMin) characters): "
}
