import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// A device that was revoked or signs out, and what stays of it.
@Suite(.serialized) struct RevokedDeviceTests {
    @Test func aRevokedDeviceSaysByWhomAndWipesItsHome() async throws {
        try await withTenant { house in
            let other = try await house.anotherDevice("other")
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            #expect(try await other.run("kv", "list").output.contains("k"))
            #expect(try await other.run("docs", "ls").status == 0)
            #expect(try await house.person.run("devices", "rename", "d", "phone").status == 0)
            #expect(try await house.person.run("devices", "revoke", "other").status == 0)
            let said = /This device was revoked by the device phone, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. Sign in again\./
            // Seconds may pass until each service knows.
            try await house.untilRevoked(other)
            for command in [["kv", "list"], ["kv", "get", "k"], ["docs", "ls"], ["kv", "sync"]] {
                let revoked = try await other.run(command)
                #expect(revoked.status == 4 && revoked.output.isEmpty, "\(command): \(revoked)")
                #expect(
                    revoked.errors.contains(said) && revoked.errors.contains("nephos wipe"), "\(command): \(revoked)")
            }
            let json = try await other.run("kv", "list", "--json")
            #expect(json.errors.contains(#""revoked_by":"phone""#), "\(json)")
            #expect(json.errors.contains(/"revoked_at":\d+/), "\(json)")
            let offline = try await other.run("kv", "list", "--offline")
            #expect(offline.status == 0 && offline.errors.contains(said), "\(offline)")

            // What is nowhere else is not removed with the rest.
            #expect(try await other.run("kv", "set", "mine", "1", "--offline").status == 0)
            let file = house.folder + "/file"
            try Data("mine".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await other.run("docs", "put", file, "mine", "--offline").status == 0)
            let cat = try await other.run("docs", "cat", "mine", "--offline")
            #expect(cat.status == 0 && cat.output == "mine" && cat.errors.contains(said), "\(cat)")
            let refused = try await other.run("wipe", "--yes")
            #expect(refused.status == 1 && refused.errors.contains("unsent: 2"), "\(refused)")
            let unasked = try await other.run("wipe", "--discard-unsent")
            #expect(unasked.status == 64, "\(unasked)")
            let home = try #require(other.environment["NEPHOS_HOME"])
            // Names that look like the home's own are a person's all the same.
            let files = ["content/letter.txt", "content.txt", "device.conf", "mine.txt"]
            try FileManager.default.createDirectory(atPath: home + "/content", withIntermediateDirectories: true)
            for file in files { try Data().write(to: URL(fileURLWithPath: "\(home)/\(file)")) }
            let wiped = try await other.run("wipe", "--yes", "--discard-unsent", "--json")
            #expect(wiped.status == 0 && wiped.output.contains(#""discarded":2"#), "\(wiped)")
            let left = try FileManager.default.contentsOfDirectory(atPath: home).sorted()
            #expect(left == ["content", "content.txt", "device.conf", "mine.txt"])
            #expect(try FileManager.default.contentsOfDirectory(atPath: home + "/content") == ["letter.txt"])
            #expect(try await other.run("kv", "list").status == 4)
            // It signs in as a new device.
            #expect(try await house.anotherDevice("other").run("kv", "get", "k").output == "1\n")
        }
    }

    @Test func wipeSignsADeviceOutAndWaitsForNoProgram() async throws {
        try await withTenant { house in
            let other = try await house.anotherDevice("other")
            let watch = try other.start(["watch"])
            try await eventually("it follows") { watch.output.contains("in sync") }
            let used = try await other.run("wipe", "--yes")
            #expect(used.status == 1 && used.errors.contains("Another program uses this home"), "\(used)")
            #expect(try await other.run("kv", "sync").status == 0)
            watch.signal(SIGKILL)
            _ = await watch.outcome()
            let wiped = try await other.run("wipe", "--yes")
            #expect(wiped.status == 0, "\(wiped)")
            #expect(!FileManager.default.fileExists(atPath: try #require(other.environment["NEPHOS_HOME"])))
            #expect(try await !house.person.run("devices").output.contains("other"))
        }
    }

    @Test func signOutSendsFirstAndTheNameStays() async throws {
        try await withHousehold { house in
            try await house.begin()
            let other = try await house.anotherDevice("other")
            for command in [["kv", "sync"], ["docs", "ls"], ["records", "ls"]] {
                #expect(try await other.run(command).status == 0)
            }
            let file = house.folder + "/file"
            try Data("file".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await other.run("kv", "set", "k", "1", "--offline").status == 0)
            #expect(try await other.run("docs", "put", file, "f", "--offline").status == 0)
            #expect(try await other.run("records", "save", "r", "n=1", "--type", "T", "--offline").status == 0)
            let out = try await other.run("sign-out")
            #expect(out.status == 0 && out.output == "Signed out of ann.\n", "\(out)")
            #expect(try await house.person.run("kv", "get", "k").output == "1\n")
            #expect(try await house.person.run("docs", "cat", "f").output == "file")
            #expect(try await house.person.run("records", "get", "r").output.contains("saved"))
            // What it wrote keeps its name, also while it is signed out.
            #expect(try await house.person.run("records", "get", "r").output.contains(" by other\n"))
            #expect(try await house.person.run("kv", "set", "k", "2").status == 0)
            #expect(try await house.person.run("kv", "history").output.contains("other"))

            // Its name is the same after it has signed in again.
            _ = try await house.signIn(other)
            #expect(try await other.run("whoami").output.contains("device          other"))
            // Where the server does not answer, what waits is a reason to stay.
            #expect(try await other.run("kv", "set", "k", "3", "--offline").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            let kept = try await other.run("sign-out", "--timeout", "2")
            #expect(kept.status == 1 && kept.errors.contains("never sent"), "\(kept)")
        }
    }
}

extension Resident {
    /// Signs a device in under the name that its home has.
    func signIn(_ device: Program) async throws -> Program.Outcome {
        let signIn = try await device.run("sign-in", try await connection, "--account", accountName)
        try #require(signIn.status == 0, "\(signIn)")
        return signIn
    }

    /// Waits until each service has heard that the device was revoked.
    func untilRevoked(_ device: Program) async throws {
        for command in [["kv", "sync"], ["docs", "status"]] {
            for _ in 0..<50 where try await device.run(command).status != 4 {}
        }
    }
}
