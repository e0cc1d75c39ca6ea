import Foundation
import NephosCore
import NephosSimulation
import Testing

/// The files of a container, as a person works on them from a shell.
@Suite(.serialized) struct DocumentsCommandTests {
    private func write(_ data: Data, to file: String) throws {
        try FileManager.default.createDirectory(
            atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try data.write(to: URL(fileURLWithPath: file))
    }

    private func write(_ text: String, to file: String) throws { try write(Data(text.utf8), to: file) }

    @Test func whatIsCopiedRestoredAndReadInPartIsSaidAsItIs() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, folder) = (house.person, house.folder + "/files")
            try write("0123456789", to: folder + "/tree/a.txt")
            try write("local", to: folder + "/tree/build.nosync/b")
            try write("local", to: folder + "/tree/sub/c.nosync")
            let put = try await person.run("docs", "put", "-r", folder + "/tree")
            #expect(put.status == 0, "\(put.errors)")
            #expect(put.errors.contains("their names end in .nosync: 2 items"), "\(put.errors)")
            let named = try await person.run("docs", "put", folder + "/tree/sub/c.nosync")
            #expect(named.status == 64 && named.errors.contains("stays on its device"), "\(named.errors)")

            #expect(try await person.run("docs", "cat", "tree/a.txt", "--offset", "2", "--length", "3").output == "234")
            #expect(try await person.run("docs", "cat", "tree/a.txt", "--offset", "8").output == "89")
            #expect(try await person.run("docs", "cat", "tree/a.txt", "--offset", "99").output == "")
            #expect(try await person.run("docs", "cat", "tree/a.txt").output == "0123456789")

            #expect(try await person.run("docs", "cp", "tree", "copy").status == 64)
            let copy = try await person.run("docs", "cp", "-r", "tree", "copy")
            #expect(copy.output == "Copied 3 items.\n", "\(copy)")
            #expect(try await person.run("docs", "cp", "tree/a.txt", "copy/a.txt").status == 1)
            #expect(try await person.run("docs", "cp", "no", "copy").status == 2)
            #expect(try await person.run("docs", "cat", "copy/a.txt").output == "0123456789")

