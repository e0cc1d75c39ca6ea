import Foundation
import NephosCore
import NephosKit
import NephosTestKit
import Testing

@testable import NephosWeb

@Suite struct DavTests {
    // MARK: Who may come in

    @Test func onlyAnAppPasswordLetsSomebodyIn() async throws {
        let house = try await WebHouse()
        var program = try await house.makeProgram("phone")
        #expect(try await program("PROPFIND", "/", nil, ["Depth": "0"]).status == 207)
        let right = program.password
        for wrong in ["", TestCloud.password, String(repeating: "7", count: 26), right + "0"] {
            program.password = wrong
            let answer = try await program("PROPFIND", "/", nil, ["Depth": "0"])
            #expect(answer.status == 401 && answer.headers["www-authenticate"]?.hasPrefix("Basic") == true, "\(wrong)")
        }
        program.password = right
        program.account = "bob"
        #expect(try await program("PROPFIND", "/", nil, ["Depth": "0"]).status == 401)
        program.account = "Anna"
        #expect(try await program("PROPFIND", "/", nil, ["Depth": "0"]).status == 207)
        // It is one device, whatever it asks.
        let devices = try await house.device.devices()
        #expect(devices.map(\.name) == ["desk", "WebDAV"])
    }

    /// Each attempt costs some work, so there are few; programs that are known go on.
    @Test func wrongPasswordsOfOneAddressAreFew() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        var statuses: [Int] = []
        for number in 0..<25 {
            let wrong = Program(
                door: house.door, account: "anna", password: "\(10 + number)" + String(repeating: "7", count: 24))
            statuses.append(try await wrong("GET", "/a.txt").status)
        }
        #expect(statuses.last == 429 && !statuses.contains(200), "\(statuses)")
        #expect(try await program("GET", "/a.txt").text == "a")
    }

    /// Behind a proxy all clients may have one address.
    @Test func whoHasSignedInBeforeDoesNotWaitForThoseWhoGuess() async throws {
        let house = try await WebHouse()
        let (program, other) = (try await house.makeProgram(), try await house.makeProgram("other"))
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        for number in 0..<20 {
            let wrong = Program(
                door: house.door, account: "nobody\(number)", password: String(repeating: "7", count: 26))
            #expect(try await wrong("GET", "/a.txt").status == 401)
        }
        #expect(try await other("GET", "/a.txt").status == 429)
        await house.door.closeSessions()
        #expect(try await program("GET", "/a.txt").text == "a")
    }

    @Test func aRevokedPasswordLetsNobodyIn() async throws {
        let house = try await WebHouse()
        let made = try await house.device.createAppPassword("phone")
        let program = Program(door: house.door, account: "anna", password: made.secret)
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        try await house.device.revokeAppPassword(made.password.id)
        try await house.cloud.settle()
        let read = try await program("GET", "/a.txt")
        #expect(read.status == 401, "\(read)")
        #expect(try await program("PUT", "/b.txt", "b").status == 401)
        #expect(try await house.container().item(at: "b.txt") == nil)
    }

    @Test func aRestartIsNoNewDevice() async throws {
        let house = try await WebHouse()
        var program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        program.door = try await house.restarted()
        #expect(try await program("GET", "/a.txt").text == "a")
        #expect(try await house.device.devices().count == 2)
        await program.door.close()
    }

    // MARK: Files

    @Test func aFileComesAndGoes() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        let put = try await program("PUT", "/a.txt", "hello", ["X-OC-Mtime": "1700000000"])
        #expect(put.status == 201 && put.tag.count == 34 && put.headers["x-oc-mtime"] == "accepted")
        let got = try await program("GET", "/a.txt")
        #expect(got.text == "hello" && got.tag == put.tag && got.headers["content-type"] == "text/plain")
        #expect(got.headers["content-disposition"]?.hasPrefix("attachment") == true)
        #expect(got.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT")
        #expect(try await program("HEAD", "/a.txt").body.isEmpty)
        let part = try await program("GET", "/a.txt", nil, ["Range": "bytes=1-3"])
        #expect(part.status == 206 && part.text == "ell" && part.headers["content-range"] == "bytes 1-3/5")
        #expect(try await program("GET", "/a.txt", nil, ["Range": "bytes=9-"]).status == 416)
        #expect(try await program("GET", "/a.txt", nil, ["If-None-Match": put.tag]).status == 304)
        // It is there for the other devices once it is answered.
        try await house.cloud.settle()
        #expect(try await house.container().read("a.txt") == Data("hello".utf8))
        #expect(try await program("DELETE", "/a.txt").status == 204)
        #expect(try await program("GET", "/a.txt").status == 404)
        #expect(try await program("DELETE", "/a.txt").status == 404)
        try await house.cloud.settle()
        #expect(try await house.container().trash.list().count == 1)
    }

    @Test func aLongFileIsReadInPieces() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        let long = (0..<300_000).map { "\($0)\n" }.joined()
        #expect(try await program("PUT", "/long.txt", long).status == 201)
        #expect(try await program("GET", "/long.txt").text == long)
        let part = try await program("GET", "/long.txt", nil, ["Range": "bytes=1000000-1000009"])
        #expect(part.text == String(long.dropFirst(1_000_000).prefix(10)))
        #expect(try await program("PUT", "/empty.txt", "").status == 201)
        #expect(try await program("GET", "/empty.txt").status == 200)
    }

    @Test func aStaleTagChangesNothing() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        let first = try await program("PUT", "/a.txt", "one").tag
        let second = try await program("PUT", "/a.txt", "two", ["If-Match": first])
        #expect(second.status == 204 && second.tag != first)
        #expect(try await program("PUT", "/a.txt", "three", ["If-Match": first]).status == 412)
        #expect(try await program("PUT", "/a.txt", "three", ["If-None-Match": "*"]).status == 412)
        #expect(try await program("DELETE", "/a.txt", nil, ["If-Match": first]).status == 412)
        #expect(try await program("PUT", "/none.txt", "x", ["If-Match": "*"]).status == 412)
        #expect(try await program("GET", "/a.txt").text == "two")
        try await house.cloud.settle()
        let versions = try await house.container().versions.list(of: "a.txt", timeout: .seconds(30))
        #expect(versions.count == 2)
    }

    /// Of writers that know the same version one succeeds, and the others get 412.
    @Test func ofRacingWritersOneWins() async throws {
        let house = try await WebHouse()
        let programs = [try await house.makeProgram("a"), try await house.makeProgram("b")]
        var tag = try await programs[0]("PUT", "/a.txt", "0").tag
        for round in 1...10 {
            try await house.cloud.settle()
            let known = tag
            let answers = try await withThrowingTaskGroup(of: Program.Answer.self) { group in
                for number in 0..<8 {
                    let program = programs[number % 2]
                    group.addTask { try await program("PUT", "/a.txt", "\(round).\(number)", ["If-Match": known]) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            let won = answers.filter { $0.status == 204 }
            #expect(won.count == 1 && answers.filter { $0.status == 412 }.count == 7, "\(answers.map(\.status))")
            tag = try #require(won.first).tag
        }
        try await house.cloud.settle()
        #expect(try await house.container().conflicts.list().isEmpty)
    }

    @Test func whatThePlanHasNoRoomForIsRefused() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        try house.cloud.setPlan(bytes: 20_000, of: "anna")
        let long = (0..<5000).map { _ in UUID().uuidString }.joined()
        #expect(try await program("PUT", "/b.txt", long).status == 507)
        #expect(try await program("PUT", "/a.txt", long).status == 507)
        #expect(try await program("GET", "/a.txt").text == "a")
        #expect(try await program("GET", "/b.txt").status == 404)
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        #expect(try await program("PUT", "/b.txt", long).status == 201)
    }

    @Test func aChecksumThatIsWrongPutsNothing() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        let sum = "SHA1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
        #expect(try await program("PUT", "/a.txt", "hello", ["OC-Checksum": sum]).status == 201)
        #expect(try await program("PUT", "/b.txt", "hellO", ["OC-Checksum": sum]).status == 400)
        #expect(try await program("GET", "/b.txt").status == 404)
        let asked = #"<propfind xmlns="DAV:" xmlns:o="http://owncloud.org/ns"><prop><o:checksums/></prop></propfind>"#
        #expect(try await program("PROPFIND", "/a.txt", asked, ["Depth": "0"]).text.contains(sum))
        // It is of that content alone.
        #expect(try await program("PUT", "/a.txt", "other").status == 204)
        #expect(try await !program("PROPFIND", "/a.txt", asked, ["Depth": "0"]).text.contains(sum))
    }

    // MARK: Folders, copies and moves

    @Test func foldersAreMadeCopiedAndMoved() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("MKCOL", "/f").status == 201)
        #expect(try await program("MKCOL", "/f").status == 405)
        #expect(try await program("MKCOL", "/x/y").status == 409)
        #expect(try await program("PUT", "/x/a.txt", "a").status == 409)
        #expect(try await program("PUT", "/f", "a").status == 405)
        #expect(try await program("PUT", "/f/a%20b%E2%82%AC.txt", "a").status == 201)
        #expect(try await program("COPY", "/f", nil, ["Destination": "http://here/dav/default/g"]).status == 201)
        #expect(try await program("GET", "/g/a%20b%E2%82%AC.txt").text == "a")
        #expect(try await program("MOVE", "/g", nil, ["Destination": "/dav/default/f/g"]).status == 201)
        #expect(try await program("MOVE", "/f", nil, ["Destination": "/dav/default/f/g/h"]).status == 403)
        #expect(try await program("PUT", "/b.txt", "b").status == 201)
        let target = ["Destination": "/dav/default/f/a%20b%E2%82%AC.txt", "Overwrite": "F"]
        #expect(try await program("COPY", "/b.txt", nil, target).status == 412)
        #expect(try await program("COPY", "/b.txt", nil, ["Destination": target["Destination"] ?? ""]).status == 204)
        #expect(try await program("GET", "/f/a%20b%E2%82%AC.txt").text == "b")
        #expect(try await program("COPY", "/b.txt", nil, ["Destination": "http://there/dav/default/c"]).status == 502)
        #expect(try await program("GET", "/../../etc/passwd").status == 404)
        let list = try await program("PROPFIND", "/f", nil, ["Depth": "1"])
        #expect(list.status == 207 && list.text.contains("<D:href>/dav/default/f/a%20b%E2%82%AC.txt</D:href>"))
        #expect(list.text.contains("<D:href>/dav/default/f/g/</D:href>"))
        #expect(try await program("PROPFIND", "/f", nil, ["Depth": "infinity"]).status == 403)
    }

    /// Editors save in these ways, and the file stays what it is, with its versions.
    @Test func anEditorThatSavesKeepsTheFilesVersions() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "one").status == 201)
        try await house.cloud.settle()
        let container = try await house.container()
        let id = try #require(try await container.item(at: "a.txt")).id
        // Deleted and made again.
        #expect(try await program("DELETE", "/a.txt").status == 204)
        #expect(try await program("PUT", "/a.txt", "two").status == 201)
        // Moved away and made again.
        #expect(try await program("MOVE", "/a.txt", nil, ["Destination": "/dav/default/a.txt~"]).status == 201)
        #expect(try await program("PUT", "/a.txt", "three").status == 201)
        #expect(try await program("GET", "/a.txt~").text == "two")
        #expect(try await program("DELETE", "/a.txt~").status == 204)
        // Written beside it and moved over it.
        #expect(try await program("PUT", "/a.tmp", "four").status == 201)
        #expect(try await program("MOVE", "/a.tmp", nil, ["Destination": "/dav/default/a.txt"]).status == 204)
        #expect(try await program("GET", "/a.txt").text == "four")
        try await house.cloud.settle()
        #expect(try await container.item(at: "a.txt")?.id == id)
        let versions = try await container.versions.list(of: "a.txt", timeout: .seconds(30))
        #expect(versions.count == 4)
        // What was written for that alone is not in the trash; the copy of the old state is.
        #expect(try await container.trash.list().flatMap(\.items).map(\.name) == ["a.txt~"])
    }

    // MARK: Properties and locks

    @Test func propertiesAreKept() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        try await program("PUT", "/a.txt", "a")
        let set =
            #"<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><x xmlns="urn:x">1 &lt; <y xmlns="urn:y"/></x>"#
            + "</D:prop></D:set></D:propertyupdate>"
        let answer = try await program("PROPPATCH", "/a.txt", set)
        #expect(answer.status == 207 && answer.text.contains("200 OK"))
        let asked = #"<propfind xmlns="DAV:"><prop><x xmlns="urn:x"/><none xmlns="urn:x"/></prop></propfind>"#
        let found = try await program("PROPFIND", "/a.txt", asked, ["Depth": "0"]).text
        #expect(found.contains(#"<x xmlns="urn:x">1 &lt; <y xmlns="urn:y"></y></x>"#), "\(found)")
        #expect(found.contains("404 Not Found"))
        let protected =
            #"<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><D:getetag>1</D:getetag><z xmlns="urn:x"/>"#
            + "</D:prop></D:set></D:propertyupdate>"
        let refused = try await program("PROPPATCH", "/a.txt", protected).text
        #expect(refused.contains("403 Forbidden") && refused.contains("424 Failed Dependency"))
        #expect(try await program("PROPFIND", "/a.txt", "<no", ["Depth": "0"]).status == 400)
        let entity =
            #"<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><propfind xmlns="DAV:"><prop>&x;</prop></propfind>"#
        #expect(try await program("PROPFIND", "/a.txt", entity, ["Depth": "0"]).status == 400)
    }

    private let lockInfo =
        #"<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype>"#
        + "<owner>me</owner></lockinfo>"

    @Test func aLockKeepsOthersOut() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram("a")
        var other = try await house.makeProgram("b")
        try await program("MKCOL", "/f")
        try await program("PUT", "/f/a.txt", "a")
        let lock = try await program("LOCK", "/f/a.txt", lockInfo, ["Timeout": "Second-600"])
        let token = try #require(lock.headers["lock-token"])
        #expect(lock.status == 200 && lock.text.contains("Second-600"))
        try await house.cloud.settle()
        for (method, body, headers) in [
            ("PUT", "b", [:]), ("DELETE", nil, [:]), ("LOCK", lockInfo, [:]),
            ("MOVE", nil, ["Destination": "/dav/default/b.txt"]),
        ] as [(String, String?, [String: String])] {
            #expect(try await other(method, "/f/a.txt", body, headers).status == 423, "\(method)")
        }
        #expect(try await other("DELETE", "/f").status == 423)
        #expect(try await other("MOVE", "/f", nil, ["Destination": "/dav/default/g"]).status == 423)
        #expect(try await program("PUT", "/f/a.txt", "b", ["If": "(\(token))"]).status == 204)
        #expect(try await program("PUT", "/f/a.txt", "c", ["If": "(<urn:uuid:none>)"]).status == 412)
        #expect(try await program("LOCK", "/f/a.txt", nil, ["If": "(\(token))", "Timeout": "Infinite"]).status == 200)
        // A restart ends no lock.
        other.door = try await house.restarted()
        #expect(try await other("PUT", "/f/a.txt", "d").status == 423)
        #expect(try await other("UNLOCK", "/f/a.txt", nil, ["Lock-Token": token]).status == 204)
        #expect(try await other("PUT", "/f/a.txt", "e").status == 204)
        await other.door.close()
    }

    @Test func filesOfTheSystemStayHidden() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/.DS_Store", "x").status == 201)
        #expect(try await program("PUT", "/._a.txt", "x").status == 201)
        #expect(try await program("GET", "/._a.txt").text == "x")
        #expect(try await program("PROPFIND", "/", nil, ["Depth": "1"]).text.contains("._a.txt"))
        #expect(try await program("DELETE", "/._a.txt").status == 204)
        try await house.cloud.settle()
        #expect(try await house.container().children().isEmpty)
    }
}
