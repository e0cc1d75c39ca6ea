import Foundation
import NephosSimulation
import Testing

/// What takes room, and what makes it, as a person does it from a shell.
@Suite(.serialized) struct StorageTests {
    @Test func whatTakesRoomIsShownAndDeleted() async throws {
        try await withTenant { house in
            let person = house.person
            let file = house.folder + "/file"
            try Data(repeating: 7, count: 100_000).write(to: URL(fileURLWithPath: file))
            for path in ["letter", "/cache/a"] {
                if path.hasPrefix("/") { #expect(try await person.run("docs", "mkdir", "/cache").status == 0) }
                #expect(try await person.run("docs", "put", file, path).status == 0)
            }
            let shown = try await person.run("storage")
            #expect(shown.output.contains("HIDDEN") && shown.output.contains("default"), "\(shown)")
            let report = try await containers(person)
            #expect(report["class"] as? String == "documents" && report["counts_on_plan"] as? Bool == true)
            for part in ["documents_bytes", "hidden_bytes"] {
                #expect((report[part] as? Int ?? 0) >= 100_000, "\(report)")
            }
            // It is alike, and counts once.
            #expect((report["counted_bytes"] as? Int ?? 0) < 150_000, "\(report)")

            // Nobody is asked where nobody can answer; hidden data goes as a whole.
            #expect(try await person.run("storage", "delete", "--hidden").status == 64)
            let part = try await person.run("storage", "delete", "--documents", "/cache/a", "--yes")
            #expect(part.status == 64 && part.errors.contains("as a whole"), "\(part)")
            #expect(try await person.run("storage", "delete", "--documents", "no", "--yes").status == 2)
            let hidden = try await person.run("storage", "delete", "--hidden", "--now", "--yes")
            #expect(hidden.output.hasPrefix("Removed for good: 1"), "\(hidden)")
            let letter = try await person.run("storage", "delete", "--documents", "letter", "--yes")
            #expect(letter.output.contains("nephos docs undo"), "\(letter)")
            #expect((try await containers(person)["trash_bytes"] as? Int ?? 0) >= 100_000)
            let trash = try await person.run("storage", "delete", "--trash", "--yes")
            #expect(trash.output.hasPrefix("Removed for good: 100"), "\(trash)")
            let nothing = try await person.run("storage", "delete", "--trash", "--yes")
            #expect(nothing.output == "Nothing lies in the trash.\n", "\(nothing)")
        }
    }

    @Test func formerVersionsAreRemovedBeforeTheirTime() async throws {
        try await withTenant { house in
            let person = house.person
            func put(_ text: String, _ path: String) async throws {
                let file = house.folder + "/file"
                try Data(text.utf8).write(to: URL(fileURLWithPath: file))
                #expect(try await person.run("docs", "put", file, path).status == 0)
            }
            func versions(_ path: String) async throws -> [String] {
                let text = try await person.run("docs", "versions", path, "--json").output
                let rows = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]]
                return (rows ?? []).compactMap { $0["version"] as? String }
            }
            for text in ["1", "2", "3", "4"] { try await put(text, "x") }
            for text in ["1", "2"] { try await put(text, "y") }
            let all = try await versions("x")
            try #require(all.count == 4)
            let removed = try await person.run("docs", "versions", "x", "--remove", all[3], all[2])
            #expect(removed.output == "Removed 2 versions of /Documents/x.\n", "\(removed)")
            #expect(try await versions("x") == Array(all.prefix(2)))
            // What is current stays; nobody is asked where nobody can answer.
            #expect(try await person.run("docs", "versions", "x", "--remove", all[0]).status == 1)
            #expect(try await person.run("docs", "versions", "x", "--remove", "no").status == 64)
            // What is not there was not removed, and nothing else is then.
            for gone in [all[2], String(repeating: "1a", count: 16)] {
                let unknown = try await person.run("docs", "versions", "x", "--remove", all[1], gone)
                #expect(unknown.status == 2 && unknown.output.isEmpty && unknown.errors.contains(gone), "\(unknown)")
            }
            #expect(try await versions("x") == Array(all.prefix(2)))
            let kept = try await person.run("docs", "versions", "x", "--remove", all[2], "--offline")
            #expect(kept.status == 0 && kept.output.contains("kept here"), "\(kept)")
            #expect(try await person.run("docs", "versions", "nowhere", "--others", "--yes").status == 2)
            #expect(try await person.run("docs", "versions", "x", "--others").status == 64)
            let others = try await person.run("docs", "versions", "x", "--others", "--yes")
            #expect(others.output == "Removed the other versions of /Documents/x.\n", "\(others)")
            #expect(try await versions("x") == [all[0]])
            let none = try await person.run("docs", "versions", "x", "--others", "--yes")
            #expect(none.output == "There are no other versions of /Documents/x.\n", "\(none)")
            #expect(try await person.run("storage", "delete", "--versions").status == 64)
            let stored = try await person.run("storage", "delete", "--versions", "--all", "--yes")
            #expect(stored.status == 0 && stored.output.hasPrefix("Removed the former versions from "), "\(stored)")
            #expect(try await versions("y").count == 1)
            #expect(try await containers(person)["version_bytes"] as? Int == 0)
        }
    }

    private func containers(_ person: Program) async throws -> [String: Any] {
        let text = try await person.run("storage", "--json").output
        let report = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        return try #require((report?["containers"] as? [[String: Any]])?.first)
    }

    @Test func theOperatorSaysWhatAContainerIs() async throws {
        try await withHousehold { house in
            try await house.begin()
            let saved = try await house.nephos.run(
                "container", "save", "TEST.photos", "--class", "stream", "--names", "bytes", "--json")
            #expect(saved.output.contains(#""class":"stream""#), "\(saved)")
            let listed = try await house.nephos.run("container", "list")
            #expect(listed.output.contains("TEST.photos") && listed.output.contains("each app"), "\(listed)")
            // What is not named stays: nobody else may write because somebody was made an administrator.
            let app = "TEST.notes"
            #expect(try await house.nephos.run("app", "create", app).status == 0)
            for more in [["--writer", app, "--trash-days", "3"], ["--administrator", Household.accountName], []] {
                let saved = try await house.nephos.run(["container", "save", "TEST.photos", "--json"] + more)
                #expect(
                    saved.output.contains(#""class":"stream""#) && saved.output.contains(#""names":"bytes""#),
                    "\(saved)")
                #expect(
                    saved.output.contains("\"writer\":\"\(app)\"") && saved.output.contains(#""trash_days":3"#),
                    "\(saved)")
            }
            let freed = try await house.nephos.run(
                "container", "save", "TEST.photos", "--no-writer", "--trash-days", "0", "--json")
            #expect(!freed.output.contains("writer") && freed.output.contains(#""trash_days":7"#), "\(freed)")
            #expect(freed.output.contains(Household.accountName), "\(freed)")
            #expect(try await house.nephos.run("container", "save", "photos").status == 64)
            #expect(try await house.nephos.run("container", "save", "TEST.photos", "--class", "film").status == 64)
        }
    }
}
