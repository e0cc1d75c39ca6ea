import Foundation
import NephosCore
import Testing

/// A password that is asked for, or comes from a file.
@Suite(.serialized) struct PromptTests {
    /// A terminal, and a command that asks at it.
    private func withPrompt(
        _ nephos: Program, _ arguments: [String],
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
        let command = try nephos.start(arguments, input: name, before: ["setsid", "-c", "-w"])
        try await body(command, { bytes in _ = write(terminal, bytes, bytes.count) }, isShown)
    }

    private static let create = ["account", "create", "bob"]

    @Test func ctrlCEndsThePromptAndTheEchoIsBack() async throws {
        try await withHousehold { house in
            try await house.begin()
            try await withPrompt(house.nephos, Self.create) { command, type, isShown in
                try await eventually("it asks") { !isShown() }
                type([3])
                #expect(await command.outcome().status == 130)
                #expect(isShown())
            }
            // What is no password is not sent.
            for typed in [[4], [10], Array("half".utf8) + [4, 4], [0xff, 10]] as [[UInt8]] {
                try await withPrompt(house.nephos, Self.create) { command, type, isShown in
                    try await eventually("it asks") { !isShown() }
                    type(typed)
                    let outcome = await command.outcome()
                    #expect(outcome.status == 64, "\(outcome.errors)")
                    #expect(!outcome.errors.contains("The same once more"))
                    #expect(isShown())
                }
            }
            // Nothing that is typed at the prompt is shown.
            for _ in 0..<5 {
                try await withPrompt(house.nephos, Self.create) { command, type, isShown in
                    try await eventually("it asks") { command.errors.contains(PasswordLimits.prompt) }
                    #expect(!isShown())
                    type([3])
                    #expect(await command.outcome().status == 130)
                }
            }
        }
    }

    @Test func aNewPasswordIsAskedForTwice() async throws {
        try await withHousehold { house in
            try await house.begin()
            let right = "correct horse battery"
            for (arguments, prompts) in [
                (Self.create, [PasswordLimits.prompt]),
                (["account", "set-password", Household.accountName], [PasswordLimits.prompt]),
                (["account", "password"], ["Present password: ", PasswordLimits.prompt]),
            ] {
                for second in ["correct horse batterz", right] {
                    try await withPrompt(house.nephos, arguments) { command, type, _ in
                        for prompt in prompts {
                            try await eventually("it asks") { command.errors.hasSuffix(prompt) }
                            type(Array((right + "\n").utf8))
                        }
                        try await eventually("it asks again") { command.errors.hasSuffix("The same once more: ") }
                        type(Array((second + "\n").utf8))
                        let outcome = await command.outcome()
                        #expect(outcome.status == (second == right ? 0 : 64), "\(outcome)")
                        #expect(outcome.errors.contains("not the same") == (second != right), "\(outcome)")
                    }
                }
            }
        }
    }

    /// Neither for a password, nor whether something is meant.
    @Test func nobodyIsAskedBeforeTheRestIsInOrder() async throws {
        try await withHousehold { house in
            try await house.begin()
            let connection = try await house.connection
            let file = house.folder + "/file"
            try Data().write(to: URL(fileURLWithPath: file))
            let signIn = ["sign-in", connection, "--account", Household.accountName]
            func check(_ arguments: [String], _ status: Int32) async throws {
                try await withPrompt(house.nephos, arguments) { command, type, _ in
                    while isRunning(command.pid) {
                        if (command.output + command.errors).hasSuffix(": ") { type([3]) }
                        try await Task.sleep(for: .milliseconds(20))
                    }
                    let outcome = await command.outcome()
                    #expect(outcome.status == status, "\(arguments): \(outcome)")
                    #expect(!outcome.errors.contains("assword: ") && outcome.output.isEmpty, "\(arguments): \(outcome)")
                }
            }
            for command in [Self.create, ["account", "set-password", "ann"], ["account", "close", "ann"]] {
                try await check(command + ["--deployment", house.folder + "/nowhere"], 8)
            }
            try await check(["account", "create", Household.accountName], 1)
            try await check(Self.create + ["--plan", "nope"], 2)
            try await check(["account", "set-password", "nobody"], 2)
            try await check(["account", "close", "nobody"], 2)
            try await check(signIn + ["--home", file], 8)
            try await check(["account", "password", "--password-file", house.folder + "/nowhere"], 2)
            #expect(try await house.nephos.run("account", "lock", Household.accountName).status == 0)
            try await check(["account", "password"], 7)
            try await check(["account", "close"], 7)
            #expect(try await house.nephos.run("down").status == 0)
            for command in [
                Self.create, ["account", "set-password", "ann"], ["account", "close", "ann"], ["account", "close"],
                ["account", "password"], signIn + ["--home", house.folder + "/new"],
            ] {
                try await check(command, 5)
            }
            #expect(try await house.nephos.run("sign-out").status == 0)
            for command in [["account", "password"], ["account", "close"]] { try await check(command, 4) }
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
        #expect(missing.status == 2, "\(missing.errors)")
        #expect(missing.errors.contains("/no/such/file"))
    }
}
