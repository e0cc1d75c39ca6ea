import Foundation
import Testing

/// Files of two devices: no command undoes what the other device, or the person here, has done.
@Suite(.serialized) struct LocalFileCommandTests {
    private func write(_ text: String, to file: String) throws {
        try FileManager.default.createDirectory(
            atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
    }

    private func text(_ file: String) -> String? {
        FileManager.default.contents(atPath: file).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Two devices that have `doc.txt` and a folder of files each, alike.
    private func withDevices(
        _ body: (_ one: Program, _ two: Program, _ mine: String, _ theirs: String) async throws -> Void
    ) async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (mine, theirs) = (house.folder + "/one", house.folder + "/two")
            for name in ["doc.txt", "f/a", "f/b", "f/sub/c"] { try write("base " + name, to: mine + "/" + name) }
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            #expect(try await one.run("docs", "put", "-r", mine + "/f").status == 0)
            try FileManager.default.createDirectory(atPath: theirs, withIntermediateDirectories: true)
            #expect(try await two.run("docs", "get", "doc.txt", theirs).status == 0)
            #expect(try await two.run("docs", "get", "-r", "f", theirs).status == 0)
            #expect(text(theirs + "/f/sub/c") == "base f/sub/c")
            try await body(one, two, mine, theirs)
        }
    }

    // MARK: Put

