import Foundation
import NephosCore
import NephosHTTP
import NephosKit
import NephosTestKit
import Testing

@testable import NephosWeb

/// A browser that has, or has not, signed in.
struct Browser: Sendable {
    var door: WebDoor
    var cookie: String?
    /// As the console's own pages send them.
    var headers = ["Sec-Fetch-Site": "same-origin", "X-Nephos": "1"]

    struct Answer: Sendable {
        var status: Int
        var headers: [(name: String, value: String)]
        var body: [UInt8]

        func header(_ name: String) -> String? { headers.first { $0.name.lowercased() == name.lowercased() }?.value }

        var json: [String: Any] { (try? JSONSerialization.jsonObject(with: Data(body)) as? [String: Any]) ?? [:] }
        var error: String? { (json["error"] as? [String: Any])?["code"] as? String }
        func list(_ name: String) -> [[String: Any]] { json[name] as? [[String: Any]] ?? [] }
        func object(_ name: String) -> [String: Any] { json[name] as? [String: Any] ?? [:] }
    }

    func request(
        _ method: HTTPRequest.Method, _ address: String, _ body: [UInt8]? = nil, type: String? = nil
    ) -> HTTPRequest {
        let parts = address.split(separator: "?", maxSplits: 1)
        var all = headers.map { (name: $0.key, value: $0.value) }
        if let type { all.append((name: "Content-Type", value: type)) }
        if let cookie { all.append((name: "Cookie", value: "other=1; nephos=\(cookie)")) }
        var request = HTTPRequest(
            method, String(parts.first ?? ""), headers: all, body: body.map { HTTPRequestBody($0) })
        if parts.count > 1 { request.query = String(parts[1]) }
        request.address = "127.0.0.1"
        return request
    }

    func send(_ request: HTTPRequest) async throws -> Answer {
        let response = await door.answer(request)
        var bytes: [UInt8] = []
        switch response.body {
        case .bytes(let all): bytes = all
        case .source(let source, let length):
            while UInt64(bytes.count) < length { bytes += try await Self.next(source) }
        case .stream: break
        }
        return Answer(status: response.status, headers: response.headers, body: bytes)
    }

    static func next(_ source: any HTTPBodySource) async throws -> [UInt8] {
        try await withCheckedThrowingContinuation { continuation in source.next { continuation.resume(with: $0) } }
    }

    @discardableResult
    func call(_ name: String, _ arguments: [String: any Sendable] = [:]) async throws -> Answer {
        let body = try JSONSerialization.data(withJSONObject: arguments)
        return try await send(request(.post, "/api/\(name)", [UInt8](body), type: "application/json"))
    }

    func get(_ address: String) async throws -> Answer { try await send(request(.get, address)) }

    /// Signs in with the account's password.
    static func signedIn(_ house: WebHouse) async throws -> Browser {
        var browser = Browser(door: house.door)
        let answer = try await browser.call(
            "sign-in", ["account": "anna", "password": TestCloud.password])
        let cookie = try #require(answer.header("Set-Cookie"))
        browser.cookie = String(cookie.dropFirst("nephos=".count).prefix { $0 != ";" })
        return browser
    }

    /// Begins an upload.
    func begin(
        _ name: String, size: Int, key: String? = nil, _ more: [String: any Sendable] = [:]
    ) async throws -> Answer {
        let arguments: [String: any Sendable] = [
            "container": "default", "folder": "\(DocumentID.documents)", "name": name, "size": size, "key": key ?? name,
        ]
        return try await call("upload.begin", arguments.merging(more) { $1 })
    }

    /// Sends bytes of an upload.
    func piece(_ upload: String, _ offset: Int, _ bytes: some Sequence<UInt8>) async throws -> Answer {
        try await send(request(.put, "/api/upload?id=\(upload)&offset=\(offset)", Array(bytes)))
    }

    /// Uploads a file as the pages do.
    func upload(
        _ name: String, _ bytes: [UInt8], in folder: String, replaces: String? = nil, piece: Int = 1000
    ) async throws -> Answer {
        let begun = try await call(
            "upload.begin", ["container": "default", "folder": folder, "name": name, "size": bytes.count, "key": name])
        let id = try #require(begun.json["upload"] as? String)
        var offset = begun.json["offset"] as? Int ?? 0
        while offset < bytes.count {
            let end = min(offset + piece, bytes.count)
            let answer = try await send(
                request(.put, "/api/upload?id=\(id)&offset=\(offset)", Array(bytes[offset..<end])))
            offset = try #require(answer.json["offset"] as? Int)
        }
        var arguments: [String: any Sendable] = ["upload": id]
        if let replaces { arguments["replaces"] = replaces }
        return try await call("upload.finish", arguments)
    }
}

