import Foundation
import NephosCore
import Testing

/// A password that is asked for, or comes from a file.
@Suite(.serialized) struct PromptTests {
    /// A terminal, and a command that asks at it.
    private func withPrompt(
        _ arguments: [String] = ["account", "create", "ann", "--deployment", "/nowhere"],
        _ body: (_ command: Program.Running, _ type: ([UInt8]) -> Void, _ isShown: () -> Bool) async throws -> Void
    ) async throws {
        let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        try #require(terminal >= 0)
        defer { close(terminal) }
        // TIOCSPTLCK and TIOCGPTN, which Swift's Glibc module does not carry: unlock it, and tell its number.
        var number: Int32 = 0
        try #require(ioctl(terminal, 0x4004_5431, &number) == 0 && ioctl(terminal, 0x8004_5430, &number) == 0)
        let name = "/dev/pts/\(number)"
        // The terminal's settings go with the last that has it open.
        let kept = open(name, O_RDWR | O_NOCTTY)
        defer { close(kept) }
        func isShown() -> Bool {
            var settings = termios()
            return tcgetattr(kept, &settings) == 0 && settings.c_lflag & tcflag_t(ECHO) != 0
        }
        let command = try Program(name: "nephos").start(
            arguments, input: name, before: ["setsid", "-c", "-w"])
        try await body(command, { bytes in _ = write(terminal, bytes, bytes.count) }, isShown)
    }

    @Test func ctrlCEndsThePromptAndTheEchoIsBack() async throws {
        try await withPrompt { command, type, isShown in
            try await eventually("it asks") { !isShown() }
            type([3])
            #expect(await command.outcome().status == 130)
            #expect(isShown())
        }
    }

    @Test(arguments: [[4], [10], Array("half".utf8) + [4, 4], [0xff, 10]] as [[UInt8]])
    func whatIsNoPasswordIsNotSent(_ typed: [UInt8]) async throws {
        try await withPrompt { command, type, isShown in
            try await eventually("it asks") { !isShown() }
            type(typed)
            let outcome = await command.outcome()
            #expect(outcome.status == 64, "\(outcome.errors)")
            #expect(!outcome.errors.contains("The same once more"))
            #expect(isShown())
        }
    }

    /// A command that asks for a new password.
    struct Asking: Sendable, CustomTestStringConvertible {
        var command: [String]
        var prompts: [String]
        /// How it ends where there is neither a deployment nor a home.
        var status: Int32

        var testDescription: String { command.prefix(2).joined(separator: " ") }

        static let all = [
            Asking(
                command: ["account", "create", "ann", "--deployment", "/nowhere"], prompts: ["Password: "], status: 8),
            Asking(
                command: ["account", "set-password", "ann", "--deployment", "/nowhere"], prompts: ["New password: "],
                status: 8),
            Asking(
                command: ["account", "password", "--home", "/nowhere"],
                prompts: ["Present password: ", "New password: "], status: 4),
        ]
    }

    @Test(arguments: Asking.all, ["correct horse battery", "correct horse batterz"])
    func aNewPasswordIsAskedForTwice(_ asking: Asking, _ second: String) async throws {
        try await withPrompt(asking.command) { command, type, _ in
            for prompt in asking.prompts {
                try await eventually("it asks") { command.errors.hasSuffix(prompt) }
                type(Array("correct horse battery\n".utf8))
            }
            try await eventually("it asks again") { command.errors.hasSuffix("The same once more: ") }
            type(Array((second + "\n").utf8))
            let outcome = await command.outcome()
            // With one that is right it goes on, to what is not there.
            let isRight = second == "correct horse battery"
            #expect(outcome.status == (isRight ? asking.status : 64), "\(outcome)")
            #expect(outcome.errors.contains("not the same") == !isRight, "\(outcome)")
        }
    }

    @Test func nothingThatIsTypedAtThePromptIsShown() async throws {
        for _ in 0..<5 {
            try await withPrompt { command, type, isShown in
                while !command.errors.contains("Password:") { usleep(50) }
                #expect(!isShown())
                type([3])
                #expect(await command.outcome().status == 130)
            }
        }
    }

    @Test func aPasswordsFileMayBeAPipeAndAnEmptyOneSaysSo() async throws {
        // Only what comes after the password is missing.
        let nephos = Program(name: "nephos")
        let create = ["account", "create", "ann", "--deployment", "/nowhere", "--password-file"]
        let pipe = ["bash", "-c", #"exec "$@" <(echo correct horse battery)"#, "bash"]
        #expect(try await nephos.run(create, before: pipe).status == 8)
        let emptyPipe = ["bash", "-c", #"exec "$@" <(true)"#, "bash"]
        for outcome in [
            try await nephos.run(create + ["/dev/null"]), try await nephos.run(create, before: emptyPipe),
            try await nephos.run(create.dropLast() + ["--password-stdin"]),
        ] {
            #expect(outcome.status == 64, "\(outcome.errors)")
            #expect(outcome.errors.contains("empty"), "\(outcome.errors)")
        }
        let missing = try await nephos.run(create + ["/no/such/file"])
        #expect(missing.status == 8, "\(missing.errors)")
        #expect(missing.errors.contains("/no/such/file"))
    }
}
