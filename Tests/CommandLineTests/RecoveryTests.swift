import Foundation
import NephosCore
import Testing

/// What was overwritten comes back as it was, by the line that is printed for that.
@Suite(.serialized) struct RecoveryTests {
    /// A key, and what is typed for its value: a type and a text.
    private static let values: [(key: String, type: String, text: String)] = [
        ("spaced key", "string", "a b  \"c\" $d 'e' `f` !g"), ("number", "string", "42"), ("dash", "string", "-x"),
        ("-key", "integer", "-5"), ("lone", "json", #""-""#), ("nul", "json", #""a\u0000b""#), ("empty", "string", ""),
        ("lines", "string", "one\ntwo\u{202e}"), ("real", "real", "2.0"), ("far", "json", #"{"$real":"-inf"}"#),
        ("date", "date", "2026-01-31T12:00:00.123Z"), ("data", "data", "AP8="), ("yes", "boolean", "true"),
        ("list", "json", #"[1,2.0,{"$data":"AA=="},{"k'":"it's"}]"#),
        ("long", "string", String(repeating: "x ", count: 2000)),
    ]

    @Test func whatIsPrintedBringsItBackAsItWas() async throws {
        try await withTenant { house in
            let person = house.person
            for (key, type, text) in Self.values {
                let set = try await person.run("kv", "set", "--type", type, "--offline", "--", key, text)
                #expect(set.status == 0, "\(key): \(set)")
            }
            let before = try await person.run("kv", "export").output
            #expect(try await person.run("kv", "sync").status == 0)
            for (key, _, _) in Self.values {
                #expect(try await person.run("kv", "set", "--offline", "--", key, "other").status == 0)
            }
            #expect(try await person.run("kv", "sync").status == 0)
            let conflicts = try await person.run("history")
            let lines = conflicts.output.matches(of: /get it back   (.*)\n?/).map { String($0.output.1) }
            #expect(lines.count == Self.values.count, "\(conflicts)")
            #expect(conflicts.output.components(separatedBy: "replaced by   other\n").count == lines.count + 1)
            for line in lines {
                let again = try await person.run(shell: line)
                #expect(again.status == 0, "\(line): \(again)")
            }
            #expect(try await person.run("kv", "export").output == before)
        }
    }
}
