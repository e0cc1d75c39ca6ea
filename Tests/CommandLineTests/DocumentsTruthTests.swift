import Foundation
import Testing

/// What the commands say of files is as it is, also where somebody holds one still, the plan is full, or the server is
/// silent.
@Suite(.serialized) struct DocumentsTruthTests {
    private func write(_ text: String, to file: String) throws { try write(Data(text.utf8), to: file) }

    private func write(_ data: Data, to file: String) throws {
        try FileManager.default.createDirectory(
            atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try data.write(to: URL(fileURLWithPath: file))
    }

    @Test func aPutThatIsInterruptedBeforeAnythingIsKeptSaysSo() async throws {
        try await withTenant { house in
            let pipe = house.folder + "/pipe"
            try #require(mkfifo(pipe, 0o600) == 0)
            // Somebody who never writes.
            let writer = open(pipe, O_RDWR)
            defer { close(writer) }
            let put = try house.person.start(["docs", "put", "-", "x"], input: pipe)
            try await eventually("it catches the signal") {
                let facts = FileManager.default.contents(atPath: "/proc/\(put.pid)/status") ?? Data()
                let caught = String(decoding: facts, as: UTF8.self).firstMatch(of: /SigCgt:\s*([0-9a-f]+)/)
                return caught.flatMap { UInt64($0.1, radix: 16) }.map { $0 >> (SIGINT - 1) & 1 == 1 } ?? false
            }
            put.signal(SIGINT)
            let ended = await put.outcome()
            #expect(
                ended.status == 128 + SIGINT && ended.errors == "nephos: Interrupted. Nothing was put.\n", "\(ended)")
            #expect(try await house.person.run("docs", "get", "x").status == 2)
        }
    }

    private func batch(_ outcome: Program.Outcome) throws -> String {
        String(try #require(outcome.output.firstMatch(of: /"batch":"([^"]+)"/)).1)
    }

    /// What waits is the removal of what was never anywhere else.
    @Test func aContainerIsNotInStepWhileTheRemovalOfWhatIsGoneWaits() async throws {
        try await withTenant { house in
            let (one, file) = (house.person, house.folder + "/a")
            try write("base", to: file)
            #expect(try await one.run("docs", "ls").status == 0)
            #expect(try await one.run("docs", "put", file, "--offline").status == 0)
            let batch = try batch(try await one.run("docs", "rm", "a", "--offline", "--json"))
            #expect(try await one.run("docs", "rm", "--for-good", batch, "--offline").status == 0)
            let status = try await one.run("docs", "status", "--offline")
            #expect(status.status == 6 && !status.output.hasPrefix("In s"), "\(status)")
            #expect(try await one.run("docs", "mkdir", "f").status == 0)
            let sent = try await one.run("docs", "status")
            #expect(sent.status == 0 && sent.output.hasPrefix("In sync"), "\(sent)")
        }
    }

    /// What was deleted here waits still when it is to be removed: another device has deleted it too, or changed it.
    @Test func whatIsRemovedForGoodIsGoneOrTheCommandSaysThatItIsNot() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two, file) = (house.person, try await house.anotherDevice("second"), house.folder + "/a")
            try write("base", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            #expect(try await two.run("docs", "ls").status == 0)
            let first = try batch(try await two.run("docs", "rm", "a", "--offline", "--json"))
            try write("later", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            var removing: Program.Running?
            try await house.whileDocumentsStandStill {
                removing = try two.start(["docs", "rm", "--for-good", first, "--timeout", "60"])
                try await Task.sleep(for: .seconds(3))
            }
            let kept = try #require(await removing?.outcome())
            #expect(kept.status != 0 && !kept.output.contains("Removed"), "\(kept)")
            #expect(kept.errors.contains("/Documents/a"), "\(kept)")
            #expect(try await two.run("docs", "cat", "a").output == "later")
            #expect(try await two.run("discard", "--all").status == 0)
            let second = try batch(try await two.run("docs", "rm", "a", "--offline", "--json"))
            #expect(try await two.run("docs", "rm", "--for-good", second, "--offline").status == 0)
            #expect(try await one.run("docs", "rm", "a").status == 0)
            let removed = try await two.run("docs", "mkdir", "f")
            #expect(removed.status == 0, "\(removed)")
            #expect(try await two.run("why").status == 0)
            #expect(!(try await one.run("docs", "trash")).output.contains("Documents/a"))
        }
    }