struct ConsoleTests {
    private static let top = "\(DocumentID.documents)"

    // MARK: Sign-in

    @Test func aBrowserIsADeviceUntilItSignsOut() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let session = try await browser.call("session")
        #expect(session.json["account"] as? String == "anna")
        let devices = try await browser.call("account.devices").list("devices")
        let own = try #require(devices.first { $0["isThis"] as? Bool == true })
        #expect(own["model"] as? String == "browser")
        #expect(devices.count == 2)
        #expect(try await browser.call("sign-out").status == 200)
        #expect(try await browser.call("session").error == "notSignedIn")
        #expect(try await house.device.devices().count == 1)
    }

    @Test func aWrongPasswordOrCookieLetsNobodyIn() async throws {
        let house = try await WebHouse()
        var browser = Browser(door: house.door)
        #expect(try await browser.call("session").error == "notSignedIn")
        #expect(
            try await browser.call("sign-in", ["account": "anna", "password": "wrong"]).error == "wrongCredentials")
        for cookie in ["", "x", String(repeating: "0", count: 64), "../../etc/passwd"] {
            browser.cookie = cookie
            #expect(try await browser.call("session").error == "notSignedIn")
            #expect(try await browser.get("/api/content?container=default&item=\(Self.top)").status == 401)
        }
        let password = try await house.device.createAppPassword("phone").secret
        #expect(
            try await browser.call("sign-in", ["account": "anna", "password": password]).status != 200,
            "An app password is for programs.")
    }

    @Test("A code is asked for where identity limits the attempts, and not where the web does")
    func onlyIdentitysLimitAsksForACode() async throws {
        let house = try await WebHouse()
        let browser = Browser(door: house.door)
        func limit(_ name: (Int) -> String) async throws -> Browser.Answer {
            for number in 0..<30 {
                let answer = try await browser.call("sign-in", ["account": name(number), "password": "wrong"])
                if answer.error == "requestRateLimited" { return answer }
            }
            throw CloudError(.internalError, "There was no limit.")
        }
        let guessed = try await limit { _ in "anna" }.object("error")["details"] as? [String: String]
        #expect(guessed?["code_needed"] == "1")
        let many = try await limit { "account\($0)" }.object("error")["details"] as? [String: String]
        #expect(many?["limit"] == nil && many?["code_needed"] == nil, "\(many ?? [:])")
    }

    @Test func anUnknownCallIsNotFound() async throws {
        let house = try await WebHouse()
        #expect(try await Browser(door: house.door).call("none").status == 404)
        #expect(try await Browser.signedIn(house).call("none").status == 404)
    }

    /// The secrets of a browser's device are sealed with the cookie, which is not kept here.
    @Test func theServersHalfOfTheKeyIsOfNoUseAlone() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let cookie = try #require(browser.cookie)
        await house.door.close()
        for file in try FileManager.default.subpathsOfDirectory(atPath: house.folder) {
            guard let data = FileManager.default.contents(atPath: "\(house.folder)/\(file)") else { continue }
            #expect(data.range(of: Data(cookie.utf8)) == nil, "\(file)")
            #expect(!file.contains("secret.json") || (try? JSONSerialization.jsonObject(with: data)) == nil, "\(file)")
        }
        let again = Browser(door: try await house.restarted(), cookie: cookie)
        #expect(try await again.call("session").json["account"] as? String == "anna")
    }

    @Test(arguments: [
        [:], ["X-Nephos": "1", "Sec-Fetch-Site": "cross-site"], ["X-Nephos": "1", "Sec-Fetch-Site": "same-site"],
        ["Sec-Fetch-Site": "same-origin"],
    ]) func anotherSiteCannotAct(headers: [String: String]) async throws {
        let house = try await WebHouse()
        var browser = try await Browser.signedIn(house)
        browser.headers = headers
        for name in ConsoleMethod.all.keys.sorted() + ["sign-out", "sign-in"] {
            #expect(try await browser.call(name).error == "permissionFailure", "\(name)")
        }
        #expect(try await browser.send(browser.request(.put, "/api/upload?id=x&offset=0", [1])).status == 403)
        browser.headers = ["Sec-Fetch-Site": "same-origin", "X-Nephos": "1"]
        let form = try await browser.send(
            browser.request(.post, "/api/session", Array("{}".utf8), type: "text/plain"))
        #expect(form.error == "invalidArguments")
        #expect(try await house.device.devices().count == 2)
    }

    @Test func pagesHaveStrictHeaders() async throws {
        let house = try await WebHouse()
        let browser = Browser(door: house.door)
        for file in try FileManager.default.contentsOfDirectory(atPath: Self.pages) where !file.hasSuffix(".md") {
            let path = file == "index.html" ? "/" : "/\(file)"
            let page = try await browser.get(path)
            #expect(page.status == 200, "\(path)")
            let policy = try #require(page.header("Content-Security-Policy"))
            #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"))
            #expect(!policy.contains("unsafe"))
            #expect(FileManager.default.contents(atPath: "\(Self.pages)/\(file)") == Data(page.body))
        }
        let page = try await browser.get("/")
        let text = String(decoding: page.body, as: UTF8.self)
        #expect(!text.contains("style=") && !text.contains("<script>"))
        #expect(try await browser.get("/../web.secret").status == 404)
        #expect(try await browser.get("/PREACT-LICENSE.md").status == 404)
    }

    private static let pages = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../Clients/Web/Pages").standardized.path

    // MARK: Files

    @Test func aFolderIsListedInPagesAndItsChangesFollow() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let container = try await house.container()
        for number in 0..<25 { try await container.put(Data("\(number)".utf8), at: "\(100 + number).txt") }
        let moved = try await container.makeFolder(at: "Letters")
        try await container.waitUntilSent(timeout: .seconds(30))
        _ = try await browser.call("files.list", ["container": "default"])
        try await house.cloud.settle()

        var names: [String] = []
        var next: String?
        var cursor = ""
        repeat {
            var arguments: [String: any Sendable] = ["container": "default", "limit": 7]
            if let next { arguments["after"] = next }
            let page = try await browser.call("files.list", arguments)
            names += page.list("entries").compactMap { $0["name"] as? String }
            next = page.json["next"] as? String
            if cursor.isEmpty { cursor = try #require(page.json["cursor"] as? String) }
        } while next != nil
        #expect(names == (100..<125).map { "\($0).txt" } + ["Letters"])

        func changes() async throws -> Browser.Answer {
            try await browser.call("files.changes", ["container": "default", "folder": Self.top, "cursor": cursor])
        }
        #expect(try await changes().list("changed").isEmpty)
        try await container.put(Data("new".utf8), at: "new.txt")
        try await container.move("110.txt", to: "Letters/110.txt")
        try await container.trash(["111.txt"])
        try await container.waitUntilSent(timeout: .seconds(30))
        try await house.cloud.settle()
        let answer = try await changes()
        #expect(answer.list("changed").map { $0["name"] as? String } == ["new.txt"])
        #expect((answer.json["gone"] as? [String])?.count == 2)
        let inner = try await browser.call("files.list", ["container": "default", "path": ["Letters"]])
        #expect(inner.list("entries").map { $0["name"] as? String } == ["110.txt"])
        #expect(inner.object("folder")["id"] as? String == "\(moved.id)")
    }

    @Test func itemsAreMovedDeletedAndRestored() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let folder = try await browser.call(
            "files.makeFolder", ["container": "default", "folder": Self.top, "name": "Letters"]
        ).object("entry")
        let file = try await browser.upload("a.txt", Array("one".utf8), in: Self.top).object("entry")
        let (id, folderID) = (try #require(file["id"] as? String), try #require(folder["id"] as? String))
        let taken = try await browser.call(
            "files.move", ["container": "default", "item": id, "folder": Self.top, "name": "Letters"])
        #expect(taken.error == "alreadyExists", "It is not moved into the folder of this name.")
        #expect(taken.status == 409)
        let moved = try await browser.call(
            "files.move", ["container": "default", "item": id, "folder": folderID, "name": "b.txt"])
        #expect(moved.object("entry")["name"] as? String == "b.txt")
        let trail = try await browser.call("files.item", ["container": "default", "item": id])
        #expect(trail.list("trail").map { $0["name"] as? String } == ["Letters", "b.txt"])
        let copy = try await browser.call("files.copy", ["container": "default", "item": id, "folder": Self.top])
        #expect(copy.object("entry")["name"] as? String == "b.txt")

        let trashed = try await browser.call(
            "files.trash",
            ["container": "default", "items": [id, try #require(copy.object("entry")["id"] as? String)]])
        let batch = try #require((trashed.json["batches"] as? [String])?.first)
        let deleted = try await browser.call("files.deleted", ["container": "default"]).list("batches")
        #expect(deleted.map { $0["batch"] as? String } == [batch])
        let restored = try await browser.call("files.restore", ["container": "default", "batch": batch])
        #expect(restored.list("entries").count == 2)
        let again = try await browser.call("files.trash", ["container": "default", "items": [id]])
        let second = try #require((again.json["batches"] as? [String])?.first)
        #expect(try await browser.call("files.erase", ["container": "default", "batch": second]).status == 200)
        #expect(try await browser.call("files.deleted", ["container": "default"]).list("batches").isEmpty)
        for name in ["", "a/b", "..", String(repeating: "x", count: 300)] {
            let refused = try await browser.call(
                "files.makeFolder", ["container": "default", "folder": Self.top, "name": name])
            #expect(refused.error == "invalidArguments", "\(name)")
        }
    }

    @Test func versionsAreListedAndRestored() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let first = try await browser.upload("a.txt", Array("one".utf8), in: Self.top).object("entry")
        let version = try #require(first["version"] as? String)
        let id = try #require(first["id"] as? String)
        let second = try await browser.upload("a.txt", Array("three".utf8), in: Self.top, replaces: version)
        #expect(second.object("entry")["id"] as? String == id)
        let versions = try await browser.call("files.versions", ["container": "default", "item": id]).list("versions")
        #expect(versions.count == 2)
        #expect(versions.first?["isCurrent"] as? Bool == true)
        let former = try await browser.get("/api/content?container=default&item=\(id)&version=\(version)")
        #expect(String(decoding: former.body, as: UTF8.self) == "one")
        let restored = try await browser.call(
            "files.restoreVersion", ["container": "default", "item": id, "version": version])
        #expect(restored.object("entry")["size"] as? Int == 3)
    }

    /// A program's file must not run as a page of the console.
    @Test(arguments: ["a.html", "a.svg", "a.js"]) func contentsAreAttachments(name: String) async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let text = "<script>alert(1)</script>"
        let entry = try await browser.upload(name, Array(text.utf8), in: Self.top).object("entry")
        let id = try #require(entry["id"] as? String)
        let response = await browser.door.answer(browser.request(.get, "/api/content?container=default&item=\(id)"))
        let headers = Dictionary(response.headers.map { ($0.name, $0.value) }) { $1 }
        #expect(headers["Content-Disposition"]?.hasPrefix("attachment") == true)
        #expect(headers["Content-Security-Policy"] == nil, "The default stays, which is a sandbox.")
    }

    // MARK: Uploads

    @Test func anUploadGoesOnAfterARestart() async throws {
        let house = try await WebHouse()
        var browser = try await Browser.signedIn(house)
        let bytes = (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        let arguments: [String: any Sendable] = [
            "container": "default", "folder": Self.top, "name": "a.bin", "size": bytes.count, "key": "k",
        ]
        let begun = try await browser.call("upload.begin", arguments)
        var id = try #require(begun.json["upload"] as? String)
        let put = try await browser.send(
            browser.request(.put, "/api/upload?id=\(id)&offset=0", Array(bytes[..<150_000])))
        #expect(put.json["offset"] as? Int == 150_000)
        #expect(try await browser.call("upload.finish", ["upload": id]).error == "constraintViolation")
        browser.door = try await house.restarted()
        let again = try await browser.call("upload.begin", arguments)
        #expect(again.json["offset"] as? Int == 150_000)
        #expect(again.json["digest"] as? String == "83662cd84c645781511fc1f243415df4a1fac0a925a3e1f35a3ae534a0d9ec5d")
        #expect(try await browser.piece(id, 150_000, [1]).error == "unknownItem", "Another page has taken it over.")
        id = try #require(again.json["upload"] as? String)
        let wrong = try await browser.send(browser.request(.put, "/api/upload?id=\(id)&offset=0", [1]))
        #expect(wrong.object("error")["details"] as? [String: String] == ["offset": "150000"])
        let tooLong = try await browser.send(
            browser.request(.put, "/api/upload?id=\(id)&offset=150000", [UInt8](repeating: 0, count: 60_000)))
        #expect(tooLong.error == "invalidArguments")
        let rest = try await browser.send(
            browser.request(.put, "/api/upload?id=\(id)&offset=150000", Array(bytes[150_000...])))
        #expect(rest.json["offset"] as? Int == bytes.count)
        let done = try await browser.call("upload.finish", ["upload": id]).object("entry")
        #expect(done["size"] as? Int == bytes.count)
        // The answer was lost.
        let repeated = try await browser.call("upload.finish", ["upload": id]).object("entry")
        #expect(repeated["version"] as? String == done["version"] as? String)
        // It may be another file with the same name, size and date.
        #expect(try await browser.call("upload.begin", arguments).json["offset"] as? Int == 0)
        try await house.cloud.settle()
        #expect(try await house.container().read("a.bin") == Data(bytes))
    }

    @Test("A page learns what the server has of an upload, and can begin it again")
    func anUploadOfOtherBytesBeginsAgain() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let bytes = (0..<(9 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let begun = try await browser.begin("a.bin", size: bytes.count + 1)
        #expect(begun.json["digest"] == nil)
        let first = try #require(begun.json["upload"] as? String)
        #expect(try await browser.piece(first, 0, bytes[..<(8 << 20)]).status == 200)
        #expect(try await browser.piece(first, 8 << 20, bytes[(8 << 20)...]).status == 200)
        let known = try await browser.begin("a.bin", size: bytes.count + 1)
        // SHA-256 of those of 8 MiB each.
        #expect(
            known.json["digest"] as? String == "0fbca5f24540e3faddf2e83fef7b021584b29c786f4404a1857833645ff22de2")
        let own = try await browser.begin("a.bin", size: bytes.count + 1, ["upload": known.json["upload"] as? String])
        #expect(own.json["offset"] as? Int == bytes.count && own.json["digest"] == nil)
        #expect(own.json["upload"] as? String == known.json["upload"] as? String)
        let again = try await browser.begin("a.bin", size: bytes.count + 1, ["again": true])
        #expect(again.json["offset"] as? Int == 0 && again.json["digest"] == nil)
        for former in [first, try #require(known.json["upload"] as? String)] {
            #expect(try await browser.call("upload.finish", ["upload": former]).error == "unknownItem")
        }
    }

    @Test func unfinishedUploadsCountOnThePlan() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        let first = try #require(try await browser.begin("a", size: 60_000_000).json["upload"] as? String)
        #expect(try await browser.begin("b", size: 60_000_000).error == "quotaExceeded")
        #expect(try await browser.begin("b", size: 60_000_000).error == "quotaExceeded", "It was not begun.")
        let again = try await browser.begin("a", size: 60_000_000)
        #expect(again.status == 200, "It is not counted twice.")
        #expect(try await browser.call("upload.cancel", ["upload": first]).error == "unknownItem")
        let id = try #require(again.json["upload"] as? String)
        #expect(try await browser.call("upload.cancel", ["upload": id]).status == 200)
        #expect(try await browser.begin("b", size: 60_000_000).status == 200)
    }

    @Test("After a kill between the put and its note the file at the name is the upload's own")
    func anUploadThatWasPutIsDone() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let bytes = [UInt8](repeating: 7, count: 300_000)
        func sent(_ name: String, _ bytes: [UInt8], key: String) async throws -> String {
            let id = try #require(try await browser.begin(name, size: bytes.count, key: key).json["upload"] as? String)
            #expect(try await browser.piece(id, 0, bytes).status == 200)
            return id
        }
        let entry = try await browser.upload("a.bin", bytes, in: Self.top).object("entry")
        let same = try await browser.call("upload.finish", ["upload": sent("a.bin", bytes, key: "2")])
        #expect(same.status == 200)
        #expect(same.object("entry")["version"] as? String == entry["version"] as? String)
        let other = try await sent("a.bin", [UInt8](repeating: 8, count: 300_000), key: "3")
        #expect(try await browser.call("upload.finish", ["upload": other]).error == "alreadyExists")
    }

    @Test func ofManyUploadsOfANewNameOneIsPut() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        var ids: [String] = []
        for number in 0..<10 {
            let begun = try await browser.begin("a.bin", size: 600_000, key: "\(number)")
            ids.append(try #require(begun.json["upload"] as? String))
            let bytes = [UInt8](repeating: UInt8(number), count: 600_000)
            #expect(try await browser.piece(ids[number], 0, bytes).status == 200)
        }
        let answers = try await withThrowingTaskGroup(of: Browser.Answer.self) { group in
            for id in ids { group.addTask { try await browser.call("upload.finish", ["upload": id]) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let taken = answers.filter { $0.error == "alreadyExists" }
        #expect(answers.count { $0.status == 200 } == 1 && taken.count == 9)
        let versions = taken.map { ($0.object("error")["details"] as? [String: String])?["version"] }
        #expect(versions.allSatisfy { $0?.isEmpty == false })
    }

    @Test func eachPieceKeepsAnUploadAlive() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let id = try #require(try await browser.begin("a", size: 10).json["upload"] as? String)
        let file = try #require(
            try FileManager.default.subpathsOfDirectory(atPath: house.folder).first { $0.hasSuffix("\(id).json") })
        let old = Date(timeIntervalSinceNow: -8 * 86_400)
        try FileManager.default.setAttributes(
            [.modificationDate: old], ofItemAtPath: "\(house.folder)/\(file)")
        #expect(try await browser.piece(id, 0, [1, 2, 3]).status == 200)
        #expect(try await browser.begin("b", size: 10).status == 200)
        #expect(try await browser.piece(id, 3, [4, 5, 6, 7, 8, 9, 10]).json["offset"] as? Int == 10)
        #expect(try await browser.call("upload.finish", ["upload": id]).status == 200)
    }

    @Test func anUploadDoesNotReplaceWhatItDoesNotName() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let first = try await browser.upload("a.txt", Array("one".utf8), in: Self.top).object("entry")
        let version = try #require(first["version"] as? String)
        #expect(try await browser.upload("a.txt", Array("other".utf8), in: Self.top).error == "alreadyExists")
        #expect(
            try await browser.upload("a.txt", Array("two".utf8), in: Self.top, replaces: version).status == 200)
        let stale = try await browser.upload("a.txt", Array("three!".utf8), in: Self.top, replaces: version)
        #expect(stale.error == "alreadyExists")
        for id in ["", "x", "../../../../etc/passwd", String(repeating: "a", count: 48)] {
            #expect(try await browser.call("upload.finish", ["upload": id]).error == "unknownItem")
            #expect(try await browser.call("upload.cancel", ["upload": id]).error == "unknownItem")
        }
    }

    @Test func anotherAccountSeesNothing() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let entry = try await browser.upload("a.txt", Array("one".utf8), in: Self.top).object("entry")
        let id = try #require(entry["id"] as? String)
        _ = try await house.cloud.openSession(account: "bert", device: "other")
        var other = Browser(door: house.door)
        let answer = try await other.call("sign-in", ["account": "bert", "password": TestCloud.password])
        let cookie = try #require(answer.header("Set-Cookie"))
        other.cookie = String(cookie.dropFirst("nephos=".count).prefix { $0 != ";" })
        #expect(try await other.call("files.list", ["container": "default"]).list("entries").isEmpty)
        #expect(try await other.get("/api/content?container=default&item=\(id)").status == 404)
        for name in ["files.item", "files.versions"] {
            #expect(try await other.call(name, ["container": "default", "item": id]).error == "unknownItem")
        }
    }

    // MARK: Live

    @Test func theStreamTellsOfChangesAndOfTheEnd() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        _ = try await browser.call("files.list", ["container": "default"])
        let response = await browser.door.answer(browser.request(.get, "/api/events"))
        guard case .stream(let source) = response.body else { throw CloudError(.internalError, "No stream.") }
        func next() async throws -> String { String(decoding: try await Browser.next(source), as: UTF8.self) }
        #expect(try await next().hasPrefix("event: changed\n"))
        try await house.container().put(Data("x".utf8), at: "x.txt")
        try await house.cloud.settle()
        while try await !next().hasPrefix("event: changed\n") {}
        let own = try #require(
            try await browser.call("account.devices").list("devices").first { $0["isThis"] as? Bool == true })
        try await house.device.revoke(DeviceID(try #require(own["id"] as? String)))
        try await house.cloud.settle()
        var event = ""
        while !event.hasPrefix("event: ended\n") { event = try await next() }
        #expect(event.contains("deviceRevoked"))
        #expect(try await next().isEmpty)
        #expect(try await browser.call("session").error == "deviceRevoked")
    }

    // MARK: Key-values and the account

    @Test func keysKeepTheirTypes() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let values = [
            ("big", "integer", "9223372036854775807"), ("yes", "boolean", "true"), ("pi", "real", "3.25"),
            ("text", "string", "<b>"), ("when", "date", "2026-01-31T12:00:00.000Z"), ("bytes", "data", "AAEC"),
            ("list", "array", "[1,\"a\"]"), ("map", "dictionary", "{\"a\":1}"),
        ]
        for (key, type, value) in values {
            let set = try await browser.call("keys.set", ["key": key, "type": type, "value": value])
            #expect(set.object("key")["value"] as? String == value, "\(type)")
        }
        let listed = try await browser.call("keys.list").list("keys")
        #expect(listed.map { $0["name"] as? String } == values.map(\.0).sorted())
        #expect(listed.first { $0["name"] as? String == "bytes" }?["size"] as? Int == 3)
        #expect(try await browser.call("keys.set", ["key": "pi", "type": "integer", "value": "x"]).status == 400)
        // A value that stood for a moment is not kept.
        await house.cloud.advance(by: .seconds(1))
        #expect(try await browser.call("keys.delete", ["key": "pi"]).status == 200)
        #expect(try await browser.call("keys.get", ["key": "pi"]).error == "unknownItem")
        let history = try await browser.call("keys.history", ["key": "pi"]).list("versions")
        #expect(history.first?["isCurrent"] as? Bool == true && history.first?["value"] == nil)
        #expect(history.dropFirst().first?["value"] as? String == "3.25")
        #expect(history.allSatisfy { $0["deviceName"] as? String == "Browser" })
        let page = try await browser.call("keys.list", ["limit": 3])
        #expect(page.json["next"] as? String == "list")
        #expect(try await browser.call("keys.list", ["after": "list"]).list("keys").count == 4)
    }

    @Test("A key in another Unicode form is the store's own")
    func decomposedKeysAreTheStores() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let (composed, decomposed) = ("caf\u{E9}", "cafe\u{301}")
        let set = try await browser.call("keys.set", ["key": decomposed, "type": "integer", "value": "1"])
        #expect(set.status == 200)
        #expect((set.object("key")["name"] as? String)?.utf8.count == composed.utf8.count)
        #expect(try await browser.call("keys.get", ["key": decomposed]).object("key")["value"] as? String == "1")
        await house.cloud.advance(by: .seconds(1))
        let history = try await browser.call("keys.history", ["key": decomposed]).list("versions")
        #expect(history.first?["isCurrent"] as? Bool == true)
        #expect(try await browser.call("keys.delete", ["key": decomposed]).status == 200)
        #expect(try await browser.call("keys.get", ["key": composed]).error == "unknownItem")
    }

    @Test func aDeviceHasItsAppPasswordsName() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        try await house.makeProgram("phone")("GET", "/")
        let devices = try await browser.call("account.devices").list("devices")
        #expect(devices.compactMap { $0["appPassword"] as? String } == ["phone"])
    }

    @Test func devicesPasswordsAndActivityAreTheAccounts() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let created = try await browser.call("account.createAppPassword", ["name": "phone"])
        #expect((created.json["secret"] as? String)?.isEmpty == false)
        let id = try #require(created.object("password")["id"] as? String)
        #expect(try await browser.call("account.appPasswords").list("passwords").count == 1)
        #expect(try await browser.call("account.revokeAppPassword", ["id": id]).status == 200)
        let desk = try #require(
            try await browser.call("account.devices").list("devices").first { $0["isThis"] == nil }?["id"] as? String)
        #expect(try await browser.call("account.renameDevice", ["device": desk, "name": "Desk"]).status == 200)
        #expect(try await browser.call("account.revokeDevice", ["device": desk]).status == 200)
        let storage = try await browser.call("account.storage")
        #expect(storage.json["planBytes"] as? Int ?? 0 > 0)
        let events = try await browser.call("account.activity").list("entries").compactMap { $0["event"] as? String }
        #expect(events.contains("app-password.created") && events.contains("app-password.revoked"))
        _ = try await browser.call("files.list", ["container": "default"])
        let states = try await browser.call("state.list").list("scopes")
        #expect(states.contains { $0["service"] as? String == "documents" })
    }
}
