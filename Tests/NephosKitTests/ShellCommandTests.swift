import Foundation
import NephosCore
import Testing

@testable import NephosKit

/// A line that is printed to be copied means in a shell what it means here.
struct ShellCommandTests {
    private static let texts = [
        "plain", "", " ", "a b", "it's", "\"$HOME\" `id` !x", "-5", "--", "~", "*", "#", "a=b", "=a", "\\n", "l1\nl2\t",
        "é",
        "e\u{301}", "'\u{301}", "\u{1b}[31mred\u{202e}'\\", "👩\u{200d}👩", "x\u{ad}7", "\u{feff}", "字",
    ]

    private func shell(_ line: String) throws -> [String] {
        let (process, pipe) = (Process(), Pipe())
        process.executableURL = URL(fileURLWithPath: "/bin/bash")
        process.arguments = ["-c", "printf '%s\\0' \(line)"]
        process.standardOutput = pipe
        try process.run()
        let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return output.split(separator: 0, omittingEmptySubsequences: false).dropLast()
            .map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func aWordIsOneWordAndTheSame() throws {
        let words = try shell(Self.texts.map(ShellCommand.word).joined(separator: " "))
        // Swift takes strings for equal that are not the same bytes.
        #expect(words.map { Array($0.utf8) } == Self.texts.map { Array($0.utf8) })
        #expect(Self.texts.allSatisfy { !ShellCommand.word($0).hasUnseenCharacters })
    }

    @Test func whatLooksLikeAnOptionComesAfterTheDashes() {
        #expect(ShellCommand.arguments(["k", "1"]) == "k 1")
        #expect(ShellCommand.arguments(["k", "-1"]) == "-- k -1")
        #expect(ShellCommand.arguments(["-\u{301}", "a b"]) == "-- '-\u{301}' 'a b'")
        let app = AppID("com.example.my notes")
        #expect(ShellCommand.options(app: app, isDefault: true, home: nil) == "")
        #expect(
            ShellCommand.options(app: app, isDefault: false, home: "/my home")
                == " --app='com.example.my notes' --home='/my home'")
        #expect(ShellCommand.options(app: app, isDefault: true, home: Session.defaultHome.path) == "")
    }
}