    @Test func aPutOverAnotherDevicesVersionIsAConflict() async throws {
        try await withDevices { one, two, mine, theirs in
            try write("two hours of work", to: mine + "/doc.txt")
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            try write("a typo", to: theirs + "/doc.txt")
            let put = try await two.run("docs", "put", theirs + "/doc.txt")
            #expect(put.status == 6 && put.errors.contains("nephos docs resolve /Documents/doc.txt"), "\(put)")
            #expect(try await one.run("docs", "cat", "doc.txt").output == "two hours of work")
            let versions = try await two.run("docs", "conflicts", "doc.txt", "--json")
            #expect(
                versions.output.contains(#""content":"6 bytes""#)
                    && versions.output.contains(#""replacement":"17 bytes""#), "\(versions)")
            #expect(text(theirs + "/doc.txt") == "a typo")
            // The one that lost is put again: it stays one conflict.
            try write("a typo more", to: theirs + "/doc.txt")
            let again = try await two.run("docs", "put", theirs + "/doc.txt", "--json")
            #expect(again.status == 6 && again.output.contains(#""conflicts":["#), "\(again)")
            #expect(try await one.run("docs", "ls", "doc.txt", "--json").output.contains(#""conflicts":1"#))
        }
    }

    @Test func aPutOfAnUnknownConflictIsToldWhenItIsSent() async throws {
        try await withDevices { one, two, mine, theirs in
            try write("a typo", to: theirs + "/doc.txt")
            #expect(try await two.run("docs", "put", theirs + "/doc.txt", "--offline").status == 0)
            try write("two hours of work", to: mine + "/doc.txt")
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            let sent = try await two.run("docs", "mkdir", "new")
            #expect(sent.status == 6 && sent.errors.contains("conflict: /Documents/doc.txt"), "\(sent)")
            #expect(try await two.run("docs", "cat", "doc.txt").output == "two hours of work")
        }
    }

    @Test func anUnchangedFileIsNotPutOverANewerVersion() async throws {
        try await withDevices { one, two, mine, theirs in
            try write("newer", to: mine + "/doc.txt")
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            let put = try await two.run("docs", "put", theirs + "/doc.txt")
            #expect(put.status == 0 && put.output.contains("newer in the container"), "\(put)")
            #expect(try await two.run("docs", "cat", "doc.txt").output == "newer")
            // Changed here alone, it is a new version.
            #expect(try await two.run("docs", "get", "doc.txt", theirs).status == 0)
            try write("newest", to: theirs + "/doc.txt")
            #expect(try await two.run("docs", "put", theirs + "/doc.txt").status == 0)
            #expect(try await one.run("docs", "cat", "doc.txt").output == "newest")
        }
    }

    @Test func aFileThatWasNeverGotIsAConflictUnlessEqual() async throws {
        try await withDevices { one, two, _, theirs in
            let other = theirs + "/other/doc.txt"
            try write("base doc.txt", to: other)
            let equal = try await two.run("docs", "put", other)
            #expect(equal.status == 0 && equal.output == "Unchanged: /Documents/doc.txt.\n", "\(equal)")
            try write("mine", to: theirs + "/third/doc.txt")
            let put = try await two.run("docs", "put", theirs + "/third/doc.txt")
            #expect(put.status == 6 && put.errors.contains("conflict: /Documents/doc.txt"), "\(put)")
            #expect(try await one.run("docs", "cat", "doc.txt").output == "base doc.txt")
            try write("over", to: theirs + "/fourth/doc.txt")
            let over = try await two.run("docs", "put", "--overwrite", theirs + "/fourth/doc.txt")
            #expect(over.status == 0 && !over.errors.contains("newer"), "\(over)")
            #expect(try await one.run("docs", "cat", "doc.txt").output == "over")
        }
    }

    @Test func whatWasDeletedThereIsNotPutAgain() async throws {
        try await withDevices { one, two, _, theirs in
            #expect(try await one.run("docs", "rm", "-r", "f/a", "f/sub").status == 0)
            let put = try await two.run("docs", "put", "-r", theirs + "/f")
            #expect(put.status == 6 && put.errors.contains(theirs + "/f/a"), "\(put)")
            #expect(put.errors.contains(theirs + "/f/sub/c") && put.output.contains("1 changed") == false, "\(put)")
            #expect(try await two.run("docs", "ls", "f/a").status == 2)
            #expect(try await two.run("docs", "ls", "f/sub").status == 2)
            // Neither is an edit of it, which stays here.
            try write("edited", to: theirs + "/f/a")
            #expect(try await two.run("docs", "put", "-r", theirs + "/f").status == 6)
            #expect(try await two.run("docs", "ls", "f/a").status == 2)
            #expect(try await two.run("docs", "put", "-r", "--overwrite", theirs + "/f").status == 0)
            #expect(try await one.run("docs", "cat", "f/a").output == "edited")
            #expect(try await one.run("docs", "cat", "f/sub/c").output == "base f/sub/c")
        }
    }

    @Test func whatWasMovedThereIsPutWhereItIs() async throws {
        try await withDevices { one, two, _, theirs in
            #expect(try await one.run("docs", "mv", "f/a", "f/renamed").status == 0)
            #expect(try await one.run("docs", "mv", "f/sub", "moved").status == 0)
            try write("edited", to: theirs + "/f/a")
            try write("new", to: theirs + "/f/sub/new")
            let put = try await two.run("docs", "put", "-r", theirs + "/f")
            #expect(put.status == 0 && put.errors.contains("/Documents/f/renamed"), "\(put)")
            let names = try await one.run("docs", "tree", "--json").output
            #expect(!names.contains("/Documents/f/a\"") && !names.contains("/Documents/f/sub"), "\(names)")
            #expect(try await one.run("docs", "cat", "f/renamed").output == "edited")
            #expect(try await one.run("docs", "cat", "moved/new").output == "new")
        }
    }

    @Test func aNewFolderIsNotPutIntoOneThatWasMovedThere() async throws {
        try await withDevices { one, _, mine, _ in
            #expect(try await one.run("docs", "mv", "f", "f-2025").status == 0)
            try FileManager.default.removeItem(atPath: mine + "/f")
            try write("new", to: mine + "/f/a")
            try write("new", to: mine + "/f/sub/c")
            let put = try await one.run("docs", "put", "-r", mine + "/f")
            #expect(put.status == 0, "\(put)")
            for name in ["a", "sub/c"] {
                #expect(try await one.run("docs", "cat", "f-2025/" + name).output == "base f/" + name)
                #expect(try await one.run("docs", "cat", "f/" + name).output == "new")
            }
            #expect(try await one.run("docs", "ls", "f/b").status == 2)
        }
    }

    @Test func anotherFileIsNotPutOverOneThatWasMovedThere() async throws {
        try await withDevices { one, two, _, theirs in
            #expect(try await one.run("docs", "mv", "f/a", "f/renamed").status == 0)
            // As an editor saves it, or as another that took its place.
            try write("another", to: theirs + "/f/a.new")
            #expect(rename(theirs + "/f/a.new", theirs + "/f/a") == 0)
            let put = try await two.run("docs", "put", "-r", theirs + "/f")
            #expect(put.status == 6 && put.errors.contains(theirs + "/f/a"), "\(put)")
            #expect(put.errors.contains("/Documents/f/renamed") && put.errors.contains("--overwrite"), "\(put)")
            #expect(try await two.run("docs", "cat", "f/renamed").output == "base f/a")
            #expect(try await two.run("docs", "put", theirs + "/f/a", "f/renamed").status == 0)
            #expect(try await one.run("docs", "cat", "f/renamed").output == "another")
        }
    }

    @Test func theNextFileOfAMovedOnesNameIsAnother() async throws {
        try await withDevices { one, _, mine, _ in
            try write("first", to: mine + "/inbox/scan")
            #expect(try await one.run("docs", "put", "-r", "--move", mine + "/inbox").status == 0)
            #expect(text(mine + "/inbox/scan") == nil)
            #expect(try await one.run("docs", "mv", "inbox/scan", "archived").status == 0)
            try write("second", to: mine + "/inbox/scan")
            let put = try await one.run("docs", "put", "-r", "--move", mine + "/inbox")
            #expect(put.status == 0 && text(mine + "/inbox/scan") == nil, "\(put)")
            #expect(try await one.run("docs", "cat", "archived").output == "first")
            #expect(try await one.run("docs", "cat", "inbox/scan").output == "second")
            // Nor is it put again as what was deleted.
            #expect(try await one.run("docs", "rm", "inbox/scan").status == 0)
            try write("third", to: mine + "/inbox/scan")
            #expect(try await one.run("docs", "put", "-r", "--move", mine + "/inbox").status == 0)
            #expect(try await one.run("docs", "cat", "inbox/scan").output == "third")
        }
    }

    @Test func aFileThatIsNotMovedAwayStaysForItsReason() async throws {
        try await withDevices { one, two, mine, theirs in
            try write("newer", to: mine + "/doc.txt")
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            let outdated = try await two.run("docs", "put", "--move", theirs + "/doc.txt")
            #expect(outdated.errors.contains("stays here: /Documents/doc.txt is newer"), "\(outdated)")
            try write("mine", to: theirs + "/doc.txt")
            let conflict = try await two.run("docs", "put", "--move", theirs + "/doc.txt")
            #expect(conflict.status == 6 && conflict.errors.contains("is in conflict."), "\(conflict)")
            #expect(text(theirs + "/doc.txt") == "mine")
            let again = try await two.run("docs", "put", theirs + "/doc.txt")
            #expect(again.status == 6, "\(again)")
            #expect(again.output.hasPrefix("Not put: /Documents/doc.txt is in conflict."), "\(again)")
        }
    }

    @Test func aFileIsPutUnderTwoNamesEachDay() async throws {
        try await withDevices { one, _, mine, _ in
            for day in ["1", "2", "3"] {
                try write("day " + day, to: mine + "/log")
                for name in ["log-latest", "log-0" + day] {
                    let put = try await one.run("docs", "put", mine + "/log", name)
                    #expect(put.status == 0 && !put.errors.contains("conflict"), "\(put)")
                }
            }
            #expect(try await one.run("docs", "cat", "log-latest").output == "day 3")
            #expect(try await one.run("docs", "cat", "log-01").output == "day 1")
        }
    }

    @Test func anotherDevicesExecutableBitArrives() async throws {
        try await withDevices { one, two, mine, theirs in
            func isExecutable(_ device: Program) async throws -> Bool {
                try await device.run("docs", "ls", "doc.txt", "--json").output.contains(#""executable":true"#)
            }
            #expect(chmod(mine + "/doc.txt", 0o755) == 0)
            #expect(try await one.run("docs", "put", mine + "/doc.txt").status == 0)
            #expect(try await isExecutable(one))
            // The file is as it was got: neither its bytes nor its bit is a change.
            #expect(try await two.run("docs", "put", theirs + "/doc.txt").status == 0)
            #expect(try await isExecutable(two))
            try write("edited", to: theirs + "/doc.txt")
            #expect(try await two.run("docs", "put", theirs + "/doc.txt").status == 0)
            #expect(try await isExecutable(two))
            #expect(try await two.run("docs", "get", "doc.txt", theirs).status == 0)
            #expect(access(theirs + "/doc.txt", X_OK) == 0 && text(theirs + "/doc.txt") == "edited")
            // A bit that was changed here is sent, and no get takes it back.
            #expect(chmod(theirs + "/doc.txt", 0o644) == 0)
            #expect(try await two.run("docs", "get", "doc.txt", theirs).status == 0)
            #expect(access(theirs + "/doc.txt", X_OK) != 0)
            #expect(try await two.run("docs", "put", theirs + "/doc.txt").status == 0)
            #expect(try await !isExecutable(one))
        }
    }

    @Test func aPutSaysHowMuchWasChanged() async throws {
        try await withDevices { _, two, _, theirs in
            try write("edited", to: theirs + "/f/a")
            let put = try await two.run("docs", "put", "-r", theirs + "/f")
            #expect(put.output == "Put 5 items: 1 changed, 4 unchanged (6 B to send).\n", "\(put)")
            let none = try await two.run("docs", "put", "-r", theirs + "/f", "--json")
            #expect(none.output.contains(#""changed":0"#) && none.output.contains(#""unchanged":5"#), "\(none)")
        }
    }

    // MARK: Get

    @Test func aGetLeavesWhatWasChangedHere() async throws {
        try await withDevices { one, two, mine, theirs in
            try write("from one", to: mine + "/f/b")
            #expect(try await one.run("docs", "put", "-r", mine + "/f").status == 0)
            try write("an edit", to: theirs + "/f/a")
            try write("not got", to: theirs + "/f/new")
            let get = try await two.run("docs", "get", "-r", "f", theirs)
            #expect(get.status == 6 && get.errors.contains(theirs + "/f/a"), "\(get)")
            #expect(text(theirs + "/f/a") == "an edit" && text(theirs + "/f/new") == "not got")
            #expect(text(theirs + "/f/b") == "from one")
            let update = try await two.run("docs", "get", "-r", "--update", "f", theirs)
            #expect(update.status == 0 && text(theirs + "/f/a") == "an edit", "\(update)")
            let over = try await two.run("docs", "get", "-r", "--overwrite", "f", theirs)
            #expect(over.status == 0 && text(theirs + "/f/a") == "base f/a", "\(over)")
        }
    }

    @Test func aGetOfOneFileLeavesAnother() async throws {
        try await withDevices { _, two, _, theirs in
            let place = theirs + "/other/doc.txt"
            try write("another", to: place)
            let get = try await two.run("docs", "get", "doc.txt", place)
            #expect(get.status == 6 && get.errors.contains("--overwrite") && text(place) == "another", "\(get)")
            #expect(try await two.run("docs", "get", "--overwrite", "doc.txt", place).status == 0)
            #expect(text(place) == "base doc.txt")
            let again = try await two.run("docs", "get", "doc.txt", place)
            #expect(again.status == 0 && again.output.hasPrefix("Up to date"), "\(again)")
        }
    }

    @Test func aGetMovesFilesAsTheirItemsWere() async throws {
        try await withDevices { one, two, _, theirs in
            #expect(try await one.run("docs", "mv", "f/a", "f/renamed").status == 0)
            try write("an edit", to: theirs + "/f/a")
            let get = try await two.run("docs", "get", "-r", "f", theirs)
            #expect(get.status == 6 && get.errors.contains("moved, as in the container"), "\(get)")
            #expect(text(theirs + "/f/a") == nil && text(theirs + "/f/renamed") == "an edit")
            #expect(try await two.run("docs", "put", "-r", theirs + "/f").status == 0)
            #expect(try await one.run("docs", "cat", "f/renamed").output == "an edit")
        }
    }

    // MARK: Compare

    @Test func aDiffSaysWhatDiffers() async throws {
        try await withDevices { one, two, mine, theirs in
            let same = try await two.run("docs", "diff", "-r", theirs + "/f")
            #expect(same.status == 0 && same.output == "Nothing differs: 5 are the same.\n", "\(same)")
            try write("from one", to: mine + "/f/b")
            try write("more", to: mine + "/f/more")
            #expect(try await one.run("docs", "put", "-r", mine + "/f").status == 0)
            #expect(try await one.run("docs", "rm", "f/sub/c").status == 0)
            try write("edited", to: theirs + "/f/a")
            try write("new", to: theirs + "/f/new")
            let diff = try await two.run("docs", "diff", "-r", theirs + "/f")
            let lines = Set(diff.output.split(separator: "\n").map(String.init))
            let expected = [
                "changed here: \(theirs)/f/a and /Documents/f/a", "changed there: \(theirs)/f/b and /Documents/f/b",
                "only here: \(theirs)/f/new and /Documents/f/new", "only there: /Documents/f/more",
                "deleted there: \(theirs)/f/sub/c and /Documents/f/sub/c",
            ]
            #expect(diff.status == 6 && lines.isSuperset(of: expected), "\(diff)")
            let put = try await two.run("docs", "put", "-r", "--dry-run", theirs + "/f", "--json")
            #expect(put.status == 0 && put.output.contains(#""state":"changed_here""#), "\(put)")
            let get = try await two.run("docs", "get", "-r", "--dry-run", "f", theirs)
            #expect(get.status == 6 && get.output.contains("changed there: \(theirs)/f/b"), "\(get)")
            #expect(text(theirs + "/f/b") == "base f/b" && text(theirs + "/f/more") == nil)
            #expect(try await two.run("docs", "ls", "f/new").status == 2)
        }
    }
}
