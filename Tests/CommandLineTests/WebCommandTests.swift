import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// WebDAV as `nephos up` starts it, with curl as the client.
@Suite struct WebCommandTests {
    private func curl(_ arguments: String, _ password: String) async throws -> (status: String, body: String) {
        let outcome = try await Program(name: "nephos").run(
            shell: "curl -s --max-time 30 -u '\(Household.accountName):\(password)' -w '\\n%{http_code}' \(arguments)")
        let lines = outcome.output.split(separator: "\n", omittingEmptySubsequences: false)
        return (String(lines.last ?? ""), lines.dropLast().joined(separator: "\n"))
    }

    private struct Created: Decodable {
        var id: String
        var password: String
    }

    @Test func filesAreReachedByWebDAV() async throws {
        let port = try Web.freePort()
        try await withHousehold(["--web-port", "\(port)"]) { house in
            try await house.begin()
            let person = house.person
            let address = "http://localhost:\(port)/"
            #expect(try await person.run("status").output.contains("web         \(address)"))
            let made = try await person.run("account", "app-password", "create", "phone", "--json")
            let created = try JSONDecoder().decode(Created.self, from: Data(made.output.utf8))
            let url = "\(address)dav/default/a.txt"
            let wrong = try await curl("-T - '\(url)' < /dev/null", "wrong")
            #expect(wrong.status == "401")
            let put = try await curl("-X PUT --data-binary hello '\(url)'", created.password)
            #expect(put.status == "201", "\(put)")
            // The device has it at once, or with the next look.
            #expect(try await person.run("docs", "cat", "a.txt").output == "hello")

            // It comes back, and the sign-in stays.
            let before = try house.holder(.web)
            kill(before, SIGKILL)
            for _ in 0..<100 where (house.run.holder(of: .service(.web)) ?? before) == before {
                try await Task.sleep(for: .milliseconds(100))
            }
            var got = try await curl("'\(url)'", created.password)
            for _ in 0..<100 where got.status == "000" {
                try await Task.sleep(for: .milliseconds(100))
                got = try await curl("'\(url)'", created.password)
            }
            #expect(got.status == "200" && got.body == "hello", "\(got)")
            let devices = try await person.run("devices").output.matches(of: /WebDAV/).count
            #expect(devices == 1)
            // Nothing of the password is on disk.
            let letters = created.password.replacing("-", with: "")
            let found = try await person.run(shell: "grep -rlE '\(letters)|\(created.password)' '\(house.deployment)'")
            #expect(found.output.isEmpty, "\(found.output)")

            let list = try await person.run("account", "app-password", "list").output
            #expect(list.contains("phone") && !list.contains("never"))
            #expect(try await person.run("account", "app-password", "revoke", "phone").status == 0)
            #expect(try await person.run("account", "app-password", "revoke", "phone").status != 0)
            for _ in 0..<50 where got.status != "401" {
                try await Task.sleep(for: .milliseconds(100))
                got = try await curl("'\(url)'", created.password)
            }
            #expect(got.status == "401", "\(got)")

            #expect(try await person.run("down").status == 0)
            #expect(house.held == [])
            #expect(try await person.run("up", "--no-web").status == 0)
            #expect(house.run.holder(of: .service(.web)) == nil)
            #expect(try await person.run("status").output.contains("\(address) (stopped)"))
        }
    }

    /// The console of a home, also without the server.
    @Test func theConsoleOfAHomeIsOpenedOnce() async throws {
        try await withHousehold { house in
            try await house.begin()
            let person = house.person
            #expect(try await person.run("kv", "set", "theme", "dark").status == 0)
            #expect(try await person.run("down").status == 0)
            let console = try person.start(["console", "--no-browser", "--json"])
            try await eventually("it listens") { console.output.contains("address") }
            let said = try JSONDecoder().decode([String: String].self, from: Data(console.output.utf8))
            let address = try #require(said["address"])
            let origin = try #require(address.split(separator: "/open").first)
            let jar = house.folder + "/cookies"
            func ask(_ arguments: String) async throws -> String {
                try await person.run(shell: "curl -s -w ' %{http_code}' -b '\(jar)' -c '\(jar)' \(arguments)").output
            }
            let call = "-X POST -H 'Content-Type: application/json' -H 'X-Nephos: 1' -d"
            #expect(try await ask("\(call) '{}' \(origin)/api/session").hasSuffix(" 401"))
            #expect(try await ask("'\(origin)/open?key=wrong'").hasSuffix(" 403"))
            #expect(try await ask("'\(address)'").hasSuffix(" 303"))
            #expect(try await ask("'\(address)'").hasSuffix(" 403"), "It works once.")
            let session = try await ask("\(call) '{}' \(origin)/api/session")
            #expect(session.contains("\"local\":true") && session.contains("\"account\":\"ann\""), "\(session)")
            let set = try await ask(
                "\(call) '{\"key\":\"a\",\"type\":\"string\",\"value\":\"b\"}' \(origin)/api/keys.set")
            #expect(set.hasSuffix(" 200"), "\(set)")
            let state = try await ask("\(call) '{}' \(origin)/api/state.list")
            #expect(state.contains("\"names\":[\"a\"]"), "It waits to be sent: \(state)")
            console.signal(SIGINT)
            _ = await console.outcome()
            #expect(try await person.run("kv", "get", "a").output.contains("b"))
        }
    }

    /// A browser more is no thread more.
    @Test func sessionsShareThreads() async throws {
        let port = try Web.freePort()
        try await withHousehold(["--web-port", "\(port)"]) { house in
            try await house.begin()
            let web = try house.holder(.web)
            let password = try #require(house.person.environment["NEPHOS_PASSWORD"])
            func sessions(_ count: Int) async throws -> Int {
                for _ in 0..<count {
                    let arguments = "{\"account\":\"\(Household.accountName)\",\"password\":\"\(password)\"}"
                    let answer = try await house.person.run(
                        shell: "curl -s -w ' %{http_code}' -H 'Content-Type: application/json' -H 'X-Nephos: 1' "
                            + "-d '\(arguments)' http://localhost:\(port)/api/sign-in")
                    #expect(answer.output.hasSuffix(" 200"), "\(answer.output)")
                }
                return try FileManager.default.contentsOfDirectory(atPath: "/proc/\(web)/task").count
            }
            let few = try await sessions(4)
            let more = try await sessions(8)
            #expect(more <= few + 2, "\(few) \(more)")
        }
    }

    @Test func aTakenPortIsNamed() async throws {
        let (descriptor, port) = try Web.listen()
        defer { close(descriptor) }
        try await withHousehold(["--web-port", "\(port)"]) { house in
            let up = try await house.nephos.run("up")
            #expect(up.status != 0 && up.errors.contains("--no-web") && up.errors.contains("\(port)"), "\(up.errors)")
            #expect(house.held == [])
        }
    }
}
