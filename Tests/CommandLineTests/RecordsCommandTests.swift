import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Records, as a person or a script has them.
@Suite(.serialized) struct RecordsCommandTests {
    @Test func whatOneDeviceSavesTheOtherFinds() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            let saved = try await one.run(
                "records", "save", "a", "title=one", "count=3", "size=1.5", "zip=01234", "yes=true",
                #"tags=["x","y"]"#, "--type", "Note", "--real", "whole=1", "--date", "due=2026-01-31T12:00:00Z",
                "--reference", "next=b", "--string", "number=7")
            #expect(saved.status == 0 && saved.output == "Saved a.\n", "\(saved)")
            #expect(
                try await one.run("records", "save", "b", "title=two", "--type", "Note", "--parent", "a").status == 0)

            // What would not come out as typed is text.
            let exported = try await other.run("records", "export")
            #expect(
                exported.output == """
                    {"name":"a","type":"Note","fields":{"count":3,"due":{"$date":"2026-01-31T12:00:00Z"},\
                    "next":{"$reference":"b"},"number":"7","size":1.5,"tags":["x","y"],"title":"one","whole":1.0,\
                    "yes":1,"zip":"01234"}}
                    {"name":"b","type":"Note","parent":"a","fields":{"title":"two"}}

                    """, "\(exported)")
            for source in [[], ["--server"]] {
                let found = try await other.run(
                    ["records", "query", "count > 2 OR title == 'two'", "--sort", "-title", "--fields", "title,count"]
                        + source)
                let rows = found.output.split(separator: "\n").map {
                    $0.split(separator: " ").prefix(4).map(String.init)
                }
                #expect(found.status == 0, "\(found)")
                #expect(rows.first == ["NAME", "TYPE", "title", "count"])
                #expect(rows.dropFirst() == [["b", "Note", "two", "-"], ["a", "Note", "one", "3"]], "\(found)")
            }
            #expect(try await other.run("records", "query", "count > 3", "--json").status == 2)

            // The other fields stay.
            #expect(try await other.run("records", "save", "a", "count=4", "--remove", "zip").status == 0)
            let read = try await one.run("records", "get", "a", "nobody", "--json")
            #expect(read.status == 2 && read.errors.contains("There is no such record."), "\(read)")
            #expect(read.output.contains(#""count":4"#) && read.output.contains(#""title":"one""#), "\(read)")
            #expect(!read.output.contains("zip"), "\(read)")

            // With its child, or not at all.
            let alone = try await one.run("records", "delete", "a")
            #expect(alone.status == 1 && alone.errors.contains("has children"), "\(alone)")
            #expect(try await one.run("why").output.contains("a: rejected"))
            let refused = try await one.run("records", "refused")
            #expect(refused.output.contains("(deletion)") && refused.output.contains("has children"), "\(refused)")
            #expect(try await one.run("discard", "a").status == 0)
            #expect(try await one.run("records", "refused").output == "No change was rejected.\n")
            #expect(try await one.run("records", "delete", "b", "nobody").status == 2)
            #expect(try await one.run("records", "delete", "b", "a").status == 0)
            #expect(try await other.run("records", "ls").output == "There are no records.\n")
            #expect(try await other.run("verify").status == 0)
        }
    }

    /// A name is one of a zone: what was refused in another is not dismissed with it.
    @Test func whatWasRefusedElsewhereUnderTheSameNameStays() async throws {
        try await withTenant { house in
            let one = house.person
            #expect(try await one.run("records", "zones", "make", "other").status == 0)
            for zone in ["_defaultZone", "other"] {
                let place = ["--type", "Note", "--zone", zone]
                #expect(try await one.run(["records", "save", "a"] + place).status == 0)
                #expect(try await one.run(["records", "save", "b", "--parent", "a"] + place).status == 0)
                #expect(try await one.run("records", "delete", "a", "--zone", zone).status == 1)
            }
            let both = try await one.run("discard", "a")
            #expect(both.status == 64 && both.errors.contains("--name") && both.errors.contains("/other"), "\(both)")
            let listed = try await one.run("records", "refused")
            let line = try #require(
                listed.output.firstMatch(of: /nephos (discard .*--name=[^ ]*\/other) NAME/), "\(listed)"
            ).output.1
            #expect(try await one.run(line.split(separator: " ").map(String.init) + ["a"]).status == 0)
            let left = try await one.run("records", "refused", "--json")
            #expect(left.output.contains("_defaultZone") && !left.output.contains("other"), "\(left)")
            #expect(try await one.run("discard", "a").status == 0)
        }
    }

    /// What refers to others is saved with them.
    @Test func aTreeThatWasRefusedIsSavedAgain() async throws {
        try await withTenant { house in
            let one = house.person
            for (name, parent) in [("b", "nowhere"), ("a", "b")] {
                let refused = try await one.run("records", "save", name, "--type", "T", "--parent", parent)
                #expect(refused.status == 1, "\(refused)")
            }
            #expect(try await one.run("records", "save", "nowhere", "--type", "T").status == 0)
            let again = try await one.run("records", "retry")
            #expect(again.status == 0 && again.output == "Saved a, b.\n", "\(again)")
            #expect(try await one.run("records", "refused").output == "No change was rejected.\n")
            #expect(try await one.run("records", "retry").output == "There is nothing to save again.\n")
        }
    }

    /// Two saves of one record were refused, each made from what there was: saved again, neither takes the other's place
    /// without a word.
    @Test func whatWasRefusedIsSavedAgain() async throws {
        try await withTenant { house in
            let one = house.person
            #expect(try await one.run("records", "save", "a", "n=0", "--type", "T").status == 0)
            for field in ["first", "second"] {
                let refused = try await one.run("records", "save", "a", "\(field)=1", "--parent", "nowhere")
                #expect(refused.status == 1 && refused.errors.contains("The parent is not there"), "\(refused)")
            }
            // What is taken is not told as refused, and what was refused before stays.
            let saved = try await one.run("records", "save", "a", "n=5")
            #expect(saved.status == 0 && saved.output == "Saved a.\n", "\(saved)")
            #expect(saved.errors.contains("An earlier rejected change of it is still listed"), "\(saved)")
            #expect(try await one.run("records", "retry", "b").status == 2)
            // What they were refused for is cured.
            #expect(try await one.run("records", "save", "nowhere", "--type", "T").status == 0)
            let why = try await one.run("why", "a")
            #expect(why.output.contains("nephos records retry"), "\(why)")
            let again = try await one.run("records", "retry", "a")
            #expect(again.status == 1 && again.errors.contains("nephos records conflicts"), "\(again)")
            #expect(try await one.run("records", "refused").output == "No change was rejected.\n")
            let conflicts = try await one.run("records", "conflicts", "--json").output
            for field in ["first", "second"] { #expect(conflicts.contains(#""\#(field)":1"#), "\(conflicts)") }
            #expect(try await one.run("records", "get", "a").output.contains("5"))
            #expect(try await one.run("records", "retry", "--zone", "nosuch").status == 2)
        }
    }

    /// Of several that were refused the newest is the record, and what else was taken is said.
    @Test func ofWhatWasRefusedTheNewestIsTheRecord() async throws {
        try await withTenant { house in
            let one = house.person
            #expect(try await one.run("records", "save", "a", "n=0", "--type", "T").status == 0)
            for number in 1...3 {
                #expect(try await one.run("records", "save", "a", "n=\(number)", "--parent", "nowhere").status == 1)
            }
            #expect(try await one.run("records", "save", "b", "--type", "T", "--parent", "never").status == 1)
            #expect(try await one.run("records", "save", "c", "--type", "T", "--parent", "nowhere").status == 1)
            #expect(try await one.run("records", "save", "nowhere", "--type", "T").status == 0)
            let again = try await one.run("records", "retry")
            #expect(again.status == 1 && again.errors.contains("The others were taken: c"), "\(again)")
            let read = try await one.run("records", "get", "a", "--json").output
            #expect(read.contains(#""n":3"#), "\(read)")
            // Whoever signs out hears what is nowhere but here.
            let ended = try await one.run("sign-out")
            #expect(ended.output.contains("of \(house.accountName) were rejected or in conflict"), "\(ended)")
            #expect(try await one.run("status").status == 4)
        }
    }

    /// Of a public database nobody here knows what is in it; what is saved and deleted waits all the same.
    @Test func whatIsSavedForThePublicDatabaseOfflineIsKept() async throws {
        try await withHousehold { house in
            try await house.begin()
            let one = house.person
            #expect(try await one.run("app", "create", "TEST.app", "--container", "TEST.c").status == 0)
            let place = ["--app", "TEST.app", "--public"]
            for (name, title) in [("sea", "Sea"), ("old", "Old")] {
                let saved = try await one.run(
                    ["records", "save", name, "title=\(title)", "deep=9", "--type", "Place"] + place)
                #expect(saved.status == 0, "\(saved)")
            }
            #expect(try await house.nephos.run("down").status == 0)

            let kept = try await one.run(["records", "save", "pond", "title=Pond", "--type", "Place"] + place)
            #expect(kept.status == 0 && kept.output.hasPrefix("Saved pond. It is kept on this device:"), "\(kept)")
            let untyped = try await one.run(["records", "save", "sea", "title=Ocean", "--offline"] + place)
            #expect(untyped.status == 6 && untyped.errors.contains("--type"), "\(untyped)")
            let changed = try await one.run(
                ["records", "save", "sea", "title=Ocean", "--type", "Place", "--policy", "changed-keys", "--offline"]
                    + place)
            #expect(changed.status == 0 && changed.output.hasSuffix("It is kept here, and sent later.\n"), "\(changed)")
            let deleted = try await one.run(["records", "delete", "old", "--policy", "all-keys"] + place)
            #expect(deleted.status == 0 && deleted.output.contains("It is kept on this device:"), "\(deleted)")
            let file = house.folder + "/records.jsonl"
            try #"{"name":"lake","type":"Place","fields":{"title":"Lake"}}"#.write(
                toFile: file, atomically: true, encoding: .utf8)
            let imported = try await one.run(["records", "import", file, "--offline"] + place)
            #expect(imported.status == 0, "\(imported)")
            // Nothing is asked that is not to be.
            for read in [["get", "sea"], ["ls"], ["query", "deep == 9"], ["export"]] {
                let nothing = try await one.run(["records"] + read + ["--offline"] + place)
                #expect(nothing.status == 6 && nothing.errors.contains("No copy"), "\(read) \(nothing)")
            }
            #expect(try await one.run(["records", "get", "sea"] + place).status == 5)

            #expect(try await house.nephos.run("up").status == 0)
            let sent = try await one.run(["records", "save", "brook", "title=Brook", "--type", "Place"] + place)
            #expect(sent.status == 0 && sent.output == "Saved brook.\n", "\(sent)")
            let all = try await one.run(["records", "export"] + place)
            #expect(
                all.output == """
                    {"name":"brook","type":"Place","fields":{"title":"Brook"}}
                    {"name":"lake","type":"Place","fields":{"title":"Lake"}}
                    {"name":"pond","type":"Place","fields":{"title":"Pond"}}
                    {"name":"sea","type":"Place","fields":{"deep":9,"title":"Ocean"}}

                    """, "\(all)")
            #expect(try await one.run("verify", "--app", "TEST.app").status == 0)
        }
    }

    /// Of a container with an administrator, two accounts use the public database, by its roles.
    @Test func whatAllAccountsHaveInCommonIsUnderRoles() async throws {
        try await withHousehold { house in
            try await house.begin()
            let ann = house.person
            for preparation in [
                ["app", "create", "TEST.app", "--container", "TEST.c"], ["account", "create", "bert"],
                ["container", "save", "TEST.c", "--administrator", Household.accountName],
            ] {
                let prepared = try await ann.run(preparation)
                #expect(prepared.status == 0, "\(prepared)")
            }
            let containers = try await ann.run("container", "list")
            #expect(containers.output.firstMatch(of: /TEST\.c .*TEST\.app +ann/) != nil, "\(containers)")
            var bert = ann
            bert.environment["NEPHOS_HOME"] = house.folder + "/home-of-bert"
            let connection = try await house.connection
            #expect(try await bert.run("sign-in", connection, "--account", "bert").status == 0)
            let place = ["--app", "TEST.app", "--public"]
            let saved = try await bert.run(["records", "save", "sea", "title=Sea", "--type", "Place"] + place)
            #expect(saved.status == 0 && saved.output == "Saved sea.\n", "\(saved)")
            let found = try await ann.run(["records", "query", "title == 'Sea'", "--json"] + place)
            #expect(found.status == 0 && found.output.contains(#""title":"Sea""#), "\(found)")
            #expect(try await ann.run("records", "ls", "--app", "TEST.app").output == "There are no records.\n")

            // Ann may do everything, and says that others may not save places any more.
            let set = try await ann.run("records", "roles", "set", "Place", "--signed-in", "none", "--app", "TEST.app")
            #expect(set.output.firstMatch(of: /Place +read, write +none +read/) != nil, "\(set)")
            let refused = try await bert.run(["records", "save", "lake", "title=Lake", "--type", "Place"] + place)
            #expect(refused.status == 4 && refused.errors.contains("roles of the type"), "\(refused)")
            let why = try await bert.run("why", "lake", "--app", "TEST.app")
            let again = try #require(why.output.firstMatch(of: /set it again  (nephos records retry .*)/), "\(why)")
            #expect(again.output.1.contains("--app=TEST.app") && again.output.1.contains("--public"), "\(why)")
            let listed = try await bert.run(["records", "refused"] + place)
            #expect(listed.output.contains("lake"), "\(listed)")
            let denied = try await bert.run("records", "roles", "reset", "Place", "--app", "TEST.app")
            #expect(denied.status == 4, "\(denied)")
            #expect(try await ann.run(["records", "save", "sea", "title=Ocean"] + place).status == 0)

            // A copy, which is in step.
            let kept = try await bert.run("records", "copy", "keep", "--app", "TEST.app")
            #expect(kept.output == "The copy has 1 record.\n", "\(kept)")
            #expect(try await bert.run(["records", "get", "sea", "--offline"] + place).output.contains("Ocean"))
            // What was refused is nobody's to forget.
            let incomplete = try await bert.run("verify", "--app", "TEST.app")
            #expect(incomplete.status == 6 && incomplete.output.contains("lake"), "\(incomplete)")
            #expect(try await bert.run("discard", "lake", "--app", "TEST.app").status == 0)
            #expect(try await bert.run("verify", "--app", "TEST.app").status == 0)

            // A service tells what it stores within seconds.
            var storage = try await ann.run("storage", "--app", "TEST.app", "--json")
            for _ in 0..<60 where storage.output.firstMatch(of: /"used_bytes":[1-9]/) == nil {
                try await Task.sleep(for: .milliseconds(500))
                storage = try await ann.run("storage", "--app", "TEST.app", "--json")
            }
            #expect(storage.output.firstMatch(of: /"used_bytes":[1-9]/) != nil, "\(storage)")

            let token = try await ann.run("app", "token", "create", "TEST.app", "--json")
            let id = try #require(token.output.firstMatch(of: /"id":"([0-9a-f]{16})"/)).output.1
            #expect(try await ann.run("app", "token", "list", "TEST.app").output.contains(id))
            #expect(try await ann.run("app", "token", "revoke", String(id)).status == 0)
            #expect(try await ann.run("app", "token", "list", "TEST.app").output == "The app has no tokens.\n")
        }
    }

    /// Whoever has to decide sees what differs, however alike it begins.
    @Test func whatReadsAlikeAndDiffersIsToldApart() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            let long = String(repeating: "a", count: 200)
            func fields(_ end: String) throws -> [String] {
                let file = house.folder + "/photo" + end
                try Data((long + end).utf8).write(to: URL(fileURLWithPath: file))
                return ["text=" + long + end, "--asset", "photo=" + file]
            }
            let first = try await one.run(["records", "save", "x", "count=1", "--type", "Note"] + fields("0"))
            #expect(first.status == 0, "\(first)")
            #expect(try await house.makeRecordConflict(one, other, here: fields("1"), there: fields("2")))
            let conflicts = try await one.run("records", "conflicts").output
            #expect(conflicts.firstMatch(of: /text +\S+…a+0 +\S+…a+2 +\S+…a+1\n/) != nil, "\(conflicts)")
            let photo = try #require(
                conflicts.firstMatch(of: /photo +(\S.*?) {2,}(\S.*?) {2,}(\S.*)\n/), "\(conflicts)")
            #expect(photo.output.2 != photo.output.3, "\(conflicts)")
            #expect(!conflicts.contains("count"), "\(conflicts)")
        }
    }

    @Test func whatBothHaveSavedIsAConflictUntilItIsResolved() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            for (kept, title) in [("server", "of the other"), ("client", "of one")] {
                #expect(
                    try await one.run("records", "save", "x", "title=before", "count=1", "--type", "Note").status == 0)
                #expect(try await house.makeRecordConflict(one, other))
                let conflicts = try await one.run("records", "conflicts")
                #expect(conflicts.output.contains("saved here and by other"), "\(conflicts)")
                #expect(conflicts.output.firstMatch(of: /title +before +of the other +of one/) != nil, "\(conflicts)")
                // The general list says the same ways out.
                let label = kept == "client" ? "  keep d's (" : "  keep other's ("
                let general = try await one.run("conflicts").output
                #expect(!general.contains("cannot read it any more"), "\(general)")
                let line = try #require(general.split(separator: "\n").first { $0.hasPrefix(label) })
                #expect(line.contains("--keep=\(kept)"), "\(line)")
                let command = try #require(line.firstRange(of: "nephos records resolve"))
                let resolved = try await one.run(shell: String(line[command.lowerBound...]))
                #expect(resolved.status == 0 && resolved.output == "Resolved x.\n", "\(resolved)")
                #expect(try await one.run("records", "conflicts").output == "There are no conflicts.\n")
                #expect(try await one.run("records", "resolve", "x", "--keep", "client").status == 2)
                let read = try await other.run("records", "get", "x", "--json")
                #expect(read.output.contains("\"title\":\"\(title)\""), "\(kept): \(read)")
            }
        }
    }

    @Test func eachLineDecidesTheConflictItIsPrintedWith() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "save", "x", "v=1", "--type", "Note").status == 0)
            #expect(try await other.run("records", "ls").status == 0)
            // The second is kept before the first is sent, and was made from the same.
            for (here, there) in [("2", "3"), ("20", "30")] {
                #expect(try await other.run("records", "save", "x", "v=\(there)", "--offline").status == 0)
                #expect(try await one.run("records", "save", "x", "v=\(here)", "--timeout", "60").status == 0)
                var isFound = false
                for _ in 0..<30 where !isFound {
                    isFound = try await other.run("conflicts", "--json").output.contains("{\"v\":\(there)}")
                }
                #expect(isFound, "\(there)")
            }
            func lines() async throws -> [String: String] {
                let listed = try await other.run("conflicts").output
                return Dictionary(
                    listed.matches(
                        of: /x = \{"v":(\d+)\}[^=]*?(?:.*\n)*?.*?(nephos records resolve \S*--keep=server.*)\n/
                    )
                    .map { (String($0.1), String($0.2)) }, uniquingKeysWith: { first, _ in first })
            }
            let before = try await lines()
            try #require(Set(before.keys) == ["3", "30"], "\(before)")
            #expect(try await other.run("records", "resolve", "x", "--keep", "server").status == 64)
            #expect(try await other.run(shell: before["30"] ?? "").status == 0)
            #expect(try await other.run(shell: before["30"] ?? "").status == 2)
            #expect(try await lines().keys.sorted() == ["3"])
            #expect(try await other.run(shell: before["3"] ?? "").status == 0)
            #expect(try await other.run("conflicts").output == "Nothing conflicts.\n")
        }
    }

    @Test func whatWasRefusedOfADeletedZoneIsShownUntilItIsDismissed() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "zones", "make", "work").status == 0)
            #expect(try await one.run("records", "save", "a", "n=1", "--type", "T", "--zone", "work").status == 0)
            #expect(try await other.run("records", "get", "a", "--zone", "work").status == 0)
            let kept = try await other.run("records", "save", "b", "n=2", "--type", "T", "--zone", "work", "--offline")
            #expect(kept.status == 0, "\(kept)")
            #expect(try await one.run("records", "zones", "delete", "work", "--yes").status == 0)
            #expect(try await other.run("records", "zones").status == 0)
            let refused = try await other.run("records", "refused")
            #expect(refused.output.contains("work/b"), "\(refused)")
            let status = try await other.run("status")
            #expect(status.status == 6 && status.output.contains("The server rejected: b"), "\(status)")
            let why = try await other.run("why", "b")
            #expect(why.status == 6 && why.output.contains("b: rejected"), "\(why)")
            #expect(try await other.run("discard", "b").status == 0)
            #expect(try await other.run("records", "refused").output == "No change was rejected.\n")
            #expect(try await other.run("verify").status == 0)
        }
    }

    @Test func whatIsExportedIsImportedIntoAnotherAccountToTheByte() async throws {
        try await withTenant { house in
            let one = house.person
            #expect(try await one.run("records", "zones", "make", "work").status == 0)
            let file = house.folder + "/records.jsonl"
            // What sorts before its parent comes after it; more than one request has.
            var lines = (0..<900).map { #"{"name":"r\#($0 + 1000)","type":"T","fields":{"n":\#($0),"size":\#($0).5}}"# }
            lines += [
                #"{"name":"z","type":"Note","fields":{"text":"a\u202eb\n\"ü\"","none":{"$list":"dates"}}}"#,
                #"{"name":"a","type":"Note","parent":"z","fields":{"where":{"$location":{"latitude":52.5,"longitude":-0.0}}}}"#,
                #"{"name":"b","type":"Note","fields":{"data":{"$data":"AAEC"},"nan":{"$real":"0x7ff8000000000000"}}}"#,
            ]
            try Data(lines.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let imported = try await one.run("records", "import", file, "--zone", "work")
            #expect(imported.status == 0 && imported.output == "Imported 903 records.\n", "\(imported)")
            let first = try await one.run("records", "export", "--zone", "work").output
            let order = first.split(separator: "\n").compactMap { $0.firstMatch(of: /"name":"([az])"/)?.output.1 }
            #expect(order == ["z", "a"])

            let other = try await house.anotherPerson()
            try Data(first.utf8).write(to: URL(fileURLWithPath: file))
            let missing = try await other.run("records", "import", file)
            #expect(missing.status == 2 && missing.errors.contains("zone: work"), "\(missing)")
            #expect(try await other.run("records", "zones", "make", "work").status == 0)
            #expect(try await other.run("records", "import", "-", input: file).status == 0)
            #expect(try await other.run("records", "export", "--zone", "work").output == first)
            // It goes on where it was.
            let again = try await other.run("records", "import", file, "--json")
            #expect(again.output.contains(#""saved":0,"state":"sent","unchanged":903"#), "\(again)")
            #expect(try await other.run("verify").status == 0)

            // A line that is none is said, and what came before it stays.
            let bad = [#"{"name":"c","type":"T"}"#, "", #"{"name":"d","type":"T","fields":{"x":null}}"#]
            try Data(bad.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let outcome = try await other.run("records", "import", file)
            #expect(outcome.status == 64 && outcome.errors.contains("  line: 3\n"), "\(outcome)")
            #expect(outcome.errors.contains("  saved: 1\n"), "\(outcome)")
            #expect(
                outcome.errors.contains("What came before it was saved.") && !outcome.errors.contains("Nothing was"),
                "\(outcome)")
            #expect(try await other.run("records", "get", "c").status == 0)
            // Records that cannot be saved do not keep the others back.
            let unlike = [
                #"{"name":"c","type":"U"}"#, #"{"name":"_d","type":"T"}"#,
                #"{"name":"e","type":"T","parent":"nobody"}"#,
                #"{"name":"f","type":"T"}"#,
            ]
            try Data(unlike.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let some = try await other.run("records", "import", file)
            #expect(some.status == 64 && some.output == "Imported 1 record. 3 records could not be saved.\n", "\(some)")
            for start in ["line 1: c: ", "line 2: _d: ", "line 3: e: The parent is not there."] {
                #expect(some.errors.contains("nephos: \(start)"), "\(start): \(some)")
            }
            #expect(try await other.run("records", "get", "f").status == 0)
            try Data((unlike + ["{"]).joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let both = try await other.run("records", "import", file)
            #expect(both.status == 64 && both.errors.contains("  line: 5\n"), "\(both)")
        }
    }

    /// By force over what this device had not seen: the server keeps it.
    @Test func whatIsOverwrittenByForceIsHadBack() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "save", "x", "title=before", "--type", "Note").status == 0)
            #expect(try await other.run("records", "get", "x").status == 0)
            let service = try house.holder(.records)
            kill(service, SIGSTOP)
            let kept = try await one.run(
                "records", "save", "x", "title=by force", "--policy", "all-keys", "--offline")
            // What it was sent meanwhile is gone with it.
            kill(service, SIGKILL)
            #expect(kept.status == 0)
            #expect(try await other.run("records", "save", "x", "title=lost", "--timeout", "60").status == 0)
            #expect(try await one.run("records", "changes").status == 0)
            #expect(try await other.run("records", "get", "x").output.contains("by force"))
            let conflicts = try await other.run("history").output
            let line = try #require(conflicts.firstMatch(of: /get it back   (nephos records save.*)/)).output.1
            #expect(try await other.run(shell: String(line)).status == 0)
            #expect(try await one.run("records", "get", "x").output.contains("title  lost"))
        }
    }

    @Test func anImportThatIsInterruptedGoesOn() async throws {
        try await withTenant { house in
            let file = house.folder + "/records.jsonl"
            let count = 6000
            let lines = (0..<count).map { #"{"name":"r\#($0)","type":"T","fields":{"n":\#($0)}}"# }
            try Data(lines.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let first = try house.person.start(["records", "import", file])
            try await Task.sleep(for: .milliseconds(1500))
            first.signal(SIGINT)
            let ended = await first.outcome()
            #expect(ended.status == 130 && ended.errors.contains("Import the same again"), "\(ended)")
            let again = try await house.person.run("records", "import", file, "--json")
            let numbers = try #require(again.output.firstMatch(of: /"saved":(\d+),.*"unchanged":(\d+)/)).output
            let (saved, unchanged) = (Int(numbers.1) ?? 0, Int(numbers.2) ?? 0)
            // Batches are whole.
            #expect(unchanged > 0 && unchanged % 400 == 0 && saved + unchanged == count, "\(again)")
            #expect(try await house.person.run("verify").status == 0)
        }
    }

    @Test func aRecordIsSavedAsAWholeAndItsEndIsToldWithItsType() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "save", "a", "n=1", "title=x", "--type", "Note").status == 0)
            #expect(try await other.run("records", "save", "b", "n=2", "title=EtA", "--type", "Task").status == 0)
            #expect(try await other.run("records", "ls").status == 0)
            // What the other has not heard of goes too.
            #expect(try await one.run("records", "save", "a", "more=1").status == 0)
            let whole = try await other.run(
                "records", "save", "a", "n=3", "--replace", "--policy", "all-keys", "--offline")
            #expect(whole.status == 0, "\(whole)")
            #expect(try await other.run("records", "ls").status == 0)
            var read = try await other.run("records", "get", "a", "--server", "--json")
            for _ in 0..<50 where !read.output.contains(#""n":3"#) {
                read = try await other.run("records", "get", "a", "--server", "--json")
            }
            #expect(read.output.contains(#""fields":{"n":3}"#), "\(read)")
            let both = try await one.run("records", "save", "a", "--replace", "--remove", "n")
            #expect(both.status == 64, "\(both)")
            #expect(try await one.run("records", "save", "c", "n=4", "title=ETB", "--type", "Task").status == 0)
            for source in [[], ["--server"], ["--server", "--scan"]] {
                let found = try await one.run(
                    ["records", "query", "title != NULL", "--sort", "-title[cd]", "--fields", "n"] + source)
                let rows = found.output.split(separator: "\n").dropFirst().map { $0.prefix { $0 != " " } }
                #expect(rows == ["c", "b"], "\(found)")
            }
            #expect(try await one.run("records", "query", "--sort", "title[x]").status == 64)

            #expect(try await other.run("records", "changes").status == 0)
            #expect(try await one.run("records", "delete", "c").status == 0)
            let gone = try await other.run("records", "changes")
            #expect(gone.output == "- c (Task)\n", "\(gone)")
            #expect(try await one.run("records", "delete", "b").status == 0)
            let json = try await other.run("records", "changes", "--json")
            #expect(json.output == #"{"event":"deleted","name":"b","type":"Task"}"# + "\n", "\(json)")
        }
    }

    /// What was saved here is never told as what others have changed, however the two meet.
    @Test(arguments: [false, true]) func ofAConflictWhatTheServerHasIsTold(deletes: Bool) async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "save", "x", "title=first", "--type", "Note").status == 0)
            #expect(try await other.run("records", "get", "x").status == 0)
            let output = house.folder + "/changes"
            let isConflict = try await house.makeRecordConflict(
                one, other, deletes: deletes, late: ["records", "changes"], to: output)
            #expect(isConflict)
            let lines = try String(contentsOfFile: output, encoding: .utf8).split(separator: "\n")
            let refused = "! x: a conflict, see: nephos records conflicts"
            let winner = deletes ? "- x (Note)" : "+ x (Note)  count=1, title=of the other"
            #expect(lines.map(String.init) == [winner, refused])
        }
    }

    @Test func aZoneIsFollowedAndItsQueriesAreExplained() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "zones", "make", "work", "--offline").status == 0)
            #expect(
                try await one.run("records", "save", "w", "n=1", "--type", "T", "--zone", "work", "--offline").status
                    == 0)
            #expect(try await one.run("records", "zones").output.contains("work"))
            #expect(try await one.run("records", "ls", "--zone", "work").output.contains("n=1"))
            #expect(try await one.run("status").status == 0)
            #expect(try await other.run("records", "zones").output.contains("work"))
            #expect(try await other.run("records", "get", "w", "--zone", "work").status == 0)
            #expect(try await other.run("records", "ls", "--zone", "nosuch").status == 2)
            #expect(try await other.run("records", "changes", "--zone", "work").output == "Nothing is new.\n")

            let follow = try other.start(["records", "changes", "--follow", "--exit-after", "2", "--zone", "work"])
            try await Task.sleep(for: .seconds(1))
            #expect(try await one.run("records", "save", "w", "n=2", "--zone", "work").status == 0)
            try await eventually("it is told") { follow.output.contains("+ w (T)  n=2\n") || !isRunning(follow.pid) }
            #expect(try await one.run("records", "delete", "w", "--zone", "work").status == 0)
            let followed = await follow.outcome()
            #expect(followed.status == 0 && followed.output == "+ w (T)  n=2\n- w (T)\n", "\(followed)")

            let plan = try await one.run("records", "explain", "n > 1", "--type", "T", "--zone", "work")
            let add = try #require(plan.output.firstMatch(of: /nephos records index add.*/)).output
            #expect(try await one.run(shell: String(add)).status == 0)
            var explained = plan
            for _ in 0..<100 where !explained.output.contains("answered  n > 1") {
                explained = try await one.run("records", "explain", "n > 1", "--type", "T", "--zone", "work")
            }
            #expect(explained.output.contains("index     T n"), "\(explained)")
            #expect(try await one.run("records", "index", "--json").output.contains(#""type":"T""#))
            #expect(try await one.run("records", "index", "rm", "T", "m").status == 2)
            #expect(try await one.run("records", "index", "rm", "T", "n").status == 0)

            let asked = try await one.run("records", "zones", "delete", "work")
            #expect(asked.status == 64 && asked.errors.contains("--yes"), "\(asked)")
            #expect(try await one.run("records", "zones", "delete", "nosuch", "--yes").status == 2)
            #expect(try await one.run("records", "zones", "delete", "work", "--yes").status == 0)
            #expect(try await other.run("records", "zones", "--fresh").output.contains("work") == false)
        }
    }
}

