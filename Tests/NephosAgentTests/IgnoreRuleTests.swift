import Foundation
import Testing

@testable import NephosAgent

/// Patterns as gitignore(5) describes them.
@Suite struct IgnoreRuleTests {
    private func ignores(_ text: String, _ path: String) -> Bool {
        let isFolder = path.hasSuffix("/")
        let names = path.split(separator: "/").map { [UInt8]($0.utf8) }
        return IgnoreRule([UInt8](text.utf8)).ignores(names, isFolder: isFolder)
    }

    @Test(arguments: [
        ("a.log", "a.log", true), ("a.log", "x/y/a.log", true), ("*.log", "x/b.log", true), ("*.log", "b.txt", false),
        ("/a", "a", true), ("/a", "x/a", false), ("x/a", "x/a", true), ("x/a", "y/x/a", false),
        ("build/", "build/", true), ("build/", "build", false), ("build/", "x/build/", true),
        ("**/a", "a", true), ("**/a", "x/y/a", true), ("a/**", "a/b", true), ("a/**", "a/b/c", true),
        ("a/**", "a/", false), ("a/**/b", "a/b", true), ("a/**/b", "a/x/y/b", true), ("a/**/b", "b", false),
        ("?.c", "a.c", true), ("?.c", "ab.c", false), ("[ab].c", "b.c", true), ("[!ab].c", "b.c", false),
        ("# a", "# a", false), ("\\#a", "#a", true), ("a ", "a", true), ("a\\ ", "a ", true), ("a\r", "a", true),
        ("*\n!a", "a", false), ("!a\n*", "a", true), ("*.log\n!b.log", "b.log", false), ("", "a", false),
        ("/", "a", false), ("!", "a", false), ("x*y", "x/y", false), ("[", "a", false), ("*", "ä", true),
        ("**", "a", true), ("**/**/a", "x/a", true), ("a/**/b/**/c", "a/b/x/b/c", true),
        ("a/**/b/**/c", "a/x/c", false),
        (String(repeating: "**/a/", count: 40) + "b", String(repeating: "a/", count: 120) + "c", false),
        ("build/", "x/build/y/z", true),
        ("/x", "x/y", true), ("x/\n!x/y", "x/y", true),
    ]) func pattern(_ text: String, _ path: String, _ isIgnored: Bool) {
        #expect(ignores(text, path) == isIgnored)
    }
}
