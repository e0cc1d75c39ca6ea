import Foundation
import Testing

/// Items are found by what is known of them, and followed.
@Suite(.serialized) struct FindTests {
    @Test func itemsAreFoundByAPredicateInOrderAndFollowed() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(
                try await house.nephos.run("app", "create", "TEST.files", "--container", "TEST.files.documents").status
                    == 0)
            let file = house.folder + "/file"
            func docs(_ arguments: String...) async throws -> Program.Outcome {
                try await house.person.run(["docs"] + arguments + ["--app", "TEST.files"])
            }
            for (name, bytes) in [("Letters/a.pdf", 20_000), ("Letters/b.pdf", 100), ("c.PDF", 30_000), ("d.txt", 1)] {
                try Data(count: bytes).write(to: URL(fileURLWithPath: file))
                let put = try await docs("put", "-p", file, name)
                #expect(put.status == 0, "\(put)")
            }
            #expect(
                try await docs("find", "*.pdf").output
                    == "/Documents/Letters/a.pdf\n/Documents/Letters/b.pdf\n/Documents/c.PDF\n")
            let large = try await docs("find", "--where", "size > 10000 AND name LIKE[c] '*.pdf'", "--sort", "-size")
            #expect(large.status == 0 && large.output == "/Documents/c.PDF\n/Documents/Letters/a.pdf\n", "\(large)")
            #expect(
                try await docs("find", "--where", "size > 0", "Letters").output
                    == "/Documents/Letters/a.pdf\n/Documents/Letters/b.pdf\n")
            #expect(
                try await docs("find", "b", "Letters", "--where", "size > 0").output == "/Documents/Letters/b.pdf\n")
            let json = try await docs("find", "--where", "kind == 'folder'", "--json").output
            #expect(
                json.hasPrefix("[{") && json.hasSuffix("}]\n") && json.contains(#""path":"/Documents/Letters""#),
                "\(json)")
            let none = try await docs("find", "--where", "size > 1000000", "--json")
            #expect(none.status == 2 && none.output == "[]\n", "\(none)")
            let wrong = try await docs("find", "--where", "nmae == 'x'")
            #expect(
                wrong.status == 64 && wrong.errors.contains("Did you mean name?\n  nmae == 'x'\n  ^^^^\n"), "\(wrong)")
            let report = try await docs("find", "--where", "nmae == 'x'", "--json")
            #expect(report.status == 64 && report.errors.contains(#""offset":"0""#), "\(report)")
            #expect(try await docs("find", "x", "--sort", "tags").status == 64)
            #expect(try await docs("find", "--watch").status == 64)

            let watch = try house.person.start([
                "docs", "find", "--where", "name ENDSWITH '.pdf'", "--watch", "--exit-after", "3", "--app",
                "TEST.files",
            ])
            try await eventually("it has gathered") { watch.output.contains("b.pdf") }
            // Another process of the home, one after the other.
            for (arguments, line) in [
                (["mv", "d.txt", "d.pdf"], "+ /Documents/d.pdf\n"), (["put", file, "d.pdf"], "~ /Documents/d.pdf\n"),
            ] {
                try Data(count: 5).write(to: URL(fileURLWithPath: file))
                #expect(try await house.person.run(["docs"] + arguments + ["--app", "TEST.files"]).status == 0)
                try await eventually("\(line)") { watch.output.contains(line) || !isRunning(watch.pid) }
            }
            let watched = await watch.outcome()
            #expect(watched.status == 0, "\(watched)")
            #expect(
                watched.output.hasPrefix("/Documents/Letters/a.pdf\n/Documents/Letters/b.pdf\n+ /Documents/d.pdf\n"))
        }
    }
}
