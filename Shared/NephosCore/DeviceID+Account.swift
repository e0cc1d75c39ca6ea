internal import Crypto

// A device's id says whose it is: its last ten characters are a hash of the
// account and of the characters before them. So every service can tell by
// itself whether a device is, or ever was, of an account, also when it was
// revoked and forgotten since, and also after identity came back from an old
// copy.
extension DeviceID {
    private static let prefix = "dev_"
    private static let randomCount = 16
    private static let boundCount = 10
    private static let alphabet = Array("abcdefghijklmnopqrstuvwxyz234567".utf8)

    /// A fresh id of a device of this account: `dev_`, 80 random bits and 50 that bind it, in lower-case base 32.
    public static func random(of account: AccountID, using generator: inout some RandomNumberGenerator) -> DeviceID {
        let random = (0..<randomCount).map { _ in alphabet[Int.random(in: 0..<32, using: &generator)] }
        let name = prefix + String(decoding: random, as: UTF8.self)
        return DeviceID(name + binding(of: name, to: account))
    }

    /// Whether identity gave this id to a device of the account.
    ///
    /// Nobody can choose an account's id, so nobody can make an account to which another's device would belong.
    public func belongs(to account: AccountID) -> Bool {
        let bytes = Array(rawValue.utf8)
        guard bytes.count == Self.prefix.utf8.count + Self.randomCount + Self.boundCount else { return false }
        let name = String(decoding: bytes.dropLast(Self.boundCount), as: UTF8.self)
        // The binding alone says nothing of the characters before it.
        return name.hasPrefix(Self.prefix) && bytes.dropFirst(Self.prefix.utf8.count).allSatisfy(Self.alphabet.contains)
            && bytes.suffix(Self.boundCount).elementsEqual(Self.binding(of: name, to: account).utf8)
    }

    static func binding(of name: String, to account: AccountID) -> String {
        let digest = SHA256.hash(data: Array((account.rawValue + "/" + name).utf8))
        var bits = digest.withUnsafeBytes { UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)) }
        var characters: [UInt8] = []
        for _ in 0..<boundCount {
            characters.append(alphabet[Int(bits >> 59)])
            bits <<= 5
        }
        return String(decoding: characters, as: UTF8.self)
    }
}
