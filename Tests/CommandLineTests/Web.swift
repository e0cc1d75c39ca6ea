import Foundation
import Testing

/// What is reached over HTTP, as a browser reaches it.
enum Web {
    static func freePort() throws -> Int {
        // One that nobody has, for a moment.
        let (descriptor, port) = try listen()
        close(descriptor)
        return port
    }

    /// A socket that listens at a port of its own.
    static func listen() throws -> (descriptor: Int32, port: Int) {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 ? getsockname(descriptor, $0, &length) : -1
            }
        }
        try #require(status == 0 && Foundation.listen(descriptor, 1) == 0)
        return (descriptor, Int(in_port_t(bigEndian: address.sin_port)))
    }

    /// A connection over which nothing is asked.
    static func connect(_ port: Int) throws -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        address.sin_port = in_port_t(port).bigEndian
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Foundation.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(status == 0)
        return descriptor
    }

    /// What a browser gets.
    static func get(_ url: String, _ headers: String..., patience: Int = 30) async throws -> (
        status: String, body: Data
    ) {
        let body = NSTemporaryDirectory() + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: body) }
        let curl = Program(name: "nephos")
        let options = headers.map { "-H '\($0)'" }.joined(separator: " ")
        let outcome = try await curl.run(
            shell: "curl -s --max-time \(patience) \(options) -o '\(body)' -w '%{http_code}' '\(url)'")
        return (outcome.output, FileManager.default.contents(atPath: body) ?? Data())
    }
}
