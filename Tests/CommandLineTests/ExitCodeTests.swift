import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Every command, in every situation in which it must fail, ends with the documented exit code.
@Suite(.serialized) struct ExitCodeTests {
    private static let connection = "nephos://127.0.0.1:9/" + String(repeating: "1", count: 32) + "8o1"

    /// A folder that an agent is to keep.
    private static let agentFolder = NSTemporaryDirectory() + "nephos-test-agent-\(getpid())"

    /// The public half of one.
    private static let recoveryKey = "FQJ791MV-3BRCP1PC-ZZM33E7M-6P9YWGTA-PBK0A5WE-NYAFV9P2-ZSF40FC7"

    private func leaves(_ nephos: Program) async throws -> [CommandDump.Leaf] {
        let file = NSTemporaryDirectory() + "nephos-test.json"
        try Data("{\"a\":1}".utf8).write(to: URL(fileURLWithPath: file))
        let lines = NSTemporaryDirectory() + "nephos-test.jsonl"
        try Data(#"{"name":"imported","type":"T","fields":{"a":1}}"#.utf8).write(to: URL(fileURLWithPath: lines))
        let leaves = try await CommandDump.leaves(
            of: nephos,
            values: [
                "connection": Self.connection, "size": "5GB", "file": file, "id": "TEST.app", "keys": "k",
                "host": "127.0.0.1", "version-id": String(repeating: "1", count: 32),
                "link": String(repeating: "1", count: 32),
                "key": Self.recoveryKey,
            ]
        ).map { leaf in
            var leaf = leaf
            // Of some commands of documents an argument is a local file, or has to be something else than another's.
            if leaf.name == "docs put" { leaf.sample = [file, "x"] }
            if leaf.name == "records import" { leaf.sample = [lines] }
            leaf.sample = Self.samples[leaf.name] ?? leaf.sample
            return leaf
        }
        #expect(leaves.count > 30)
        return leaves
    }

    /// Arguments of those that look at documents and records; the file and the record `x` are there, where anything is.
    private static let samples = [
        "agent add": [agentFolder], "agent remove": [agentFolder], "agent allow": [agentFolder],
        "agent restore": [agentFolder], "agent pause": [agentFolder], "agent resume": [agentFolder],
        "agent evict": [agentFolder], "agent download": [agentFolder], "agent policy": [agentFolder],
        "agent plan": [agentFolder], "agent only-here": [agentFolder], "agent check": ["/tmp"],
        "agent coordinate": [agentFolder, "--", "true"],
        "docs get": ["x", "-"], "docs cp": ["-f", "x", "copied"], "docs mv": ["-f", "moved", "elsewhere"],
        "docs mkdir": ["d"], "docs rm": ["removed"], "docs pause": ["x"], "docs resume": ["x"],
        "records save": ["x", "a=1", "--type", "T"], "records delete": ["removed"],
        "completions": ["bash"], "records resolve": ["x", "--keep", "server"], "records asset": ["x", "photo"],
        "settings set": ["NEPHOS_IDENTITY_LOG_LEVEL=info"], "settings unset": ["NEPHOS_IDENTITY_LOG_LEVEL"],
    ]

    /// What of a person's files a command needs.
    private enum Need {
        case device, deployment, nothing
    }

    private func need(_ leaf: CommandDump.Leaf) -> Need {
        switch leaf.name {
        // The first two make what the others need; the third needs no more than a server.
        case "init", "restore", "sign-in": .nothing
        // It says what there is of both, and misses the deployment where there is neither.
        case "status": .deployment
        // It reads a folder of backups; that the deployment learns of it is a convenience.
        case "backup verify": .nothing
        default: leaf.options.contains("home") ? .device : leaf.options.contains("deployment") ? .deployment : .nothing
        }
    }

    /// What a command insists on, though each of it may be left out.
    private static let needed = [
        "agent run": ["--once"],
        "plan assign": ["--account", "x"], "app update": ["--name", "x"], "kv set": ["x"], "discard": ["--all"],
        "kv discard": ["--all"], "kv resolve": ["--all"], "docs resolve": ["--keep", "current"], "docs find": ["x"],
        "storage delete": ["--documents", "nowhere"], "records roles set": ["--everyone", "none"],
    ]

    /// What keeps a command from asking anything.
    private func answers(_ leaf: CommandDump.Leaf) -> [String] {
        (leaf.options.contains("yes") ? ["--yes"] : [])
            + (Self.needed[leaf.name] ?? [])
            // Only with --watch or --follow, where that is an option.
            + (leaf.options.contains("exit-after") && leaf.options.isDisjoint(with: ["watch", "follow"])
                ? ["--exit-after", "1"] : [])
    }

    private func check(
        _ nephos: Program, _ leaves: [CommandDump.Leaf], _ more: [String] = [], output: String? = nil,
        before: [String] = [], _ expected: (CommandDump.Leaf) -> Int32?
    ) async throws {
        for leaf in leaves {
            guard let code = expected(leaf) else { continue }
            let outcome = try await nephos.run(
                leaf.path + more + leaf.sample + answers(leaf), output: output, before: before)
            #expect(outcome.status == code, "\(leaf.name): \(outcome.output)\(outcome.errors)")
            #expect(!outcome.errors.contains("NSCocoaErrorDomain"), "\(leaf.name): \(outcome.errors)")
            #expect(!outcome.errors.contains("Error Domain"), "\(leaf.name): \(outcome.errors)")
        }
    }

    private func nephos(_ folder: String) -> Program {
        Program(
            name: "nephos",
            environment: [
                "NEPHOS_DEPLOYMENT": folder + "/deployment", "NEPHOS_HOME": folder + "/home",
                "NEPHOS_PASSWORD": "correct horse battery",
            ])
    }

    private func withFolder(_ body: (String) async throws -> Void) async throws {
        let folder = NSTemporaryDirectory() + "nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(folder)
    }

    @Test func theTableIsTheSameInTheHelpAndInTheManual() async throws {
        let help = try await Program(name: "nephos").run("help", "exit-codes").output
            .split(whereSeparator: \.isWhitespace).joined(separator: " ")
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let manual = try String(
            contentsOf: root.appendingPathComponent("docs/command-line.md"), encoding: .utf8)
        let rows = manual.split(separator: "\n").filter { $0.contains(/^\| [0-9]+ \|/) }
        #expect(rows.count == 13)
        for row in rows {
            let cells = row.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            #expect(help.contains("\(cells[0]) \(cells[1])"), "\(row)")
        }
    }

    @Test func wrongUsageIs64() async throws {
        let nephos = Program(name: "nephos")
        for leaf in try await leaves(nephos) {
            let outcome = try await nephos.run(leaf.path + ["--no-such-option"] + leaf.sample)
            #expect(outcome.status == 64, "\(leaf.name): \(outcome.errors)")
        }
        let negative = try await nephos.run("kv", "set", "n", "-5")
        #expect(negative.status == 64)
        #expect(negative.errors.contains("nephos kv set n -- -5"))
        let option = try await nephos.run("kv", "sync", "--timeout", "-1")
        #expect(option.status == 64)
        #expect(option.errors.contains("--timeout=-1") && !option.errors.contains("-- -1"), "\(option.errors)")
        for wrong in [
            ["kv", "history", "--limit", "0"], ["kv", "history", "--limit", "1001"], ["watch", "--exit-after", "0"],
            ["account", "close", "x", "--yes", "--wait=-1"], ["kv", "get", "k", "--fresh", "--offline"],
            ["watch", "--bus", "--app", "x"], ["status", "--connection", "--app", "x"],
            ["storage", "--account", "x", "--app", "x"], ["storage", "delete"],
            ["docs", "versions", "x", "--others", "--remove", "y"], ["storage", "delete", "--trash", "--versions"],
            ["storage", "delete", "--trash", "--all"], ["storage", "delete", "--hidden", "--trash"],
            ["kv", "set", "k", "1", "--from", "x"],
            ["account", "create", "x", "--password-stdin", "--password-file", "x"], ["docs", "resolve", "x"],
            ["docs", "put", "-"], ["docs", "put", "x", "--limit-rate", "999"], ["docs", "cat", "x", "--offset=-1"],
            ["docs", "put", "x", "--limit-rate", "5X"], ["docs", "put", "x", "--databases", "take"],
            ["docs", "put", "x", "--rendition", "t"],
            ["records", "save"], ["records", "save", "x", "--json-line", "{}"], ["records", "save", "-", "a=1"],
            ["records", "save", "x", "a"], ["records", "save", "x", "--integer", "a=b"],
            ["records", "save", "x", "a=1", "--string", "a=1"], ["records", "save", "x", "a=1", "--remove", "a"],
            ["records", "save", "--json-line", "{}"], ["records", "query", "a =="],
            ["records", "query", "--sort", "?"],
            ["records", "ls", "--limit", "0"], ["records", "get", "x", "--server", "--offline"],
            ["records", "changes", "--exit-after", "1"], ["records", "resolve", "x", "--keep", "both"],
            ["records", "index", "add", "T", "a[x]"],
            ["backup", "x", "--keep", "daily"], ["restore", "x", "--keep-keys", "--recovery-key-stdin"],
            ["restore", "x", "--port", "0"], ["docs", "get", "x", "--rendition", "t", "-r"],
        ] {
            #expect(try await nephos.run(wrong).status == 64, "\(wrong)")
        }
        for reading in [
            ["kv", "set", "k", "-"], ["kv", "import", "-"], ["account", "create", "x", "--password-stdin"],
        ] {
            let closed = try await nephos.run(reading, before: ["sh", "-c", #"exec "$@" <&-"#, "sh"])
            #expect(closed.status == 64 && closed.errors.contains("Standard input is closed"), "\(reading): \(closed)")
        }
        for timeout in ["nan", "inf", "-1", "0", "1e300"] {
            #expect(try await nephos.run("kv", "sync", "--timeout=\(timeout)").status == 64)
        }
    }

    @Test func anArgumentThatIsNotTextIsRefusedByEveryCommand() async throws {
        let nephos = Program(name: "nephos")
        for leaf in try await leaves(nephos) {
            // Swift's strings cannot hold the byte; a shell can write it.
            let outcome = try await nephos.run(
                leaf.path + leaf.sample, before: ["sh", "-c", #"exec "$@" "$(printf 'bad\377')""#, "sh"])
            #expect(outcome.status == 64, "\(leaf.name): \(outcome.output)\(outcome.errors)")
            #expect(outcome.errors.contains("not text in UTF-8"), "\(leaf.name): \(outcome.errors)")
        }
    }

    @Test func whatOnlyReadsMakesNoHome() async throws {
        try await withFolder { folder in
            let nephos = nephos(folder)
            for leaf in try await leaves(nephos) where need(leaf) == .device {
                let outcome = try await nephos.run(leaf.path + leaf.sample + answers(leaf))
                #expect(outcome.status == 4, "\(leaf.name): \(outcome.errors)")
                #expect(!FileManager.default.fileExists(atPath: folder + "/home"), "\(leaf.name)")
            }
            // What is set before anybody signs in is kept.
            let kept = try await nephos.run("kv", "set", "k", "1", "--app", "TEST.app", "--offline")
            #expect(kept.status == 0, "\(kept.errors)")
            #expect(FileManager.default.fileExists(atPath: folder + "/home"))
        }
    }

    @Test func outputThatCannotBeWrittenIs74() async throws {
        let nephos = Program(name: "nephos")
        for leaf in try await leaves(nephos) {
            let outcome = try await nephos.run(leaf.path + ["--help"], output: "/dev/full")
            #expect(outcome.status == 74, "\(leaf.name): \(outcome.errors)")
        }
    }

    /// What a command needs to have something to print, where the sample arguments are refused.
    private static let realArguments = [
        "app update": ["TEST.app", "--name", "x"], "app create": ["TEST.other"],
        "plan assign": ["standard", "--account", Household.accountName],
        "account lock": ["other"], "account unlock": ["other"], "account set-password": ["other"],
        "devices rename": ["second", "third"], "devices revoke": ["third"], "kv get": ["k"],
        "account close": ["--yes"], "wipe": ["--yes", "--discard-unsent"], "storage delete": ["--trash", "--yes"],
        "app token create": ["default"], "app token list": ["default"],
        "docs set": ["x", "--tag", "x"],
        "records roles set": ["Note", "--everyone", "none", "--app", "TEST.app"],
        "records roles reset": ["Note", "--app", "TEST.app"],
    ]

    /// These are last, in this order: nothing comes after what they do.
    private static let lastCommands = [
        "recovery-key set", "app remove", "devices rename", "devices revoke", "account password", "sign-out", "sign-in",
        "up",
        "account close", "wipe", "down", "secrets rotate-master-keys", "secrets rotate-service-keys",
        "secrets rotate-operator-key", "advertise", "init",
    ]

    @Test func whatACommandDidAndCouldNotSayIs74() async throws {
        try await withHousehold(["--web-port", "\(try Web.freePort())"]) { house in
            try await house.begin()
            let person = house.person
            for preparation in [
                ["app", "create", "TEST.app", "--container", "TEST.c"], ["account", "create", "other"],
                ["kv", "set", "k", "1"], ["container", "save", "TEST.c", "--administrator", Household.accountName],
            ] {
                #expect(try await person.run(preparation).status == 0, "\(preparation)")
            }
            #expect(try await person.run("backup", house.folder + "/backups").status == 0)
            for name in ["synced", "removed"] {
                #expect(try await person.run("agent", "add", house.folder + "/" + name).status == 0)
            }
            let second = try await house.anotherDevice("second")
            #expect(try await person.run("docs", "ls").status == 0)
            #expect(try await person.run("records", "ls").status == 0)
            try await putDocuments(person, on: house)
            try await makeConflict(person, second, on: house)
            let versions = try await person.run("docs", "versions", "x", "--json").output
            let version = try #require(versions.matches(of: /"version":"([0-9a-f]{32})"/).last).output.1
            let published = try await person.run("docs", "publish", "x", "--json").output
            let link = try #require(published.firstMatch(of: /"id":"([0-9a-f]{32})"/)).output.1
            let made = try await person.run("app", "token", "create", "default", "--json").output
            let token = try #require(made.firstMatch(of: /"id":"([0-9a-f]{16})"/)).output.1
            let connection = try await house.connection
            let leaves = try await leaves(person)
            let last = Self.lastCommands.compactMap { name in leaves.first { $0.name == name } }
            #expect(last.count == Self.lastCommands.count)
            for leaf in leaves.filter({ !Self.lastCommands.contains($0.name) }) + last {
                var program = person
                var arguments = Self.realArguments[leaf.name] ?? leaf.sample + answers(leaf)
                switch leaf.name {
                case "init":
                    program.environment["NEPHOS_DEPLOYMENT"] = house.folder + "/new"
                    arguments = ["--port", "\(try #require(LocalPorts.firstFree(from: 9_000)))"]
                case "sign-in": arguments = [connection, "--account", Household.accountName]
                case "kv mirror": arguments = [house.folder + "/mirrored.json"]
                case "agent add": arguments = [house.folder + "/added"]
                case "agent remove": arguments = [house.folder + "/removed"]
                // These ask an agent, and none runs.
                case "agent evict", "agent download": continue
                // The output is the command's.
                case "agent coordinate": continue
                case "agent allow", "agent restore", "agent pause", "agent resume", "agent policy",
                    "agent plan", "agent only-here":
                    arguments = [house.folder + "/synced"]
                case "docs restore": arguments = ["x", "--version-id", String(version)]
                case "docs unpublish": arguments = [String(link)]
                case "app token revoke": arguments = [String(token)]
                case "kv set", "kv delete": arguments = leaf.sample + answers(leaf) + ["--offline"]
                case "watch": arguments = []
                case "backup make", "backup verify", "backup list": arguments = [house.folder + "/backups"]
                case "restore":
                    arguments = [house.folder + "/backups", "--dry-run", "--deployment", house.folder + "/none"]
                default: break
                }
                let outcome = try await program.run(leaf.path + arguments, output: "/dev/full")
                #expect(outcome.status == 74, "\(leaf.name): \(outcome.errors)")
                #expect(outcome.errors.contains("The output could not be written."), "\(leaf.name): \(outcome.errors)")
            }
        }
    }

    /// The files that the samples are about, kept on the device.
    private func putDocuments(_ person: Program, on house: Household) async throws {
        let file = house.folder + "/document"
        try Data("a document".utf8).write(to: URL(fileURLWithPath: file))
        for path in ["x", "moved", "removed"] {
            let put = try await person.run("docs", "put", file, path, "--offline")
            #expect(put.status == 0, "\(put.errors)")
        }
        for name in ["x", "removed"] {
            let saved = try await person.run(
                "records", "save", name, "b=1", "--type", "T", "--asset", "photo=\(file)", "--offline")
            #expect(saved.status == 0, "\(saved.errors)")
        }
    }

    /// Both write `x` from what they know of it.
    private func makeConflict(_ one: Program, _ other: Program, on house: Household) async throws {
        #expect(try await one.run("docs", "status").status == 0)
        #expect(try await other.run("docs", "ls").status == 0)
        try await house.whileDocumentsStandStill {
            // The other device never got the file: it is told of the conflict at once.
            for (program, text, status) in [(one, "of one", 0), (other, "of the other", 6)]
                as [(Program, String, Int32)]
            {
                let file = house.folder + "/document"
                try Data(text.utf8).write(to: URL(fileURLWithPath: file))
                let put = try await program.run("docs", "put", file, "x", "--offline")
                #expect(put.status == status, "\(put)")
            }
        }
        // The one whose change makes the conflict is told by its exit code.
        for (program, code) in [(one, 0), (other, 6), (one, 0)] as [(Program, Int32)] {
            let status = try await program.run("docs", "status")
            #expect(status.status == code, "\(status)")
        }
        #expect(try await one.run("docs", "ls").output.contains("1 conflict"))
        #expect(try await house.makeRecordConflict(one, other))
    }

    @Test func withoutADeploymentItIs8AndWithoutASignIn4() async throws {
        try await withFolder { folder in
            let nephos = nephos(folder)
            try await check(nephos, try await leaves(nephos)) { leaf in
                switch need(leaf) {
                // Nobody has signed in yet, so that it does not even know which app is meant.
                case .device: 4
                case .deployment: 8
                case .nothing: nil
                }
            }
        }
    }

    @Test func aDamagedDeploymentIs8() async throws {
        try await withFolder { folder in
            let nephos = nephos(folder)
            try FileManager.default.createDirectory(
                atPath: folder + "/deployment", withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700])
            try Data("{".utf8).write(to: URL(fileURLWithPath: folder + "/deployment/roster.json"))
            chmod(folder + "/deployment/roster.json", 0o600)
            // Logs and settings are files of their own, and can be read. Nothing was logged here.
            try await check(nephos, try await leaves(nephos)) { leaf in
                guard need(leaf) == .deployment else { return nil }
                return leaf.name == "logs" ? 2 : leaf.name.hasPrefix("settings ") ? 0 : 8
            }
        }
    }

    @Test func whatThisUserMayNotReadIs4AndNotMissing() async throws {
        // A user who owns nothing; as that one the test runs already where it is not run by root.
        let nobody = getuid() == 0 ? ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] : []
        try await withFolder { folder in
            let nephos = nephos(folder)
            for name in ["deployment", "home"] {
                try FileManager.default.createDirectory(
                    atPath: "\(folder)/\(name)", withIntermediateDirectories: true)
                chmod("\(folder)/\(name)", 0)
            }
            try await check(nephos, try await leaves(nephos), before: nobody) { need($0) == .nothing ? nil : 4 }
        }
    }

    @Test func whoWasTurnedAwayIsToldWhy() async throws {
        try await withHousehold { house in
            try await house.begin()
            let leaves = try await leaves(house.person)
            // None is forgotten, and none is listed that is not there.
            let ofDevice = leaves.filter { isOfDevice($0) }
            #expect(Set(ofDevice.map(\.name)) == Set(Self.turnedAway.keys))
            #expect(try await house.person.run("kv", "set", "here", "1").status == 0)
            #expect(try await house.person.run("docs", "ls").status == 0)
            #expect(try await house.person.run("records", "ls").status == 0)
            let other = try await house.anotherDevice("other")
            let signIn = [
                "sign-in",
                try await house.connection, "--account", Household.accountName,
            ]

            #expect(try await house.nephos.run("account", "lock", Household.accountName).status == 0)
            // Seconds may pass until everybody knows.
            while try await house.person.run("kv", "sync").status == 0 {}
            try await putDocuments(house.person, on: house)
            try await check(house.person, leaves, before: ["timeout", "120"]) { Self.turnedAway[$0.name]?.locked }
            // What goes on says so, and ends as it was ended.
            let watch = try house.person.start(["watch"])
            try await eventually("it says so") { watch.output.contains("The account is locked") }
            watch.signal(SIGINT)
            #expect(await watch.outcome().status == 130)
            let held = try house.person.start(
                ["kv", "mirror", house.folder + "/held.json"], before: ["timeout", "120"])
            try await eventually("it says so") { held.output.contains("The account is locked") }
            try await Task.sleep(for: .seconds(2))
            #expect(held.output.components(separatedBy: "The account is locked").count == 2, "\(held.output)")
            held.signal(SIGTERM)
            _ = await held.outcome()
            #expect(try await house.person.run(signIn).status == 7)
            #expect(try await other.run("sign-out").status == 0)
            #expect(try await house.nephos.run("account", "unlock", Household.accountName).status == 0)
            while try await house.person.run("kv", "sync").status != 0 {}

            let mirror = try house.person.start(
                ["kv", "mirror", house.folder + "/mirrored.json"], before: ["timeout", "120"])
            try await eventually("it mirrors") { mirror.output.contains("Mirroring") }
            let whoami = try await house.person.run("whoami", "--json").output
            let id = try #require(whoami.firstMatch(of: /dev_[a-z0-9]+/)).output
            #expect(
                try await house.nephos.run("devices", "revoke", String(id), "--account", Household.accountName).status
                    == 0)
            while try await house.person.run("kv", "sync").status == 0 {}
            #expect(await mirror.outcome().status == 4)
            try await putDocuments(house.person, on: house)
            try await check(house.person, leaves, before: ["timeout", "120"]) { Self.turnedAway[$0.name]?.revoked }
            let said = try await house.person.run("status", "--app", "default").output
            #expect(said.components(separatedBy: "This device was revoked by the operator, ").count == 2, "\(said)")
            #expect(try await house.person.run("sign-out", "--keep-unsent").status == 0)
            // What nobody's store has is not what the account's has.
            for command in [["kv", "list"], ["kv", "get", "here"], ["kv", "export"], ["discard", "--all"]] {
                let nobody = try await house.person.run(command)
                #expect(nobody.status == 4 && nobody.output.isEmpty, "\(command): \(nobody)")
            }
            // That key is spent; the device gets another.
            #expect(try await house.person.run(signIn).status == 0)
            #expect(try await house.person.run("kv", "sync").status == 0)

            #expect(try await house.nephos.run("down").status == 0)
            try await check(house.person, leaves, ["--timeout", "5"]) { leaf in
                guard leaf.options.contains("timeout") else { return nil }
                // What asks no service works without them.
                return need(leaf) == .deployment && !leaf.name.hasPrefix("settings ")
                    && !["up", "down", "logs", "backup make"].contains(leaf.name)
                    && !leaf.name.hasPrefix("recovery-key ")
                    && !leaf.name.hasPrefix("secrets rotate-") && leaf.name != "advertise" ? 5 : nil
            }
        }
    }

    /// Whether a person uses it, at a device.
    private func isOfDevice(_ leaf: CommandDump.Leaf) -> Bool { leaf.options.contains("home") }

    /// How each command of a device ends while its account is locked, and once it is revoked; nil: the test looks at it
    /// by itself, or it goes on.
    private static let turnedAway: [String: (locked: Int32?, revoked: Int32?)] = [
        // While the account is locked this device's copy is printed; a revoked device prints none.
        "kv get": (2, 4),
        // It is about this device, and without a folder there is nothing to do.
        "agent add": (0, 0), "agent list": (0, 0), "agent remove": (0, 0), "agent run": (0, 0),
        "agent status": (0, 0), "agent allow": (2, 2), "agent restore": (2, 2),
        "agent pause": (2, 2), "agent resume": (2, 2), "agent evict": (2, 2), "agent download": (2, 2),
        "agent policy": (2, 2), "agent plan": (2, 2), "agent only-here": (2, 2), "agent coordinate": (2, 2),
        "whoami": (0, 0), "kv list": (0, 4), "kv export": (0, 4), "kv adopt": (0, 0),
        "kv discard": (0, 0), "discard": (0, 0),
        // What is written is kept.
        "kv set": (7, 4), "kv delete": (7, 4), "kv import": (7, 4),
        "docs ls": (0, 4), "docs tree": (0, 4), "docs find": (0, 4), "docs trash": (0, 4), "docs get": (0, 4),
        "docs cat": (0, 4), "docs put": (7, 4), "docs cp": (7, 4), "docs mv": (7, 4), "docs mkdir": (7, 4),
        "docs rm": (7, 4), "docs undo": (7, 4), "docs versions": (7, 4), "docs restore": (7, 4), "docs status": (7, 4),
        "docs publish": (7, 4), "docs links": (7, 4), "docs unpublish": (7, 4),
        // What waits to be sent is on this device, and stays there.
        "docs download": (0, 0), "docs retry": (0, 0), "docs evict": (1, 1), "docs cache": (0, 0),
        // As far as this device knows, there is none.
        "docs resolve": (2, 2), "storage delete": (2, 2),
        "docs renditions": (0, 4), "docs attributes": (0, 4), "docs conflicts": (0, 4), "docs set": (64, 64),
        "docs diff": (2, 4),
        "records ls": (0, 4), "records get": (0, 4), "records asset": (0, 4), "records query": (0, 4),
        "records conflicts": (0, 4),
        "records rejected": (0, 4), "records retry": (0, 0), "records export": (0, 4), "records zones list": (0, 4),
        "records save": (7, 4), "records delete": (7, 4), "records import": (7, 4), "records zones make": (7, 4),
        "records zones delete": (7, 4), "records changes": (7, 4), "records explain": (7, 4),
        "records index ls": (7, 4), "records index add": (7, 4), "records index remove": (7, 4),
        "records resolve": (2, 2), "records roles list": (7, 4), "records roles set": (7, 4),
        "records roles reset": (7, 4), "records copy keep": (7, 4), "records copy drop": (0, 0),
        // What is on its way cannot be held still; how far it is differs.
        "docs pause": (nil, nil), "docs resume": (7, 4),
        // What is about the server, or needs it.
        "kv history": (7, 4), "kv resolve": (7, 4), "kv sync": (7, 4), "status": (7, 4), "why": (7, 4),
        "verify": (7, 4),
        "conflicts": (7, 4), "history": (7, 4), "wipe": (nil, nil), "storage show": (7, 4), "devices list": (7, 4),
        "devices rename": (7, 4),
        "devices revoke": (7, 4), "devices allow-sign-in": (7, 4), "account audit": (7, 4),
        "account app-password create": (7, 4), "account app-password list": (7, 4),
        "account app-password revoke": (7, 4),
        "account password": (7, 4), "account close": (7, 4),
        "console": (nil, 4), "watch": (nil, 4), "kv mirror": (nil, 4), "sign-in": (nil, nil), "sign-out": (nil, nil),
    ]
}
