import Foundation

/// Files of a certificate and its key, in a folder of their own, that may be replaced.
final class TestCertificates {
    let folder = NSTemporaryDirectory() + "certificates-" + UUID().uuidString
    var chain: String { folder + "/chain.pem" }
    var key: String { folder + "/key.pem" }

    struct Pair {
        let chain: String
        let key: String

        init(_ name: String) throws {
            chain = try TestCertificates.text("\(name).pem")
            key = try TestCertificates.text("\(name).key")
        }
    }

    let first: Pair
    let second: Pair

    init() throws {
        (first, second) = (try Pair("first"), try Pair("second"))
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try replace(by: first)
    }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    /// A file of `Tests/Certificates`.
    static func text(_ name: String) throws -> String {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        return try String(contentsOf: tests.appending(path: "Certificates/\(name)"), encoding: .utf8)
    }

    /// As a program does that renews certificates: each file in one go.
    func replace(by pair: Pair) throws {
        try write(pair.chain, to: chain)
        try write(pair.key, to: key)
    }

    func write(_ text: String, to file: String, mode: Int = 0o600) throws {
        let new = file + ".new"
        try Data(text.utf8).write(to: URL(fileURLWithPath: new))
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: new)
        guard rename(new, file) == 0 else { throw CocoaError(.fileWriteUnknown) }
    }
}
