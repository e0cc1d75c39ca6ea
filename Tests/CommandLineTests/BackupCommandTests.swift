import Foundation
import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

/// What an operator does after a fire, with the real programs.
@Suite(.serialized) struct BackupCommandTests {
    private func field(_ name: String, of json: String) throws -> String {
        let values = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
        return try #require(values?[name] as? String)
    }

    /// A file with the recovery key, as it is given on standard input.
    private func input(_ house: Household, _ text: String) throws -> String {
        let file = house.folder + "/typed"
        try Data((text + "\n").utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    @Test func whatASnapshotHasDamagedIsSaid() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, file, backups) = (house.person, house.folder + "/file", house.folder + "/backups")
            try SplitMix64.bytes(600_000, seed: .random(in: 0 ... .max)).write(to: URL(fileURLWithPath: file))
            #expect(try await person.run("docs", "put", file, "file").status == 0)
            let whole = try await house.nephos.run("backup", backups)
            #expect(whole.status == 0 && !whole.output.contains("cannot be read"), "\(whole)")
            #expect(try await person.run("docs", "evict", "file").status == 0)
            try SegmentDamage.damageAll(in: house.deployment)
            #expect(try await person.run("docs", "get", "file", house.folder + "/got").status == 8)
            let damaged = try await house.nephos.run("backup", backups, "--json")
            let count = try #require(damaged.output.firstMatch(of: /"damaged_chunks":(\d+)/), "\(damaged)").output.1
            #expect(damaged.status == 0 && count != "0", "\(damaged)")
            let said = try await house.nephos.run("backup", backups).output
            #expect(said.contains("of content cannot be read any more, and the snapshot has no better"), "\(said)")
        }
    }

    /// The service's file of the person's documents; there is one.
    private func segment(_ house: Household) throws -> String {
        let folder = house.deployment + "/data/documents/content"
        let names = FileManager.default.enumerator(atPath: folder)?.allObjects as? [String] ?? []
        return folder + "/" + (try #require(names.first { $0.hasSuffix(".segment") }))
    }

    @Test func aByteThatTheDiskHasLostEndsNoBackups() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, backups) = (house.person, house.folder + "/backups")
            let new = try await house.nephos.run("recovery-key", "new", "--json")
            let key = try field("recovery_key", of: new.output)
            let files = ["one", "two", "three"].map { house.folder + "/" + $0 }
            for file in files {
                try SplitMix64.bytes(200_000, seed: .random(in: 0 ... .max))
                    .write(to: URL(fileURLWithPath: file))
            }
            #expect(try await person.run("docs", "put", files[0], "one").status == 0)
            let first = try await house.nephos.run("backup", backups)
            #expect(first.status == 0 && first.errors.isEmpty, "\(first)")
            let segment = try segment(house)
            let damaged = try #require(FileHandle(forUpdatingAtPath: segment))
            try damaged.seek(toOffset: 1000)
            let byte = try #require(try damaged.read(upToCount: 1)?.first)
            try damaged.seek(toOffset: 1000)
            try damaged.write(contentsOf: [byte ^ 1])
            try damaged.close()
            for (file, options) in zip(files[1...], [[], ["--json"]]) {
                #expect(try await person.run("docs", "put", file, (file as NSString).lastPathComponent).status == 0)
                let made = try await house.nephos.run(["backup", backups] + options)
                #expect(made.status == 0, "\(made)")
                #expect(made.errors.contains("1 file of content in the deployment") && made.errors.contains(segment))
                if options.isEmpty { continue }
                let values = try JSONSerialization.jsonObject(with: Data(made.output.utf8)) as? [String: Any]
                #expect(values?["damaged_files"] as? [String] == [segment])
                #expect(values?["damaged_copies"] as? [String] == [])
            }
            let verified = try await house.nephos.run("backup", "verify", backups)
            #expect(verified.status == 0 && verified.output.contains(".segment.2"), "\(verified)")

            #expect(try await house.nephos.run("down").status == 0)
            // Before anybody is asked for the key.
            let there = try await house.nephos.run("restore", backups)
            #expect(there.status == 1 && there.errors.contains("There is a deployment"), "\(there)")
            try FileManager.default.removeItem(atPath: house.deployment)
            let restored = try await house.nephos.run(
                "restore", backups, "--recovery-key-stdin", input: try input(house, key))
            #expect(restored.status == 0, "\(restored)")
            #expect(try await house.nephos.run("up").status == 0)
            let fresh = try await house.anotherDevice("fresh")
            for file in files {
                let got = try await fresh.run("docs", "get", (file as NSString).lastPathComponent, file + ".got")
                #expect(got.status == 0, "\(got)")
                #expect(
                    FileManager.default.contents(atPath: file + ".got") == FileManager.default.contents(atPath: file))
            }
        }
    }

    @Test func aRestoreHandsOutNoAddressThatNoDeviceCanConnectTo() async throws {
        try await withHousehold { house in
            try await house.begin()
            let backups = house.folder + "/backups"
            #expect(try await house.nephos.run("recovery-key", "new", "--json").status == 0)
            #expect(try await house.nephos.run("backup", backups).status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            func roster() -> Data? { FileManager.default.contents(atPath: house.deployment + "/roster.json") }
            let before = try #require(roster())
            let restore = ["restore", backups, "--in-place", "--keep-keys"]
            for (options, said) in [
                (["--host", "0.0.0.0"], "--advertise"), (["--host", "::0"], "--advertise"),
                (["--host", "0"], "--advertise"), (["--host-per-service"], "--advertise"),
                (["--host", "192.0.2.1"], "no such address"), (["--host", "example.org"], "--host is an address"),
                (["--host", "0.0.0.0", "--advertise", "::0"], "No device can connect"),
                (["--advertise", "0.0.0.0"], "No device can connect"), (["--advertise", "a b"], "no host"),
            ] {
                for dry in [["--dry-run"], []] {
                    let refused = try await house.nephos.run(restore + options + dry)
                    #expect(refused.status == 64 && refused.errors.contains(said), "\(options): \(refused)")
                }
            }
            // Nothing was touched.
            #expect(roster() == before)
            #expect(!FileManager.default.fileExists(atPath: house.deployment + "/restore.unfinished"))
            let told = try await house.nephos.run(restore + ["--host", "0.0.0.0", "--advertise", "cloud.example"])
            #expect(told.status == 0 && told.output.contains("nephos://cloud.example:"), "\(told)")
        }
    }

    @Test func everythingComesBackAfterAFire() async throws {
        try await withHousehold { house in
            try await house.begin()
            let person = house.person
            let new = try await house.nephos.run("recovery-key", "new", "--json")
            let key = try field("recovery_key", of: new.output)
            let letter = house.folder + "/letter"
            try SplitMix64.bytes(3_000_000, seed: .random(in: 0 ... .max)).write(
                to: URL(fileURLWithPath: letter))
            #expect(try await person.run("docs", "put", letter, "letter").status == 0)
            let photo = house.folder + "/photo"
            try SplitMix64.bytes(2_000_000, seed: .random(in: 0 ... .max)).write(
                to: URL(fileURLWithPath: photo))
            let saved = try await person.run(
                "records", "save", "portrait", "--type", "Photo", "--asset", "picture=" + photo, "--json")
            #expect(saved.status == 0 && saved.output.contains(#""sent""#), "\(saved)")
            #expect(try await person.run("kv", "set", "before", "1").status == 0)
            #expect(try await person.run("kv", "sync").status == 0)

            let backups = house.folder + "/backups"
            let made = try await house.nephos.run("backup", backups, "--json")
            #expect(made.status == 0, "\(made)")
            let name = try field("snapshot", of: made.output)
            #expect(try await house.nephos.run("backup", "verify", backups).output == "\(name) is whole\n")
            #expect(try await house.nephos.run("backup", "list", backups).output.contains(name))
            // After it: what only the device has then.
            #expect(try await person.run("kv", "set", "after", "2").status == 0)
            #expect(try await person.run("kv", "set", "before", "3").status == 0)
            #expect(try await person.run("kv", "sync").status == 0)
            let other = house.folder + "/other"
            try Data("other".utf8).write(to: URL(fileURLWithPath: other))
            #expect(try await person.run("docs", "put", other, "other").status == 0)

            // While it runs nothing is replaced.
            let typed = try input(house, key)
            let early = try await house.nephos.run(
                "restore", backups, "--in-place", "--recovery-key-stdin", input: typed)
            #expect(early.status == 1 && early.errors.contains("Stop them first"), "\(early)")
            #expect(try await house.nephos.run("down").status == 0)
            try FileManager.default.removeItem(atPath: house.deployment)

            let dry = try await house.nephos.run("restore", backups, "--dry-run", "--json")
            #expect(dry.status == 0 && dry.output.contains(#""is_done":false"#), "\(dry)")
            #expect(!FileManager.default.fileExists(atPath: house.deployment))
            let wrong = try await house.nephos.run(
                "restore", backups, "--recovery-key-stdin",
                input: try input(house, "00000-00000-00000-00000-00000-00000"))
            #expect(wrong.status == 64, "\(wrong)")
            let restored = try await house.nephos.run(
                "restore", backups, "--recovery-key-stdin", input: try input(house, key.lowercased()))
            #expect(restored.status == 0, "\(restored)")
            let up = try await house.nephos.run("up")
            #expect(up.status == 0, "\(up)")
            // It is said once, and not at each start.
            #expect(try await house.nephos.run("down").status == 0)
            #expect(try await house.nephos.run("up").status == 0)
            for service in ServiceName.all {
                let log = FileManager.default.contents(atPath: "\(house.deployment)/log/\(service).log") ?? Data()
                let count = String(decoding: log, as: UTF8.self).components(separatedBy: "database was restored").count
                #expect(count == 2, "\(service)")
            }

            // Of a record's asset another device has what the backup has, before the first has said anything.
            let fresh = try await house.anotherDevice("fresh")
            let asset = try await fresh.run("records", "asset", "portrait", "picture", "-o", house.folder + "/portrait")
            #expect(asset.status == 0, "\(asset)")
            #expect(
                FileManager.default.contents(atPath: house.folder + "/portrait")
                    == FileManager.default.contents(atPath: photo))
            // The device offers what came after, and nothing goes back.
            try await eventuallyIs(fresh, ["kv", "get", "--fresh", "after"], "2\n", person)
            try await eventuallyIs(fresh, ["kv", "get", "--fresh", "before"], "3\n", person)
            for file in [letter, other] {
                let path = house.folder + "/got-" + (file as NSString).lastPathComponent
                let deadline = ContinuousClock.now + .seconds(60)
                while try await fresh.run("docs", "get", (file as NSString).lastPathComponent, path).status != 0,
                    ContinuousClock.now < deadline
                { try await person.run("docs", "status") }
                #expect(
                    FileManager.default.contents(atPath: path) == FileManager.default.contents(atPath: file), "\(file)")
            }
            for device in [person, fresh] {
                let verified = try await device.run("verify")
                #expect(verified.status == 0, "\(verified)")
            }
        }
    }

    private func eventuallyIs(
        _ program: Program, _ command: [String], _ output: String, _ other: Program
    ) async throws {
        let deadline = ContinuousClock.now + .seconds(60)
        var said = try await program.run(command)
        while said.output != output, ContinuousClock.now < deadline {
            try await other.run("kv", "sync")
            said = try await program.run(command)
        }
        #expect(said.output == output, "\(said)")
    }

    @Test func servicesDoNotStartWhereARestoreDidNotEnd() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("down").status == 0)
            let mark = house.deployment + "/data/keyvalue/restore.unfinished"
            try Data(#"{"aside":"before","snapshot":"2026"}"#.utf8).write(to: URL(fileURLWithPath: mark))
            let up = try await house.nephos.run("up")
            #expect(up.status == 8 && up.errors.contains("Run it again: nephos restore"), "\(up)")
            unlink(mark)
            try Data(#"{"aside":"before","snapshot":"2026"}"#.utf8)
                .write(to: URL(fileURLWithPath: house.deployment + "/restore.unfinished"))
            let refused = try await house.nephos.run("up")
            #expect(refused.status == 8 && refused.errors.contains("nephos restore"), "\(refused)")
            let kept = try await house.nephos.run("init", "--if-missing")
            #expect(kept.status == 8, "\(kept)")
        }
    }

    @Test func theRecoveryKeyIsPrintedOnceAndLiesNowhere() async throws {
        let folder = NSTemporaryDirectory() + "nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let nephos = Program(name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder])
        let port = try #require(LocalPorts.firstFree(from: 9_200))
        let made = try await nephos.run("init", "--port", "\(port)", "--json")
        let key = try field("recovery_key", of: made.output)
        for name in try FileManager.default.contentsOfDirectory(atPath: folder) {
            let data = FileManager.default.contents(atPath: folder + "/" + name) ?? Data()
            #expect(data.range(of: Data(key.utf8)) == nil, "\(name)")
            #expect(data.range(of: Data(key.replacing("-", with: "").utf8)) == nil, "\(name)")
        }
        let again = try await nephos.run("init", "--if-missing")
        #expect(again.status == 0 && !again.output.contains(key), "\(again)")
        // Given from outside, none is made here.
        let pair = try await Program(name: "nephos").run("recovery-key", "new", "--only-print", "--json").output
        let half = try field("public_key", of: pair)
        let elsewhere = Program(
            name: "nephos", environment: ["NEPHOS_DEPLOYMENT": folder + "/other", "NEPHOS_RECOVERY_KEY": half])
        let silent = try await elsewhere.run("init", "--port", "\(port)", "--json")
        #expect(silent.status == 0 && !silent.output.contains(#""recovery_key":"#), "\(silent)")
        #expect(try await elsewhere.run("recovery-key", "show").output.contains(half))
        // The key itself, given by mistake, is not taken.
        let mistaken = try await nephos.run("recovery-key", "set", try field("recovery_key", of: pair))
        #expect(mistaken.status == 64 && mistaken.errors.contains("on no host"), "\(mistaken)")
        #expect(try await nephos.run("recovery-key", "set", half).output.contains("the one before"))
    }

    @Test func interruptedItLeavesNothingHalfDone() async throws {
        try await withHousehold { house in
            try await house.begin()
            let letter = house.folder + "/letter"
            try Data(count: 1).write(to: URL(fileURLWithPath: letter))
            let file = try #require(FileHandle(forWritingAtPath: letter))
            for _ in 0..<60 { try file.write(contentsOf: SplitMix64.bytes(1_000_000, seed: .random(in: 0 ... .max))) }
            try file.close()
            #expect(try await house.person.run("docs", "put", letter, "letter").status == 0)
            let backups = house.folder + "/backups"
            let running = try house.nephos.start(["backup", backups])
            try await eventually("it has begun") {
                let made = try? FileManager.default.contentsOfDirectory(atPath: backups + "/snapshots")
                return made?.isEmpty == false
            }
            running.signal(SIGINT)
            let outcome = await running.outcome()
            #expect(outcome.status == 130, "\(outcome)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: backups + "/snapshots").isEmpty)
            #expect(try await house.nephos.run("backup", backups).status == 0)
            #expect(try await house.nephos.run("backup", "verify", backups).status == 0)
        }
    }
}
