import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// A deployment whose services each have a host and a folder of their own, as under docker compose and systemd.
@Suite struct HandOutTests {
    private struct Said: Decodable {
        var connection: String
        var changed: String?
    }

    private func withFolder(_ body: (String) async throws -> Void) async throws {
        let folder = NSTemporaryDirectory() + "nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(folder)
    }

    @Test func whatRunsAtEachStartMakesADeploymentOnce() async throws {
        try await withFolder { folder in
            let nephos = Program(name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder + "/deployment"])
            func start(_ host: String) async throws -> Said {
                let outcome = try await nephos.run(
                    "init", "--if-missing", "--host-per-service", "--advertise", host, "--hand-out", folder + "/handed",
                    "--json")
                try #require(outcome.status == 0, "\(outcome)")
                return try JSONDecoder().decode(Said.self, from: Data(outcome.output.utf8))
            }
            let made = try await start("cloud.example")
            #expect(made.connection.hasPrefix("nephos://cloud.example/"))
            let handed = DeploymentFiles(directory: folder + "/handed/keyvalue")
            let key = try handed.secrets(of: .keyValue).secretKey

            let again = try await start("cloud.example")
            #expect(again.connection == made.connection)
            #expect(again.changed == "")
            let moved = try await start("other.example")
            #expect(moved.connection == made.connection.replacing("cloud.example", with: "other.example"))
            #expect(moved.changed == "identity keyvalue documents records notifications web")
            #expect(try handed.secrets(of: .keyValue).secretKey == key)
            #expect(try handed.roster().entry(of: .keyValue).publicRequests == "tcp://other.example:7402")
            // Where it is not said it stays.
            let unsaid = try await start("")
            #expect(unsaid.connection == moved.connection && unsaid.changed == "")
            let nowhere = try await nephos.run("init", "--if-missing", "--advertise", "0.0.0.0")
            #expect(nowhere.status == 64, "\(nowhere)")

            // Without its roster it is not missing: it is damaged, and stays as it is.
            let (roster, secret) = (folder + "/deployment/roster.json", folder + "/deployment/keyvalue.secret.json")
            let before = FileManager.default.contents(atPath: secret)
            try FileManager.default.removeItem(atPath: roster)
            for arguments in [["init", "--if-missing"], ["init"], ["up"]] {
                let refused = try await nephos.run(arguments)
                #expect(refused.status == 8 && refused.errors.contains(roster), "\(refused)")
            }
            #expect(FileManager.default.contents(atPath: secret) == before)
        }
    }

    @Test func namesThatDevicesDoNotKnowAreNotHandedToThem() async throws {
        try await withFolder { folder in
            let nephos = Program(name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder])
            let refused = try await nephos.run("init", "--host-per-service")
            #expect(refused.status == 64)
            #expect(refused.errors.contains("--advertise"))
            for host in ["0.0.0.0", "bad host"] {
                let refused = try await nephos.run("init", "--host-per-service", "--advertise", host)
                #expect(refused.status == 64 && refused.errors.contains(host), "\(refused)")
            }
            #expect(!FileManager.default.fileExists(atPath: folder + "/roster.json"))
        }
    }

    /// Whoever does not hand out the new master key before the services start again loses nothing by it.
    @Test func aMasterKeyGoesOnceTheServiceHasReadTheNextOne() async throws {
        try await withFolder { folder in
            let first = try #require(LocalPorts.firstFree(from: 30_000 + Int(getpid()) % 400 * 50 + 25))
            let nephos = Program(name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder + "/deployment"])
            let handOut = ["init", "--if-missing", "--port", "\(first)", "--hand-out", folder + "/handed"]
            try #require(try await nephos.run(handOut).status == 0)
            let files = DeploymentFiles(directory: folder + "/deployment")
            let service = Program(
                name: "nephos-keyvalue",
                environment: [
                    "NEPHOS_DEPLOYMENT": folder + "/handed/keyvalue", "NEPHOS_DATA": folder + "/data",
                ])
            func whileItRuns(_ body: () async throws -> Void) async throws {
                let running = try service.start([])
                try await eventually("it answers") {
                    running.errors.contains("The service answers") || !isRunning(running.pid)
                }
                try await body()
                running.signal(SIGTERM)
                let outcome = await running.outcome()
                #expect(outcome.status == 0, "\(outcome)")
            }
            let rotate = ["secrets", "rotate-master-keys", "--service", "keyvalue", "--timeout", "20"]
            try await whileItRuns {
                let added = try await nephos.run(rotate)
                #expect(added.status == 0 && added.output.contains("--hand-out"), "\(added)")
            }
            let keys = try files.secrets(of: .keyValue).masterKeys
            #expect(keys.count == 2)
            try await whileItRuns {
                let early = try await nephos.run(rotate + ["--restarted"])
                #expect(early.status == 1 && early.errors.contains("keyvalue"), "\(early)")
                #expect(try files.secrets(of: .keyValue).masterKeys == keys)
            }
            try #require(try await nephos.run(handOut).status == 0)
            try await whileItRuns {
                let done = try await nephos.run(rotate + ["--restarted"])
                #expect(done.status == 0, "\(done)")
                #expect(try files.secrets(of: .keyValue).masterKeys == Array(keys.prefix(1)))
            }
            #expect(try await nephos.run(handOut).status == 0)
            try await whileItRuns {}
        }
    }

    /// What was handed out is all that a service needs, and it listens where its environment says.
    @Test func aServiceStartsFromWhatItWasHanded() async throws {
        try await withFolder { folder in
            let first = try #require(LocalPorts.firstFree(from: 30_000 + Int(getpid()) % 400 * 50))
            let nephos = Program(name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder + "/deployment"])
            let made = try await nephos.run(
                "init", "--host-per-service", "--advertise", "127.0.0.1", "--port", "\(first)", "--hand-out",
                folder + "/handed")
            try #require(made.status == 0, "\(made)")
            let service = Program(
                name: "nephos-keyvalue",
                environment: [
                    "NEPHOS_DEPLOYMENT": folder + "/handed/keyvalue", "NEPHOS_DATA": folder + "/data",
                    "NEPHOS_LISTEN_HOST": "127.0.0.1", "NEPHOS_KEYVALUE_BUGDET_CAPACITY": "5",
                ])
            let running = try service.start([])
            try await eventually("it answers") {
                running.errors.contains("requests=tcp://127.0.0.1:\(first + 2)") || !isRunning(running.pid)
            }
            running.signal(SIGTERM)
            let outcome = await running.outcome()
            #expect(outcome.status == 0, "\(outcome)")
            #expect(outcome.errors.contains("NEPHOS_KEYVALUE_BUGDET_CAPACITY"), "\(outcome)")

            var elsewhere = service
            elsewhere.environment["NEPHOS_LISTEN_HOST"] = "keyvalue"
            let refused = try await elsewhere.run()
            #expect(refused.status != 0)
            #expect(refused.errors.contains("NEPHOS_LISTEN_HOST"), "\(refused)")
        }
    }
}