extension Household {
    /// Both save `x` from what they know of it; the first comes late.
    ///
    /// - Parameters:
    ///   - deletes: The other deletes it instead.
    ///   - late: What the first runs then.
    ///   - output: Where the output of that goes.
    /// - Returns: Whether it is a conflict.
    func makeRecordConflict(
        _ one: Program, _ other: Program, here: [String] = ["title=of one"], there: [String] = ["title=of the other"],
        deletes: Bool = false, late: [String] = ["status", "--service", "records"], to output: String? = nil
    ) async throws -> Bool {
        // Also what was kept here before is sent then.
        guard try await one.run("records", "save", "x", "count=1").status == 0 else { return false }
        for program in [one, other] {
            guard try await program.run("records", "get", "x").status == 0 else { return false }
        }
        let service = try holder(.records)
        kill(service, SIGSTOP)
        let kept = try await one.run(["records", "save", "x"] + here + ["--offline"])
        // What it was sent meanwhile is gone with it.
        kill(service, SIGKILL)
        let words = deletes ? ["delete", "x"] : ["save", "x"] + there
        let won = try await other.run(["records"] + words + ["--timeout", "60"])
        guard kept.status == 0, won.status == 0 else { return false }
        _ = try await one.run(late, output: output)
        return try await one.run("records", "conflicts", "--json").output.contains(#""client":{"name":"x""#)
    }
}
