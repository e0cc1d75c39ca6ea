import Core
import Foundation

extension SessionRecord.Service {
    /// The identity service that a connection string names: `nephos://host:port?key=...`.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`; ask the operator for the string again.
    init(connection: String) throws(CloudError) {
        guard let parts = URLComponents(string: connection), parts.scheme == "nephos", let host = parts.host,
            !host.isEmpty, let port = parts.port,
            let key = parts.queryItems?.first(where: { $0.name == "key" })?.value
        else {
            throw CloudError(
                .configurationInvalid, "A connection string has the form nephos://host:port?key=...; this one has not.")
        }
        guard let key = PublicKey(z85: key) ?? PublicKey(hexadecimal: key) else {
            throw CloudError(.configurationInvalid, "The connection string's key is not a CURVE public key.")
        }
        self.init(
            service: ServiceName.identity.rawValue, publicKey: key.z85, requests: ["tcp://\(host):\(port)"],
            subscriptions: [])
    }
}

extension PublicKey {
    fileprivate init?(hexadecimal text: String) {
        guard text.utf8.count == 64 else { return nil }
        var bytes: [UInt8] = []
        var rest = Substring(text)
        while !rest.isEmpty {
            guard let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
            bytes.append(byte)
            rest = rest.dropFirst(2)
        }
        self.init(bytes: bytes)
    }
}
