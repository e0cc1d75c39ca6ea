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