            try write("newer", to: folder + "/tree/a.txt")
            #expect(try await person.run("docs", "put", folder + "/tree/a.txt", "tree").status == 0)
            let versions = try await person.run("docs", "versions", "tree/a.txt")
            #expect(versions.output.contains("current") && versions.output.contains("nephos docs restore"))
            let first = try #require(versions.output.matches(of: /[0-9a-f]{32}/).last).output
            let line = try #require(versions.output.firstMatch(of: /nephos docs restore .*/)).output
            let restored = try await person.run(shell: String(line.replacing("VERSION", with: first)))
            #expect(restored.output == "Restored /Documents/tree/a.txt (10 B).\n", "\(restored)")
            #expect(try await person.run("docs", "cat", "tree/a.txt").output == "0123456789")
            let none = String(repeating: "1", count: 32)
            #expect(try await person.run("docs", "restore", "tree/a.txt", "--version-id", none).status == 2)
            #expect(try await person.run("docs", "restore", "tree/a.txt", "--version-id", "x").status == 64)
            #expect(try await person.run("docs", "resolve", "tree/a.txt", "--keep=current").status == 2)
        }
    }

    @Test func whatComesBackUnderAnotherNameIsSaid() async throws {
        try await withTenant { house in
            let one = house.person
            let file = house.folder + "/inner"
            try write("inner", to: file)
            #expect(try await one.run("docs", "mkdir", "I").status == 0)
            #expect(try await one.run("docs", "put", file, "I/inner").status == 0)
            #expect(try await one.run("docs", "rm", "-r", "I").status == 0)
            #expect(try await one.run("docs", "mkdir", "I").status == 0)
            let back = try await one.run("docs", "undo")
            #expect(back.status == 0 && back.output.contains("/Documents/I is /Documents/I 2 now"), "\(back)")
            #expect(try await one.run("docs", "cat", "I 2/inner").output == "inner")
        }
    }

    @Test func filesAreHeldStillAndLeaveASideOnceTheOtherHasThem() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(
                try await house.nephos.run(
                    "app", "create", "TEST.two", "--container", "TEST.two.a", "--container", "TEST.two.b"
                ).status == 0)
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let file = house.folder + "/file.bin"
            let long = String(repeating: "0123456789", count: 20_000)
            try write(long, to: file)
            let app = ["--app", "TEST.two"]
            let put = try await one.run(["docs", "put", "--move", file] + app)
            #expect(put.status == 0 && !FileManager.default.fileExists(atPath: file), "\(put)")
            #expect(try await one.run("docs", "put", "--move", "-", "x").status == 64)

            let copied = try await one.run(
                ["docs", "cp", "file.bin", "copy.bin", "--to-container", "TEST.two.b"] + app)
            #expect(copied.output == "Copied to /Documents/copy.bin in TEST.two.b.\n", "\(copied)")
            let moved = try await one.run(
                ["docs", "mv", "file.bin", "moved.bin", "--to-container", "TEST.two.b"] + app)
            #expect(moved.output == "Moved to /Documents/moved.bin in TEST.two.b.\n", "\(moved)")
            #expect(!(try await two.run(["docs", "ls"] + app).output.contains("file.bin")))
            let none = try await one.run(["docs", "cp", "x", "y", "--to-container", "TEST.none"] + app)
            #expect(none.status == 4, "\(none)")
            let other = app + ["--container", "TEST.two.b"]
            #expect(try await two.run(["docs", "cat", "moved.bin"] + other).output == long)
            #expect(try await two.run(["docs", "cat", "copy.bin"] + other).output == long)

            let got = try await two.run(["docs", "get", "--move", "moved.bin", file] + other)
            #expect(got.status == 0 && got.output.contains("nephos docs undo"), "\(got)")
            #expect(try String(contentsOfFile: file, encoding: .utf8) == long)
            #expect(!(try await one.run(["docs", "ls"] + other).output.contains("moved.bin")))
            #expect(try await two.run("docs", "get", "--move", "-r", "x").status == 64)

            try write("mine", to: house.folder + "/copy.bin")
            #expect(try await one.run(["docs", "pause", "copy.bin"] + other).status == 0)
            #expect(try await one.run(["docs", "pause", "copy.bin"] + other).status == 0)
            #expect(try await one.run(["docs", "pause", "/Documents"] + other).status == 64)
            let kept = try await one.run(["docs", "put", "--overwrite", house.folder + "/copy.bin"] + other)
            #expect(kept.status == 0 && kept.output.contains("its sync is paused"), "\(kept)")
            let status = try await one.run(["docs", "status"] + other)
            #expect(status.status == 6 && status.output.contains("/Documents/copy.bin is paused"), "\(status)")
            #expect(try await one.run(["why"] + app).output.contains("paused"))
            #expect(try await two.run(["docs", "cat", "copy.bin"] + other).output == long)
            #expect(
                try await one.run(["docs", "resume", "--drop", "--fail-on-conflict", "copy.bin"] + other).status == 64)
            let resumed = try await one.run(["docs", "resume", "--fail-on-conflict", "copy.bin"] + other)
            #expect(resumed.output == "Resumed: /Documents/copy.bin.\n", "\(resumed)")
            #expect(try await two.run(["docs", "cat", "copy.bin"] + other).output == "mine")
            try write("dropped", to: house.folder + "/copy.bin")
            #expect(try await one.run(["docs", "pause", "copy.bin"] + other).status == 0)
            #expect(try await one.run(["docs", "put", "--overwrite", house.folder + "/copy.bin"] + other).status == 0)
            let dropped = try await one.run(["docs", "resume", "--drop", "copy.bin"] + other)
            #expect(dropped.status == 0, "\(dropped)")
            #expect(try await one.run(["docs", "cat", "copy.bin"] + other).output == "mine")
            #expect(try await one.run(["why"] + app).output.contains("was dropped when the sync"))
        }
    }

    /// What is here of it was used longest ago, and the room is full of what was used lately.
    @Test func whatIsFetchedWithOthersStaysWithThemOrIsRefusedBeforeTheFirst() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            for (number, name) in ["a", "b", "c"].enumerated() {
                let file = house.folder + "/" + name
                try write(Data((0..<300_000).map { UInt8(truncatingIfNeeded: ($0 + number) &* 31 >> 3) }), to: file)
                #expect(try await one.run("docs", "put", "-p", file, "\(number < 2 ? "f" : "g")/\(name)").status == 0)
            }
            #expect(try await two.run("docs", "cache", "--limit", "700KB").status == 0)
            let refused = try await two.run("docs", "download", "f/a", "f/b", "g", "--timeout", "5")
            #expect(refused.status == 3 && refused.errors.contains("more than may stay"), "\(refused)")
            #expect(try await two.run("docs", "cache").output.hasPrefix("0 B of contents are here"))
            for path in ["f/a", "g/c"] { #expect(try await two.run("docs", "download", path).status == 0) }
            let got = try await two.run("docs", "download", "f", "--timeout", "5")
            #expect(got.status == 0 && got.output == "The contents are on this device.\n", "\(got)")
            let (f, g) = (try await two.run("docs", "ls", "f"), try await two.run("docs", "ls", "g"))
            #expect(!f.output.contains("not downloaded") && g.output.contains("not downloaded"), "\(f) \(g)")
        }
    }

    @Test func whatIsOnThisDeviceIsSaidFetchedKeptAndDropped() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (content, file) = (
                Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }), house.folder + "/x"
            )
            try write(content, to: file)
            // Of a length that nobody knows before.
            let put = try await one.run(shell: "nephos docs put -p - f/x < '\(file)'")
            #expect(put.status == 0, "\(put.errors)")
            let before = try await two.run("docs", "ls", "f", "--fresh")
            #expect(before.output.contains("not downloaded"), "\(before.output)")
            #expect(try await two.run("docs", "cat", "f/x", "--offline").status == 5)
            let got = try await two.run("docs", "download", "f")
            #expect(got.status == 0 && got.output == "The contents are on this device.\n", "\(got)")
            #expect(try await !two.run("docs", "ls", "f").output.contains("not downloaded"))
            #expect(try await two.run("docs", "status").output.contains("here       1 file (300.0 kB)"))
            try await house.whileDocumentsStandStill {
                let cat = try await two.run(shell: "nephos docs cat f/x --timeout 2 | cmp - '\(file)'")
                #expect(cat.status == 0, "\(cat)")
            }
            let dropped = try await two.run("docs", "evict", "f")
            #expect(dropped.output.hasPrefix("Dropped 1 content (300.0 kB)."), "\(dropped)")
            let nothing = try await two.run("docs", "evict", "f")
            #expect(nothing.status == 0 && nothing.output.hasPrefix("Nothing was dropped: no copy"), "\(nothing)")
            #expect(try await two.run("docs", "ls", "f", "--json").output.contains("notDownloaded"))
            #expect(try await two.run("docs", "cache", "--limit", "100KiB").status == 0)
            let refused = try await two.run("docs", "download", "f/x")
            #expect(refused.status == 3 && refused.errors.contains("Keep it downloaded"), "\(refused)")
            #expect(try await two.run("docs", "download", "f", "--pin").status == 0)
            #expect(try await two.run("docs", "ls", "f").output.contains("kept downloaded"))
            #expect(try await two.run("docs", "evict", "f/x").status == 1)
            let unpinned = try await two.run("docs", "evict", "f")
            #expect(unpinned.output.hasSuffix("No longer kept downloaded: 1 file or folder.\n"), "\(unpinned)")
            #expect(try await two.run("docs", "download", "f", "--pin").status == 0)
            #expect(try await two.run("docs", "download", "f", "--no-pin").status == 0)
            #expect(try await two.run("docs", "cache").output == "0 B of contents are here; 102.4 kB may be.\n")
            #expect(try await two.run("docs", "evict", "no").status == 2)
        }
    }

    @Test func aConflictIsDecidedByALineThatIsPrinted() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (file, theirs) = (house.folder + "/it's.txt", house.folder + "/second/it's.txt")
            try FileManager.default.createDirectory(
                atPath: house.folder + "/second", withIntermediateDirectories: true)
            for (round, kept) in ["of one", "of two", "of one"].enumerated() {
                try write("base \(round)", to: file)
                #expect(try await one.run("docs", "put", "--overwrite", file).status == 0)
                #expect(try await two.run("docs", "get", "--overwrite", "it's.txt", theirs).status == 0)
                try await house.whileDocumentsStandStill {
                    for (program, text, file) in [(one, "of one", file), (two, "of two", theirs)] {
                        try write(text, to: file)
                        #expect(try await program.run("docs", "put", file, "--offline").status == 0)
                    }
                }
                // The second sends what conflicts.
                for (program, code) in [(one, Int32(0)), (two, 6), (one, 0)] {
                    #expect(try await program.run("docs", "status").status == code)
                }
                let status = try await one.run("docs", "status").output
                #expect(status.contains("conflicts  1\n") && status.contains("nephos docs resolve"), "\(status)")
                let lines = try await one.run("conflicts").output.matches(of: /nephos docs resolve .*/).map(\.output)
                // As paths are typed elsewhere.
                #expect(try await one.run("conflicts", "it's.txt").output.contains(lines.first ?? "-"))
                try #require(lines.count == 3)
                for of in [[], ["it's.txt"], ["/"]] {
                    let listed = try await one.run(["docs", "conflicts"] + of)
                    #expect(listed.output.matches(of: /nephos docs resolve .*/).map(\.output) == lines, "\(listed)")
                }
                // Keep the one that lost; what took its place; both.
                let line = lines[[1, 0, 2][round]]
                let resolved = try await one.run(shell: String(line))
                #expect(resolved.status == 0, "\(line): \(resolved.errors)")
                #expect(try await one.run("docs", "cat", "it's.txt").output == kept)
                #expect(try await one.run("conflicts").output == "Nothing conflicts.\n")
                #expect(try await one.run("docs", "conflicts").output == "Nothing conflicts.\n")
            }
            let names = try await one.run("docs", "ls").output
            let copy = try #require(names.firstMatch(of: /it's \(second's conflicted copy [-0-9]+\)\.txt/)).output
            #expect(try await two.run("docs", "cat", String(copy)).output == "of two")
        }
    }

    @Test func whatWaitsAndWhyIsSaidWithItsExitCode() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/long")
            try write(Data((0..<1_500_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }), to: file)
            let empty = try await person.run("docs", "status")
            #expect(empty.status == 0 && empty.output.contains("0 files"), "\(empty)")
            #expect(try await person.run("docs", "status", "no").status == 2)
            #expect(try await person.run("docs", "mkdir", "f").status == 0)
            // None of these waits for it; but each may send some of it meanwhile.
            try await house.whileDocumentsStandStill {
                #expect(try await person.run("docs", "put", file, "long", "--offline").status == 0)
                let waiting = try await person.run("docs", "status", "--offline")
                #expect(waiting.status == 6, "\(waiting)")
                #expect(waiting.output.contains("waiting    1 (1.5 MB to be sent)"), "\(waiting)")
                #expect(waiting.output.contains("/Documents/long (1.5 MB) waits: "), "\(waiting)")
                #expect(try await person.run("docs", "status", "f", "--offline").status == 0)
                let json = try await person.run("docs", "status", "--offline", "--json").output
                #expect(json.contains(#""waiting_bytes":1500000"#) && json.contains(#""state":"pending""#), "\(json)")
            }

            // Other bytes: the first ones may have gone with any of these commands.
            try write(Data((0..<1_500_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 5) }), to: file)
            let start = ContinuousClock.now
            // It takes longer than it may stand still.
            let sent = try await person.run("docs", "put", file, "again", "--limit-rate", "150K", "--timeout", "1")
            #expect(sent.status == 0 && sent.output.hasPrefix("Put "), "\(sent)")
            #expect(!sent.output.contains("kept"), "\(sent)")
            #expect(start.duration(to: .now) > .seconds(5))
            #expect(try await person.run("docs", "status").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            #expect(try await person.run("docs", "mkdir", "later").status == 0)
            #expect(try await person.run("docs", "status").status == 5)
        }
    }

    @Test func whatTheServersDiskHasLostIsNamedAndPutAgain() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file) = (house.person, house.folder + "/long")
            let content = Data((0..<1_500_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try write(content, to: file)
            #expect(try await person.run("docs", "put", file, "long").status == 0)
            try SegmentDamage.damageAll(in: house.folder)
            // What this device has of it hides the damage.
            #expect(try await person.run("docs", "get", "long", house.folder + "/got").status == 0)
            #expect(try await person.run("docs", "evict", "long").status == 0)
            let got = try await person.run("docs", "get", "long", house.folder + "/again")
            #expect(got.status != 0 && got.errors.contains("cannot be read any more"), "\(got)")
            let status = try await person.run("docs", "status")
            #expect(status.status == 6, "\(status)")
            #expect(status.output.contains("/Documents/long is damaged on the server"), "\(status)")
            #expect(status.output.contains("nephos docs put"), "\(status)")
            let json = try await person.run("docs", "status", "--json").output
            #expect(json.contains(#""damaged_chunks":1"#) && json.contains(#""damaged":[{"#), "\(json)")
            let deployment = try await house.nephos.run("status")
            #expect(
                deployment.output.contains(
                    "1 chunk of content cannot be read any more; the log of documents names the accounts."),
                "\(deployment)")
            #expect(try await person.run("docs", "put", file, "long").status == 0)
            #expect(try await person.run("docs", "status").status == 0)
            #expect(try await person.run("docs", "get", "long", house.folder + "/got").status == 0)
            #expect(try Data(contentsOf: URL(fileURLWithPath: house.folder + "/got")) == content)
        }
    }

    @Test func aDatabaseInUseIsNotTakenUnlessSomebodySaysSo() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            try write("SQLite format 3\0 and so on", to: folder + "/tree/app.db")
            try write("", to: folder + "/tree/app.db-wal")
            try write("text", to: folder + "/tree/text")
            for arguments in [["-r", folder + "/tree"], [folder + "/tree/app.db"], [folder + "/tree/app.db-wal"]] {
                let refused = try await person.run(["docs", "put"] + arguments)
                #expect(refused.status == 1 && refused.errors.contains(".backup"), "\(refused)")
            }
            // What is not in use is put all the same.
            #expect(try await person.run("docs", "find", "*").output == "/Documents/tree\n/Documents/tree/text\n")
            let skipped = try await person.run("docs", "put", "-r", folder + "/tree", "--databases", "skip")
            #expect(skipped.status == 0 && skipped.errors.contains("tree/app.db-wal"), "\(skipped)")
            #expect(try await person.run("docs", "find", "*").output == "/Documents/tree\n/Documents/tree/text\n")
            #expect(try await person.run("docs", "put", "-r", folder + "/tree", "--databases", "put").status == 0)
            #expect(try await person.run("docs", "find", "app*").output.split(separator: "\n").count == 2)
        }
    }

    @Test func whatCannotBePutTakesNothingFromTheRest() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            for name in ["a", "b/one", "b/two", "c", "z/last"] { try write(name, to: folder + "/tree/" + name) }
            // Of the person's, `c` is a folder and `b` a file.
            #expect(try await person.run("docs", "mkdir", "-p", "tree/c").status == 0)
            #expect(try await person.run("docs", "put", folder + "/tree/a", "tree/b").status == 0)
            let put = try await person.run("docs", "put", "-r", folder + "/tree", folder + "/none", "/Documents/")
            #expect(put.status == 1, "\(put)")
            #expect(put.output == "Put 4 items: 3 new, 1 unchanged (7 B to send). Not put: 5.\n", "\(put)")
            for line in ["not put: \(folder)/none: There is no such file", "/tree/b and 2 more", "/tree/c: "] {
                #expect(put.errors.contains(line), "\(line): \(put.errors)")
            }
            #expect(
                try await person.run("docs", "find", "*").output
                    == "/Documents/tree\n/Documents/tree/a\n/Documents/tree/b\n/Documents/tree/c\n"
                    + "/Documents/tree/z\n/Documents/tree/z/last\n")
            let json = try await person.run("docs", "put", "-r", folder + "/tree", "--json")
            #expect(json.status == 1 && json.output.contains(#""failures":[{"#), "\(json)")
            #expect(json.output.contains(#""error":"alreadyExists""#), "\(json)")
            // One by itself is told as any other error is.
            let one = try await person.run("docs", "put", folder + "/none")
            #expect(one.status == 2 && one.errors.hasPrefix("nephos: There is no such file."), "\(one)")

            let target = folder + "/target"
            try FileManager.default.createDirectory(atPath: target + "/a", withIntermediateDirectories: true)
            try FileManager.default.createSymbolicLink(atPath: target + "/b", withDestinationPath: "elsewhere")
            try write("in the way", to: target + "/z")
            let got = try await person.run("docs", "get", "-r", "tree", target + "/../target")
            // A folder that is there takes it in.
            #expect(got.status == 0 && got.output == "Got 3 files (8 B).\n", "\(got)")
            try FileManager.default.moveItem(atPath: target + "/tree/b", toPath: target + "/old")
            try FileManager.default.removeItem(atPath: target + "/tree/a")
            try FileManager.default.removeItem(atPath: target + "/tree/z")
            try FileManager.default.createSymbolicLink(atPath: target + "/tree/b", withDestinationPath: "../old")
            try write("in the way", to: target + "/tree/z")
            try write("old", to: target + "/old")
            let again = try await person.run("docs", "get", "-r", "tree", target, "--json")
            #expect(again.status == 1, "\(again)")
            for line in ["/Documents/tree/b: The file here was changed", "/Documents/tree/z: Something"] {
                #expect(again.errors.contains(line), "\(again)")
            }
            #expect(again.output.contains(#""failure":{"#) && again.output.contains(#""path":"/Documents/tree/a""#))
            #expect(try String(contentsOfFile: target + "/tree/a", encoding: .utf8) == "a")
            #expect(try String(contentsOfFile: target + "/old", encoding: .utf8) == "old")
            #expect(try String(contentsOfFile: target + "/tree/z", encoding: .utf8) == "in the way")
        }
    }

    /// In a container with folded names, those that differ in case alone are one.
    @Test func ofTwoFilesOfOneNameOneIsPut() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("container", "save", "default", "--names", "folded").status == 0)
            let (person, folder) = (house.person, house.folder + "/files")
            for name in ["README", "Readme", "src/a", "Src/b"] { try write(name, to: folder + "/" + name) }
            for _ in 0..<2 {
                let put = try await person.run("docs", "put", "-r", folder)
                #expect(put.status == 1 && put.errors.contains("is the same as another's"), "\(put)")
                #expect(put.errors.contains(folder + "/Readme") && put.errors.contains(folder + "/src"), "\(put)")
                #expect(put.output.hasPrefix("Put 4 items"), "\(put)")
            }
            #expect(try await person.run("docs", "cat", "files/readme").output == "README")
            #expect(try await person.run("docs", "cat", "files/src/b").output == "Src/b")
            #expect(
                try await person.run("docs", "versions", "files/README", "--json").output.matches(of: /"version":/)
                    .count == 1
            )
            let twice = try await person.run("docs", "put", folder + "/README", folder + "/Src/b", "files/src/")
            #expect(twice.status == 0, "\(twice)")
        }
    }

    @Test func theWholeContainerIsGot() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            try write("a", to: folder + "/deep/a")
            #expect(try await person.run("docs", "put", "-r", folder + "/deep/..").status == 0)
            #expect(try await person.run("docs", "put", folder + "/deep/a", "/hidden").status == 0)
            let got = try await person.run("docs", "get", "-r", "/", house.folder + "/all")
            #expect(got.status == 0 && got.output.hasPrefix("Got 2 files"), "\(got)")
            for file in ["Documents/files/deep/a", "hidden"] {
                #expect(try String(contentsOfFile: house.folder + "/all/" + file, encoding: .utf8) == "a")
            }
        }
    }

    @Test(arguments: [SIGINT, SIGKILL]) func aGetThatIsEndedLeavesNothing(signal: Int32) async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/target")
            try write(
                Data((0..<2_000_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) }), to: house.folder + "/long")
            #expect(try await person.run("docs", "put", house.folder + "/long").status == 0)
            // Else it is here, and got at once.
            #expect(try await person.run("docs", "evict", "long").status == 0)
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            let get = try person.start(["docs", "get", "long", folder, "--limit-rate", "20K"])
            try await eventually("it writes") {
                let files = "/proc/\(get.pid)/fd"
                return try FileManager.default.contentsOfDirectory(atPath: files).contains { file in
                    let path = try? FileManager.default.destinationOfSymbolicLink(atPath: files + "/" + file)
                    return path?.contains(folder) == true
                }
            }
            get.signal(signal)
            #expect(await get.outcome().status == 128 + signal)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == [])
            // What is left where a part has to have a name is nobody's file.
            try write("rest", to: folder + "/.nephos-0123456789abcdef.part")
            let put = try await person.run("docs", "put", "-r", folder)
            #expect(put.output.hasPrefix("Put ") && put.errors.contains("left by a get"), "\(put)")
            #expect(try await person.run("docs", "ls", "target").output == "The folder is empty.\n")
        }
    }

    /// What a kill leaves is called as a part is; what was there is there.
    @Test(arguments: [SIGINT, SIGKILL]) func aGetOfAPackageThatIsEndedLeavesWhatWasThere(signal: Int32) async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/target")
            let content = Data((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            for name in ["a", "b"] { try write(content, to: house.folder + "/long/f/" + name) }
            #expect(try await person.run("docs", "put", "--package", house.folder + "/long").status == 0)
            #expect(try await person.run("docs", "evict", "long").status == 0)
            try write("mine", to: folder + "/long/mine")
            let get = try person.start(["docs", "get", "--replace", "long", folder, "--limit-rate", "100K"])
            try await eventually("it writes") {
                try FileManager.default.contentsOfDirectory(atPath: folder).count == 2
            }
            get.signal(signal)
            #expect(await get.outcome().status == 128 + signal)
            let names = try FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(names.filter { !$0.hasPrefix(".nephos-") } == ["long"] && (signal == SIGKILL || names.count == 1))
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder + "/long") == ["mine"])
        }
    }

    @Test func aPackageIsPutListedReadAndGotAsOne() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            try write(
                Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }),
                to: folder + "/a.bundle/Contents/x")
            try write("0123456789", to: folder + "/a.bundle/Info.txt")
            let make = try await person.run(
                shell: "ln -s Contents/x \(folder)/a.bundle/link && chmod +x \(folder)/a.bundle/Info.txt")
            #expect(make.status == 0, "\(make)")
            let refused = try await person.run("docs", "put", folder + "/a.bundle")
            #expect(refused.status == 64 && refused.errors.contains("--package"), "\(refused)")
            let put = try await person.run("docs", "put", "-p", "--package", folder + "/a.bundle", "f/a.bundle")
            #expect(put.status == 0, "\(put)")
            #expect(try await person.run("docs", "put", "--package", folder + "/a.bundle/Info.txt").status == 64)
            #expect(try await person.run("docs", "ls", "f").output.contains("a.bundle#"))
            #expect(try await person.run("docs", "tree", "f").output == "/Documents/f\n└── a.bundle#\n")
            #expect(try await person.run("docs", "ls", "f", "--json").output.contains(#""kind":"package""#))
            #expect(
                try await person.run("docs", "cat", "f/a.bundle/Info.txt", "--offset", "2", "--length", "3").output
                    == "234")
            let cat = try await person.run(
                shell: "nephos docs cat f/a.bundle/Contents/x | cmp - \(folder)/a.bundle/Contents/x")
            #expect(cat.status == 0, "\(cat)")
            for (command, status) in [
                ["cat", "f/a.bundle"]: 64, ["cat", "f/a.bundle/none"]: 2, ["cat", "f/a.bundle/Contents"]: 64,
                ["get", "f/a.bundle", "-"]: 64,
            ] {
                #expect(try await person.run(["docs"] + command).status == status, "\(command)")
            }
            let got = try await person.run("docs", "get", "f/a.bundle", folder + "/b")
            #expect(got.status == 0 && got.output.hasPrefix("Got "), "\(got)")
            let same = "diff -r --no-dereference \(folder)/a.bundle \(folder)/b && test -x \(folder)/b/Info.txt"
            #expect(try await person.run(shell: same).status == 0)
            // What is there stays, unless somebody says otherwise.
            try write("mine", to: folder + "/tree/f/a.bundle/mine")
            let stays = try await person.run("docs", "get", "-r", "f", folder + "/tree")
            #expect(stays.status == 1 && stays.errors.contains("--replace"), "\(stays)")
            #expect(try await person.run("docs", "get", "f/a.bundle", folder + "/tree/f").status == 1)
            #expect(try await person.run(shell: "cat \(folder)/tree/f/a.bundle/mine").output == "mine")
            #expect(try await person.run("docs", "get", "-r", "--replace", "f", folder + "/tree").status == 0)
            #expect(
                try await person.run(shell: "ls -A \(folder)/tree/f && ls \(folder)/tree/f/a.bundle").output
                    == "a.bundle\nContents\nInfo.txt\nlink\n")
            // A folder stays the package that it is there, and the same is no other version.
            let again = try await person.run("docs", "put", "-r", folder + "/tree/f")
            #expect(again.status == 0, "\(again)")
            #expect(try await person.run("docs", "put", "-r", folder + "/a.bundle", "f").status == 0)
            let versions = try await person.run("docs", "versions", "f/a.bundle", "--json").output
            #expect(versions.matches(of: /"version"/).count == 1, "\(versions)")
        }
    }

    @Test func aFurtherContentIsPutListedGotAndTakenAway() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            try write("photo", to: folder + "/photo.jpg")
            try write("small", to: folder + "/small.jpg")
            #expect(try await person.run("docs", "put", folder + "/photo.jpg").status == 0)
            let put = try await person.run(
                "docs", "put", "--rendition", "thumbnail", folder + "/small.jpg", "photo.jpg")
            #expect(put.output == "Put thumbnail of /Documents/photo.jpg.\n", "\(put)")
            #expect(try await person.run("docs", "ls").output.contains("with thumbnail"))
            let second = try await house.anotherDevice("second")
            let list = try await second.run("docs", "renditions", "photo.jpg")
            #expect(list.output.contains("thumbnail") && !list.output.contains("another version"), "\(list)")
            #expect(try await second.run("docs", "get", "--rendition", "thumbnail", "photo.jpg", "-").output == "small")
            #expect(try await second.run("docs", "get", "--rendition", "thumbnail", "photo.jpg", folder).status == 0)
            #expect(try await second.run(shell: "cat \(folder)/photo.jpg.thumbnail").output == "small")
            try write("newer", to: folder + "/photo.jpg")
            #expect(try await person.run("docs", "put", folder + "/photo.jpg").status == 0)
            #expect(try await person.run("docs", "renditions", "photo.jpg").output.contains("of another version"))
            for (command, status) in [
                ["put", "--rendition", "t", folder + "/small.jpg"]: 64,
                ["get", "--rendition", "no", "photo.jpg", "-"]: 2,
                ["put", "--rendition", "t", folder + "/small.jpg", "none"]: 2, ["renditions", "none"]: 2,
                ["renditions", "photo.jpg", "--remove", "no"]: 2,
                ["renditions", "photo.jpg", "--remove", "thumbnail"]: 0,
            ] {
                #expect(try await person.run(["docs"] + command).status == status, "\(command)")
            }
            #expect(
                try await person.run("docs", "renditions", "photo.jpg").output == "There are no further contents.\n")
        }
    }

    @Test func whatIsCalledByNoTextIsReachedByItsID() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/files")
            // What a shell makes of \xff, \u0301 is a mark that Swift takes for one character with the slash before it.
            let make = try await person.run(
                shell: """
                    mkdir -p \(folder)/tree/$'caf\\xe9' && cd \(folder)/tree && echo 1 > $'caf\\xe9/\\xff' &&
                    echo 2 > $'\\u0301mark' && ln -s $'caf\\xe9/\\xff' link
                    """)
            #expect(make.status == 0, "\(make)")
            let put = try await person.run("docs", "put", "-r", folder + "/tree")
            #expect(put.status == 0 && put.output.hasPrefix("Put 5 items"), "\(put)")
            let list = try await person.run("docs", "ls", "-r", "tree").output
            let ids = list.matches(of: /no text: (id:[0-9a-f]{32})/).map { String($0.1) }
            try #require(ids.count == 2, "\(list)")
            let (cafe, file) = (ids[0], ids[1])
            #expect(try await person.run("docs", "cat", file).output == "1\n")
            #expect(try await person.run("docs", "get", file, folder + "/got").status == 0)
            #expect(try await person.run("docs", "versions", file).output.contains("current"))
            #expect(try await person.run("docs", "ls", cafe).output.contains(file))
            #expect(try await person.run("docs", "put", folder + "/got", cafe).status == 0)
            #expect(try await person.run("docs", "status", cafe).status == 0)
            #expect(try await person.run("docs", "cp", file, "copied").status == 0)
            let got = try await person.run("docs", "get", "-r", "tree", folder + "/back")
            #expect(got.status == 0 && got.output.hasPrefix("Got 4 files"), "\(got)")
            let same = try await person.run(
                shell: "rm \(folder)/back/$'caf\\xe9'/got && diff -r --no-dereference \(folder)/tree \(folder)/back")
            #expect(same.status == 0, "\(same)")
            #expect(try await person.run("docs", "mv", file, "moved").status == 0)
            #expect(try await person.run("docs", "cat", "moved").output == "1\n")
            #expect(try await person.run("docs", "rm", "-r", cafe).status == 0)
            #expect(try await person.run("docs", "ls", cafe).status == 2)
        }
    }
}

extension Household {
    /// What is done meanwhile reaches the service only after it, and nobody hears of it before.
    func whileDocumentsStandStill(_ body: () async throws -> Void) async throws {
        let service = try holder(.documents)
        kill(service, SIGSTOP)
        defer { kill(service, SIGCONT) }
        try await body()
    }
}
