import Foundation
import NephosCore
import NephosHTTP
import NephosKit
import NephosTestKit
import Testing

@testable import NephosWeb

/// Sessions of browsers and programs.
@Suite struct SessionTests {
    /// A page of one account that meets another's cookie, as after a second sign-in in the same browser.
    @Test func aPageOfAnotherDeviceIsNotServed() async throws {
        let house = try await WebHouse()
        var (mine, other) = (try await Browser.signedIn(house), try await Browser.signedIn(house))
        let id = try #require(try await mine.call("session").object("device")["id"] as? String)
        let otherID = try #require(try await other.call("session").object("device")["id"] as? String)
        #expect(id != otherID)
        mine.headers["X-Nephos"] = id
        #expect(try await mine.call("files.list", ["container": "default"]).status == 200)
        other.headers["X-Nephos"] = id
        let refused = try await other.call("files.list", ["container": "default"])
        #expect(refused.status == 401 && refused.error == "notSignedIn")
        #expect(try await other.call("session").status == 401)
        let upload = try await other.send(other.request(.put, "/api/upload?id=x&offset=0", [1]))
        #expect(upload.status == 401)
        mine.headers["X-Nephos"] = ""
        #expect(try await mine.call("files.list", ["container": "default"]).status == 403)
    }

    /// Also a page that has asked for nothing that is followed.
    @Test func aRevokedBrowserIsToldAtOnce() async throws {
        let house = try await WebHouse()
        let browser = try await Browser.signedIn(house)
        let id = try #require(try await browser.call("session").object("device")["id"] as? String)
        let response = await browser.door.answer(browser.request(.get, "/api/events"))
        guard case .stream(let source) = response.body else { return #expect(Bool(false), "\(response)") }
        _ = try await Browser.next(source)
        try await house.cloud.settle()
        try await house.device.revoke(DeviceID(id))
        try await house.cloud.settle()
        let events = Task {
            var event = ""
            while !event.hasPrefix("event: ended\n") {
                event = String(decoding: try await Browser.next(source), as: UTF8.self)
            }
            return event
        }
        let timeout = Task {
            try await Task.sleep(for: .seconds(20))
            events.cancel()
        }
        #expect(try await events.value.contains("deviceRevoked"))
        timeout.cancel()
    }

    /// A session that is closed while something still uses it is used further: two on one home would lose each other's
    /// changes.
    @Test func aHomeIsOpenOnce() async throws {
        let house = try await WebHouse()
        let sessions = house.door.sessions
        let cookie = try await sessions.signIn(
            account: "anna", password: TestCloud.password, code: "", deviceName: "browser", from: "a"
        ).cookie
        let first = try await sessions.user(cookie: cookie)
        await sessions.closeIdle(after: .zero)
        let second = try await sessions.user(cookie: cookie)
        #expect(first === second)
    }

    /// Many who guess, from one address or from many, take no places of those who have signed in before.
    @Test func whoIsKnownTakesNoPlaceOfASignIn() async throws {
        let house = try await WebHouse()
        let program = try await house.makeProgram()
        #expect(try await program("PUT", "/a.txt", "a").status == 201)
        await house.door.closeSessions()
        let sessions = house.door.sessions
        let guesses = (0..<100).map { number in
            Task {
                _ = try? await sessions.user(
                    account: "nobody\(number)", password: String(repeating: "7", count: 26), from: "\(number)")
            }
        }
        try await Task.sleep(for: .milliseconds(20))
        #expect(try await program("GET", "/a.txt").text == "a")
        for guess in guesses { await guess.value }
    }
}
