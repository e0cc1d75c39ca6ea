import Foundation
import Logging
import NephosCore
import NephosHTTP
import NephosKit
import NephosTestKit
import Synchronization
import Testing

@testable import NephosWeb

/// A cloud in this process, and a web's door to it.
final class WebHouse: Sendable {
    let cloud: TestCloud
    let door: WebDoor
    /// Anna's own device.
    let device: Session
    let folder: String

    init() async throws {
        cloud = try await TestCloud()
        device = try await cloud.openSession(account: "anna", device: "desk")
        try await device.container().ready()
        folder = NSTemporaryDirectory() + "/nephos-web-" + UUID().uuidString
        door = try Self.makeDoor(cloud, folder)
    }

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    private static func makeDoor(_ cloud: TestCloud, _ folder: String) throws -> WebDoor {
        let count = Mutex(0)
        return try WebDoor(
            folder: folder, connection: ConnectionString(cloud.connectionString), logger: Logger(label: "web")
        ) { home, options throws(CloudError) in
            let number = count.withLock { count in
                count += 1
                return count
            }
            do {
                return try await cloud.onDevice("web\(number)-\(home.lastPathComponent.prefix(8))") {
                    var made = SessionSurroundings.current?.makeOptions() ?? options
                    made.sealingKey = options.sealingKey
                    return try await Session.open(home: home, options: made)
                }
            } catch { throw CloudError(wrapping: error) }
        }
    }

    /// Closes the door and opens another on the same data, as a restart does.
    func restarted() async throws -> WebDoor {
        await door.close()
        return try Self.makeDoor(cloud, folder)
    }

    /// A program that has an app password of Anna's.
    func makeProgram(_ name: String = "program") async throws -> Program {
        Program(door: door, account: "anna", password: try await device.createAppPassword(name).secret)
    }

    /// Waits until something is so, while what is on its way arrives.
    func wait(_ isSo: () async throws -> Bool) async throws {
        for _ in 0..<500 {
            try await cloud.settle()
            if try await isSo() { return }
            try await Task.sleep(for: .milliseconds(10))
        }
        Issue.record("It did not become so.")
    }

    func container() async throws -> UbiquityContainer { try await device.container() }
}

/// A program for WebDAV.
struct Program: Sendable {
    var door: WebDoor
    var account: String
    var password: String

    struct Answer: Sendable {
        var status: Int
        var headers: [String: String]
        var body: [UInt8]
        var text: String { String(decoding: body, as: UTF8.self) }
        var tag: String { headers["etag"] ?? "" }
    }

    @discardableResult
    func callAsFunction(
        _ method: String, _ path: String, _ body: String? = nil, _ headers: [String: String] = [:]
    ) async throws -> Answer {
        let credentials = Data("\(account):\(password)".utf8).base64EncodedString()
        var all = headers.map { (name: $0.key, value: $0.value) }
        all.append((name: "Authorization", value: "Basic \(credentials)"))
        all.append((name: "Host", value: "here"))
        let parts = path.split(separator: "?", maxSplits: 1)
        let request = HTTPRequest(
            HTTPRequest.Method(rawValue: method), "/dav/default" + String(parts.first ?? ""), headers: all,
            body: body.map { HTTPRequestBody(Array($0.utf8)) })
        let response = await door.answer(request)
        var bytes: [UInt8] = []
        switch response.body {
        case .bytes(let all): bytes = all
        case .source(let source, let length):
            while UInt64(bytes.count) < length, method != "HEAD" { bytes += try await next(source) }
        case .stream(let source):
            while case let piece = try await next(source), !piece.isEmpty { bytes += piece }
        }
        return Answer(
            status: response.status,
            headers: Dictionary(response.headers.map { ($0.name.lowercased(), $0.value) }) { $1 }, body: bytes)
    }

    private func next(_ source: any HTTPBodySource) async throws -> [UInt8] {
        try await withCheckedThrowingContinuation { continuation in source.next { continuation.resume(with: $0) } }
    }
}