    @Test func aFileThatIsHeldStillAndSomebodyElseHasDeletedIsResumedAndNotRemoved() async throws {
        try await withTenant { house in
            let (one, two, file) = (house.person, try await house.anotherDevice("second"), house.folder + "/a")
            try write("base", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            #expect(try await one.run("docs", "pause", "a").status == 0)
            try write("mine", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            let batch = try batch(try await two.run("docs", "rm", "a", "--json"))
            let removed = try await one.run("docs", "rm", "--for-good", batch)
            #expect(removed.status == 1 && removed.errors.contains("paused"), "\(removed)")
            let resumed = try await one.run("docs", "resume", "a")
            #expect(resumed.status == 0 && resumed.output.contains("Resumed: /Documents/a."), "\(resumed)")
            #expect(try await two.run("docs", "cat", "a").output == "mine")
            #expect(try await one.run("docs", "resume", "none").status == 2)
        }
    }

    @Test func whatIsHeldStillIsNotWaitedFor() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            for (name, byte) in [("a", UInt8(7)), ("b", 8)] {
                try write(Data(repeating: byte, count: 60_000), to: house.folder + "/f/" + name)
            }
            #expect(try await one.run("docs", "put", "-r", house.folder + "/f").status == 0)
            #expect(try await two.run("docs", "ls").status == 0)
            #expect(try await two.run("docs", "pause", "f/a").status == 0)
            let named = try await two.run("docs", "download", "f/a", "--pin")
            #expect(named.status == 1 && named.errors.contains("nephos docs resume"), "\(named)")
            #expect(!(try await two.run("docs", "ls", "-d", "f/a", "--json")).output.contains(#""pinned":true"#))
            let folder = try await two.run("docs", "download", "f")
            #expect(
                folder.status == 0 && folder.output.contains("but for what is paused: /Documents/f/a."), "\(folder)")
        }
    }

    @Test func aLinkIsMovedOutWhereverItLeads() async throws {
        try await withTenant { house in
            let folder = house.folder + "/f"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try FileManager.default.createSymbolicLink(atPath: folder + "/link", withDestinationPath: "/proc/cpuinfo")
            #expect(try await house.person.run("docs", "put", "-r", folder).status == 0)
            let moved = try await house.person.run("docs", "get", "--move", "f/link", house.folder + "/got")
            #expect(moved.status == 0, "\(moved)")
            #expect(
                try FileManager.default.destinationOfSymbolicLink(atPath: house.folder + "/got") == "/proc/cpuinfo")
            #expect(try await house.person.run("docs", "ls", "f/link").status == 2)
        }
    }

    @Test func whatIsSaidOfAFileThatIsHeldStillIsSo() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, file) = (house.person, house.folder + "/a")
            for name in ["a", "b"] {
                try write("base", to: house.folder + "/" + name)
                #expect(try await one.run("docs", "put", house.folder + "/" + name).status == 0)
            }
            #expect(try await one.run("docs", "resume", "a").output == "Not paused: /Documents/a.\n")
            #expect(try await one.run("docs", "pause", "a").status == 0)
            let idle = try await one.run("docs", "status", "a")
            #expect(idle.status == 6 && idle.output.hasPrefix("In step, but for what is paused.\n"), "\(idle)")
            try write("mine", to: file)
            for _ in 0..<2 {
                let put = try await one.run("docs", "put", "--move", file)
                #expect(put.status == 0 && put.output.contains("It is kept here: its sync is paused."), "\(put)")
                #expect(put.output.contains("The local files stay: the server does not have them yet."), "\(put)")
            }
            // Its new name is sent.
            #expect(try await one.run("docs", "mv", "a", "c").output == "Moved to /Documents/c.\n")
            let part = try await one.run("docs", "status", "c")
            #expect(
                part.status == 6
                    && part.output.hasPrefix("In step, but for what is paused: changes of it wait here.\n"),
                "\(part)")
            #expect(part.output.contains("/Documents/c is paused, and what was changed of it here waits"), "\(part)")
            #expect(try await one.run("docs", "status", "b").status == 0)
            // What somebody keeps here is not why the server is silent.
            try await house.whileDocumentsStandStill {
                let silent = try await one.run("docs", "mkdir", "later", "--timeout", "1")
                #expect(silent.status == 0 && !silent.output.contains("paused"), "\(silent)")
                #expect(!silent.errors.contains("paused"), "\(silent)")
            }
            let dropped = try await one.run("docs", "resume", "--drop", "c", "b")
            #expect(
                dropped.output
                    == "Resumed: /Documents/c. Not paused: /Documents/b. What was changed here is kept: nephos why\n",
                "\(dropped)")
            for command in [["docs", "status"], ["docs", "status", "c"], ["status"], ["why"]] {
                let status = try await one.run(command)
                #expect(status.status == 6 && status.output.contains("dropped"), "\(status)")
                #expect(!status.output.contains("server rejected") && !status.output.contains("make room"), "\(status)")
            }
            #expect(try await one.run("discard", "--all").status == 0)
            #expect(try await one.run("docs", "pause", "c").status == 0)
            #expect(
                try await one.run("docs", "resume", "--drop", "c").output == "Resumed: /Documents/c.\n")
        }
    }

    @Test func whatConflictsStaysPausedAndTheOthersAreResumed() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            for name in ["a", "b"] {
                try write("base", to: house.folder + "/" + name)
                #expect(try await one.run("docs", "put", house.folder + "/" + name).status == 0)
            }
            #expect(try await one.run("docs", "pause", "a", "b").status == 0)
            try write("of one", to: house.folder + "/a")
            #expect(try await one.run("docs", "put", house.folder + "/a").status == 0)
            try write("of two", to: house.folder + "/a")
            #expect(try await two.run("docs", "put", "--overwrite", house.folder + "/a").status == 0)
            for others in [["b"], []] {
                let failed = try await one.run(["docs", "resume", "--fail-on-conflict", "a"] + others)
                #expect(failed.status == 1 && failed.errors.contains("it stays paused"), "\(failed)")
                #expect(failed.errors.contains("/Documents/a"), "\(failed)")
                #expect(failed.output == (others.isEmpty ? "" : "Resumed: /Documents/b.\n"), "\(failed)")
            }
            let status = try await one.run("docs", "status", "a")
            #expect(status.output.contains("another device has changed it too"), "\(status)")
            // Neither of two is all of it.
            let place = house.folder + "/got"
            let unsent = try await one.run("docs", "get", "--move", "a", place)
            #expect(unsent.status == 1 && unsent.errors.contains("nephos docs resume /Documents/a"), "\(unsent)")
            #expect(try await one.run("docs", "resume", "a").status == 6)
            let conflict = try await one.run("docs", "get", "--move", "a", place)
            #expect(conflict.status == 1 && conflict.errors.contains("nephos docs resolve /Documents/a"), "\(conflict)")
            #expect(!FileManager.default.fileExists(atPath: place))
        }
    }

    @Test func theNewestLeavesOrNothingDoes() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (file, place) = (house.folder + "/a", house.folder + "/got")
            try write("older", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            #expect(try await two.run("docs", "cat", "a").output == "older")
            try write("newer", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            try await house.whileDocumentsStandStill {
                let silent = try await two.run("docs", "get", "--move", "a", place, "--timeout", "1")
                #expect(silent.status == 5 && silent.errors.contains("nothing is moved"), "\(silent)")
                #expect(!FileManager.default.fileExists(atPath: place))
            }
            let got = try await two.run("docs", "get", "--move", "a", place, "--json")
            #expect(got.status == 0 && got.output.contains(#""state":"sent""#), "\(got)")
            #expect(try String(contentsOfFile: place, encoding: .utf8) == "newer")
            #expect(try await one.run("docs", "ls", "--fresh").output == "The folder is empty.\n")

            // A link that leads nowhere here is flushed, and moved, as it is.
            let link = house.folder + "/link"
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "nowhere")
            try FileManager.default.createDirectory(atPath: house.folder + "/f", withIntermediateDirectories: true)
            try FileManager.default.moveItem(atPath: link, toPath: house.folder + "/f/link")
            #expect(try await one.run("docs", "put", "-r", house.folder + "/f").status == 0)
            let moved = try await one.run("docs", "get", "--move", "f/link", link)
            #expect(moved.status == 0 && moved.output.hasPrefix("Moved to "), "\(moved)")
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link) == "nowhere")
            // What was put is what a link leads to.
            try write("linked", to: house.folder + "/nowhere")
            let put = try await one.run("docs", "put", "--move", link)
            #expect(put.status == 0 && put.errors.contains("is a link: it stays here"), "\(put)")
            #expect(FileManager.default.fileExists(atPath: link))
        }
    }

    @Test func whoeverEndsAPutHearsThatItIsKept() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/a")
            try write(Data((0..<1_500_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }), to: file)
            #expect(try await person.run("docs", "ls", "--fresh").status == 0)
            try await house.whileDocumentsStandStill {
                let put = try person.start(["docs", "put", file, "--timeout", "60"])
                try await eventually("It waits for the server.") {
                    let content = try? FileManager.default.contentsOfDirectory(atPath: house.folder + "/home/content")
                    return content?.contains { !$0.hasPrefix(".") } == true
                }
                try await Task.sleep(for: .seconds(2))
                put.signal(SIGINT)
                let outcome = await put.outcome()
                #expect(outcome.status == 130 && outcome.errors.contains("kept on this device"), "\(outcome)")
            }
            #expect(try await person.run("docs", "status").status == 0)
            #expect(try await person.run("docs", "ls").output.contains("1.5 MB"))
        }
    }

    @Test func whatThePlanLacksIsSaidToTheByte() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/a")
            #expect(try await house.nephos.run("plan", "save", "tiny", "10kB").status == 0)
            #expect(
                try await house.nephos.run("plan", "assign", "tiny", "--account", Household.accountName).status == 0)
            try write(Data(count: 8000), to: file)
            #expect(try await person.run("docs", "put", file).status == 0)
            try write(Data(count: 3000), to: house.folder + "/b")
            let refused = try await person.run("docs", "put", house.folder + "/b")
            #expect(
                refused.status == 3
                    && refused.errors.contains("10.0 kB for all that is stored (nephos storage). Delete"), "\(refused)")
            #expect(refused.errors.contains("it takes 3.8 kB, and the plan has"), "\(refused)")
            let why = try await person.run("why", "/Documents/b")
            #expect(why.output.contains("blocked by    quota") && why.output.contains("make room"), "\(why)")
            #expect(try await person.run("why", "--json").output.contains(#""blocker":"quota""#))

            // The line that it prints is the cure, once there is room.
            let line = try #require(why.output.firstMatch(of: /then: (nephos docs retry .*)/)).output.1
            #expect(try await person.run("docs", "retry", "nosuch").status == 2)
            #expect(try await person.run("docs", "retry").status == 3)
            #expect(try await house.nephos.run("plan", "save", "tiny", "1MB").status == 0)
            let retried = try await person.run(shell: String(line))
            #expect(retried.status == 0 && retried.output.contains("Sent again: /Documents/b."), "\(retried)")
            #expect(try await person.run("docs", "retry").output == "There is nothing to send again.\n")
            // The file goes on from the version that was sent again.
            try write(Data(repeating: 1, count: 3100), to: house.folder + "/b")
            let edited = try await person.run("docs", "put", house.folder + "/b")
            #expect(edited.status == 0, "\(edited)")
            let other = try await house.anotherDevice("other")
            #expect(try await other.run("docs", "ls").output.contains("3.1 kB"))
        }
    }

    @Test func aListMarksWhatThingsAreAndShowsWhatIsInPackages() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let folder = house.folder + "/files"
            try write("info", to: folder + "/tree/Film.bundle/Info.txt")
            try write("0123456789", to: folder + "/tree/Film.bundle/Contents/x.txt")
            let made = try await one.run(
                shell: """
                    cd \(folder)/tree && ln -s Info.txt Film.bundle/link && ln -s Film.bundle link && touch run &&
                    chmod +x run && mkdir folder
                    """)
            #expect(made.status == 0, "\(made)")
            #expect(try await one.run("docs", "mkdir", "tree").status == 0)
            #expect(try await one.run("docs", "put", "--package", folder + "/tree/Film.bundle", "tree").status == 0)
            #expect(try await one.run("docs", "put", "-r", folder + "/tree").status == 0)
            let list = try await two.run("docs", "ls", "-r", "--fresh").output
            for name in ["tree/", "tree/Film.bundle#", "tree/link@", "tree/run*", "tree/folder/"] {
                #expect(list.contains("/Documents/\(name) "), "\(list)")
            }
            let package = "tree/Film.bundle"
            let members = try await two.run("docs", "ls", package)
            #expect(members.status == 0, "\(members)")
            for name in ["Contents/", "Info.txt", "link@"] { #expect(members.output.contains(name), "\(members)") }
            #expect(!members.output.contains("x.txt"))
            #expect(try await two.run("docs", "ls", "-d", package).output.contains("Film.bundle#"))
            #expect(
                try await two.run("docs", "ls", "-r", package).output.contains(
                    "/Documents/tree/Film.bundle/Contents/x.txt"))
            let json = try await two.run("docs", "ls", "--json", package + "/Contents").output
            #expect(
                json.contains(#""kind":"file""#) && json.contains(#""name":"x.txt""#) && json.contains(#""size":10"#)
                    && json.contains(#""package":"/Documents/tree/Film.bundle""#), "\(json)")
            #expect(
                try await two.run("docs", "tree", package).output
                    == "/Documents/tree/Film.bundle#\n├── Contents/\n│   └── x.txt\n├── Info.txt\n└── link@\n")
            for command in ["ls", "tree", "cat", "get"] {
                let none = try await two.run("docs", command, package + "/none")
                #expect(none.status == 2 && none.errors.contains("package: /Documents/tree/Film.bundle"), "\(none)")
            }
            for command in [
                ["rm", package + "/Info.txt"], ["mv", package + "/Info.txt", "x"], ["cp", package + "/Info.txt", "x"],
                ["versions", package + "/Info.txt"], ["publish", package + "/Info.txt"],
            ] {
                let refused = try await two.run(["docs"] + command)
                #expect(
                    refused.status == 64 && refused.errors.contains("A package is one item"), "\(command): \(refused)")
            }
            for member in ["Contents", "link"] {
                let wrong = try await two.run("docs", "cat", package + "/" + member)
                #expect(wrong.status == 64 && wrong.errors.contains("package: /Documents/tree/Film.bundle"), "\(wrong)")
            }
            let got = folder + "/got"
            #expect(
                try await two.run("docs", "get", package + "/Contents/x.txt", got).output == "Got \(got) (10 B).\n")
            #expect(try String(contentsOfFile: got, encoding: .utf8) == "0123456789")
            #expect(try await two.run("docs", "get", package + "/Contents/x.txt", "-").output == "0123456789")
            #expect(try await two.run("docs", "get", package + "/Contents", folder + "/gots").status == 64)
            #expect(try await two.run("docs", "get", "--move", package + "/Info.txt", got).status == 64)
            #expect(
                try await two.run("docs", "get", "-r", package + "/Contents", folder + "/gots").output
                    == "Got 1 file (10 B).\n")
            #expect(try await two.run(shell: "diff -r \(folder)/gots \(folder)/tree/Film.bundle/Contents").status == 0)
            // What cannot be in its place keeps no other member from its own.
            for name in ["a", "b", "c"] { try write(name, to: folder + "/Two.bundle/in/" + name) }
            #expect(try await two.run("docs", "put", "--package", folder + "/Two.bundle").status == 0)
            try write("in the way", to: folder + "/some/in/b/x")
            let some = try await two.run("docs", "get", "-r", "Two.bundle/in", folder + "/some")
            #expect(some.status == 64 && some.output == "Got 2 files (2 B).\n", "\(some)")
            #expect(some.errors.contains("/Documents/Two.bundle/in/b"), "\(some)")
            #expect(try String(contentsOfFile: folder + "/some/in/c", encoding: .utf8) == "c")
        }
    }

    @Test func whatIsSaidOfAnItemIsSetAndShown() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let file = house.folder + "/a.txt"
            try write("x", to: file)
            #expect(try await one.run("docs", "put", file).status == 0)
            let set = try await one.run(
                "docs", "set", "a.txt", "--tag", "red", "--tag", "blue", "--favourite", "3", "--attribute",
                "user.colour=dark=red", "--attribute-data", "user.mark=AAH/", "--do-not-back-up", "yes", "--created",
                "2001-02-03T04:05:06Z")
            #expect(set.output == "Set for /Documents/a.txt.\n", "\(set)")
            #expect(try await two.run("docs", "ls", "--fresh").status == 0)
            let shown = try await two.run("docs", "attributes", "a.txt")
            for line in [
                "tags          red, blue", "favourite     3", "backed up     no", "user.colour=dark=red",
                "user.mark=base64 AAH/", "user.nephos.do-not-back-up=1",
            ] {
                #expect(shown.output.components(separatedBy: "\n").contains(line), "\(shown)")
            }
            let json = try await two.run("docs", "attributes", "a.txt", "--json").output
            #expect(json.contains(#""created":981173106000"#) && json.contains(#""do_not_back_up":true"#), "\(json)")
            #expect(json.contains(#"{"name":"user.mark","value":"AAH/"}"#), "\(json)")
            #expect(try await two.run("docs", "find", "--where", "ANY tags == 'blue'").output.contains("a.txt"))
            let row = try await two.run("docs", "ls", "--json").output
            #expect(row.contains(#""tags":["red","blue"]"#) && row.contains(#""favourite":3"#), "\(row)")

            let less = try await two.run(
                "docs", "set", "a.txt", "--untag", "red", "--favourite", "no", "--remove-attribute", "user.mark",
                "--do-not-back-up", "no")
            #expect(less.status == 0, "\(less)")
            #expect(try await one.run("docs", "ls", "--fresh").status == 0)
            let rest = try await one.run("docs", "attributes", "a.txt")
            #expect(
                rest.output.contains("tags          blue\n") && rest.output.contains("favourite     -\n"), "\(rest)")
            #expect(!rest.output.contains("user.mark") && rest.output.contains("backed up     yes\n"), "\(rest)")
            for (arguments, status) in [
                (["a.txt"], 64), (["a.txt", "--attribute", "x"], 64), (["a.txt", "--attribute", "x="], 64),
                (["a.txt", "--attribute-data", "x=?"], 64), (["a.txt", "--created", "soon"], 64),
                (["none", "--tag", "x"], 2), (["a.txt", "none", "--tag", "x"], 2),
                (["a.txt", "--tag", String(repeating: "x", count: 129)], 3),
            ] as [([String], Int32)] {
                let outcome = try await one.run(["docs", "set"] + arguments)
                #expect(outcome.status == status, "\(arguments): \(outcome)")
            }
            // None of several was changed.
            #expect(try await one.run("docs", "attributes", "a.txt").output.contains("tags          blue\n"))

            // What no disk takes is said, and the file is there.
            #expect(try await one.run("docs", "set", "a.txt", "--attribute", "user.=x").status == 0)
            let got = try await one.run("docs", "get", "a.txt", house.folder + "/got", "--json")
            #expect(got.status == 0 && got.output.contains(#""unkept_attributes":["user."#), "\(got)")
            #expect(got.errors.contains("the disk did not take the extended attribute user. of"), "\(got)")
            // And nothing is trashed of which all is here alone.
            let moved = try await one.run("docs", "get", "--move", "a.txt", house.folder + "/moved")
            #expect(moved.status == 1 && moved.errors.contains("it stays in the container"), "\(moved)")
            #expect(try await two.run("docs", "ls", "--fresh").output.contains("a.txt"))
        }
    }

    @Test func aSignOutSaysWhatStaysHereUnsent() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/film")
            try write("content", to: file)
            #expect(try await person.run("docs", "ls").status == 0)
            try await house.whileDocumentsStandStill {
                #expect(try await person.run("docs", "put", file, "--offline").status == 0)
                let ended = try await person.run("sign-out", "--keep-unsent")
                #expect(
                    ended.output.contains(
                        "1 change of ann was never sent, and waits here until this account signs in again."),
                    "\(ended)")
                #expect(try await person.run("status", "--json").output.contains(#""unsent":1"#))
                for command in ["status", "why"] {
                    let said = try await person.run(command)
                    #expect(
                        said.status != 0 && (said.output + said.errors).contains("1 change of ann was never sent"),
                        "\(said)")
                }
            }
        }
    }

    @Test func aSignOutSaysWhatWaits() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/film")
            try write(String(repeating: "0123456789", count: 1_000), to: file)
            #expect(try await person.run("docs", "ls").status == 0)
            try await house.whileDocumentsStandStill {
                #expect(try await person.run("docs", "put", file, "--offline").status == 0)
                let refused = try await person.run("sign-out")
                #expect(refused.status == 1 && refused.errors.contains("/Documents/film (10.0 kB)"), "\(refused)")
                let command = try #require(refused.errors.firstMatch(of: /send: (nephos docs status.*)/)).output.1
                // What it says is what helps.
                #expect(!command.contains("kv sync"))
                let json = try await person.run("sign-out", "--json")
                #expect(json.errors.contains(#""unsent":1"#) && !json.errors.contains("10.0 kB"), "\(json)")
            }
            // With the server there again, it is sent first.
            let signedOut = try await person.run("sign-out")
            #expect(signedOut.status == 0, "\(signedOut)")
        }
    }
}
