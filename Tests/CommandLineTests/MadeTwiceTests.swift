import Foundation
import Testing

/// Two devices that make the same file or folder, one of them while it hears nothing of the other.
@Suite(.serialized) struct MadeTwiceTests {
    private func file(_ text: String, in house: Tenant) throws -> String {
        let file = house.folder + "/s.txt"
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    @Test func equalFilesInEqualFoldersBecomeOne() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await two.run("docs", "ls").status == 0)
            let file = try file("equal", in: house)
            for device in [two, one] {
                let options = device.environment == two.environment ? ["--offline"] : []
                #expect(try await device.run(["docs", "mkdir", "P"] + options).status == 0)
                #expect(try await device.run(["docs", "put", file, "P/s.txt"] + options).status == 0)
                #expect(try await device.run(["docs", "put", file, "s.txt"] + options).status == 0)
            }
            // It was made into the second device's own folder.
            #expect(try await two.run("docs", "put", file, "P/mine.txt", "--offline").status == 0)
            let sent = try await two.run("docs", "put", file, "P/later.txt")
            #expect(sent.status == 0, "\(sent)")
            for device in [one, two] {
                let names = try await device.run("docs", "find", "*", "--fresh").output
                let expected = ["P", "P/later.txt", "P/mine.txt", "P/s.txt", "s.txt"].map { "/Documents/\($0)\n" }
                #expect(names == expected.joined(), "\(names)")
                #expect(try await device.run("docs", "conflicts").output == "Nothing conflicts.\n")
            }
        }
    }

    @Test func aWaitingFileThatGetsAnotherNameIsSaid() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await two.run("docs", "ls").status == 0)
            #expect(try await two.run("docs", "put", file("file", in: house), "gf", "--offline").status == 0)
            #expect(try await one.run("docs", "mkdir", "gf").status == 0)
            let sent = try await two.run("docs", "mkdir", "other")
            #expect(sent.status == 6, "\(sent)")
            #expect(sent.errors.contains("/Documents/gf is /Documents/gf 2 now: the name was taken."), "\(sent)")
            #expect(try await two.run("docs", "cat", "gf 2").output == "file")
            #expect(try await two.run("docs", "mkdir", "third").status == 0)
        }
    }

    @Test func deletingAnUnsentFolderDeletesNoOther() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await two.run("docs", "ls").status == 0)
            #expect(try await two.run("docs", "mkdir", "P", "--offline").status == 0)
            #expect(try await two.run("docs", "rm", "-r", "P", "--offline").status == 0)
            let file = try file("mine", in: house)
            #expect(try await one.run("docs", "mkdir", "P").status == 0)
            #expect(try await one.run("docs", "put", file, "P/s.txt").status == 0)
            #expect(try await two.run("docs", "mkdir", "other").status == 0)
            for device in [one, two] {
                #expect(try await device.run("docs", "cat", "P/s.txt", "--fresh").output == "mine")
            }
        }
    }

    @Test func unequalFilesAreAConflictThatIsSaid() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await two.run("docs", "ls").status == 0)
            #expect(try await two.run("docs", "put", file("theirs", in: house), "--offline").status == 0)
            #expect(try await one.run("docs", "put", file("mine", in: house)).status == 0)
            let sent = try await two.run("docs", "mkdir", "other")
            #expect(sent.status == 6 && sent.errors.contains("/Documents/s.txt"), "\(sent)")
            #expect(sent.errors.contains("has another version in the container. Both versions are kept."), "\(sent)")
            #expect(try await two.run("docs", "find", "s*").output == "/Documents/s.txt\n")
            #expect(try await two.run("docs", "cat", "s.txt").output == "mine")
            let conflicts = try await two.run("docs", "conflicts").output
            #expect(conflicts.contains("/Documents/s.txt"), "\(conflicts)")
            #expect(try await one.run("docs", "ls", "--fresh").output.contains("1 conflict"))
            #expect(try await one.run("docs", "resolve", "--keep-both", "s.txt").status == 0)
            let names = try await one.run("docs", "find", "s*").output.split(separator: "\n")
            #expect(names.count == 2 && names.contains { $0.contains("second's conflicted copy") }, "\(names)")
        }
    }
}
