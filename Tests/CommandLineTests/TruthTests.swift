import Core
import Foundation
import ServiceKit
import TestKit
import Testing

/// What is said is so, and what it advises helps.
@Suite(.serialized) struct TruthTests {
    private func file(_ house: Household, _ name: String, _ text: String) throws -> String {
        let file = house.folder + "/" + name
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    private func many(_ house: Household, _ count: Int) throws -> String {
        let file = house.folder + "/many.json"
        let values = Dictionary(uniqueKeysWithValues: (0..<count).map { ("key-\($0)", $0) })
        try JSONEncoder().encode(values).write(to: URL(fileURLWithPath: file))
        return file
    }

    private func connection(_ house: Household) async throws -> String {
        try await house.nephos.run("status", "--connection").output.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    private func signInSecond(_ house: Household) async throws -> Program {
        var second = house.person
        second.environment["NEPHOS_HOME"] = house.folder + "/second"
        let signIn = try await second.run(
            "sign-in", try await connection(house), "--account", Household.accountName, "--device-name", "second")
        try #require(signIn.status == 0, "\(signIn)")
        return second
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aSignOutThatCannotBeKeptIsNotAskedFor() async throws {
        try await withHousehold { house in
            let disk = try SmallDisk(megabytes: 4, at: house.folder + "/home")
            defer { disk.remove() }
            try await house.begin()
            #expect(try await house.person.run("kv", "sync").status == 0)
            try disk.fill()
            // What a session needs to begin is there; what its end needs is not.
            let junk = open(house.folder + "/home/junk", O_WRONLY)
            try #require(junk >= 0 && ftruncate(junk, lseek(junk, 0, SEEK_END) - (72 << 10)) == 0)
            close(junk)
            let refused = try await house.person.run("sign-out")
            #expect(refused.status == 8 && refused.errors.contains("is full"), "\(refused)")
            try disk.empty()
            let sync = try await house.person.run("kv", "sync")
            #expect(sync.status == 0, "\(sync)")
            #expect(try await house.person.run("sign-out").status == 0)
        }
    }
}
