import Foundation
import NephosCore
import NephosHTTP
import NephosKit
import NephosTestKit
import Synchronization
import Testing

@testable import NephosWeb

/// Nothing is overwritten unseen, and strangers hold nothing up.
@Suite struct ConditionTests {
    @Test func ofManyWhoMakeANewFileOneDoes() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/first.txt", "x").status == 201)
        let statuses = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<20 {
                group.addTask { try await program("PUT", "/new.txt", "\(number)", ["If-None-Match": "*"]).status }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(statuses.count { $0 == 201 } == 1 && statuses.count { $0 == 412 } == 19, "\(statuses)")
        try await house.wait { try await house.container().item(at: "new.txt") != nil }
        #expect(try await house.container().versions.list(of: "new.txt").count == 1)
    }

    /// RFC 9110, 5.3: lists may come in several lines, other headers may not.
    @Test func headersThatComeInSeveralLinesCount() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        let tag = try await program("PUT", "/a.txt", "a").tag
        func send(_ method: String, _ headers: [(String, String)]) async throws -> Int {
            let credentials = Data("anna:\(program.password)".utf8).base64EncodedString()
            let all = headers + [("Authorization", "Basic \(credentials)"), ("Host", "here")]
            return await house.door.answer(
                HTTPRequest(
                    HTTPRequest.Method(rawValue: method), "/dav/default/a.txt",
                    headers: all.map { (name: $0.0, value: $0.1) },
                    body: method == "PUT" ? HTTPRequestBody(Array("b".utf8)) : nil)
            ).status
        }
        #expect(try await send("PUT", [("If-Match", "\"x\""), ("If-Match", "\"y\"")]) == 412)
        #expect(try await send("DELETE", [("If-Match", "\"x\""), ("if-match", "\"y\"")]) == 412)
        #expect(try await send("PUT", [("If-None-Match", "*"), ("If-None-Match", "*")]) == 412)
        #expect(try await send("PUT", [("OC-Checksum", "SHA1:0"), ("OC-Checksum", "SHA1:1")]) == 400)
        #expect(try await program("GET", "/a.txt").text == "a")
        #expect(try await send("PUT", [("If-Match", "\"x\""), ("If-Match", tag)]) == 204)
    }

    /// A link or a package has the name, which WebDAV does not show.
    @Test func whatIsNotShownIsNotReplaced() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        let tree = try await house.container().tree()
        let files = try tree.stageFiles()
        let link = try files.copyLink(to: Array("a.txt".utf8))
        for result in try await tree.apply(
            [.make(tree.makeID(), in: tree.root, name: Data("link".utf8), link)], files)
        {
            _ = try result.get()
        }
        try await house.cloud.settle()
        let moved = try await program("MOVE", "/a.txt", nil, ["Destination": "/dav/default/link", "Overwrite": "F"])
        #expect(moved.status == 409)
        #expect(try await house.container().trash.list().isEmpty)
    }

    /// The sign-in is checked before the body.
    @Test func aStrangersBodyIsNotRead() async throws {
        let house = try await WebHouse()
        let isRead = Mutex(false)
        var request = Browser(door: house.door).request(.post, "/api/files.list", [], type: "application/json")
        request.body = HTTPRequestBody(length: 1 << 20) { completion in
            isRead.withLock { $0 = true }
            completion(.success([]))
        }
        #expect(await house.door.answer(request).status == 401)
        #expect(isRead.withLock { $0 } == false)
        let long = Browser(door: house.door).request(
            .post, "/api/sign-in", Array(repeating: 0x20, count: 20_000), type: "application/json")
        #expect(await house.door.answer(long).status == 413)
    }
}
