import Foundation
import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

/// Assets of records, as a person or a script has them.
@Suite(.serialized) struct RecordAssetCommandTests {
    private func bytes(_ count: Int) -> Data {
        var random = SplitMix64(seed: UInt64(count))
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    @Test func anAssetIsAFileAgainOnTheOtherDevice() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            let (source, target) = (house.folder + "/source", house.folder + "/target")
            try bytes(700_000).write(to: URL(fileURLWithPath: source))
            let saved = try await one.run(
                "records", "save", "a", "title=one", "--asset", "photo=\(source)", "--type", "Note")
            #expect(saved.status == 0 && saved.output == "Saved a.\n", "\(saved)")
            unlink(source)

            let listed = try await other.run("records", "get", "a")
            #expect(listed.output.firstMatch(of: /photo +700\.0 kB/) != nil, "\(listed)")
            let json = try await other.run("records", "get", "a", "--json")
            let id = try #require(json.output.firstMatch(of: /"\$asset":\{"bytes":700000,"id":"([0-9a-f]{64})"/)).output
                .1
            let got = try await other.run("records", "asset", "a", "photo", "-o", target, "--json")
            #expect(got.status == 0 && got.output.contains(#""id":"\#(id)""#), "\(got)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == bytes(700_000))
            // To standard output, to the byte.
            let line = try await other.run(shell: "nephos records asset a photo | cmp - \(target)")
            #expect(line.status == 0, "\(line)")

            for (arguments, status) in [
                (["nobody", "photo"], 2), (["a", "nothing"], 2), (["a", "title"], 2),
                (["a", "photo", "--index", "1"], 2),
                (["a", "photo", "--json"], 64),
            ] {
                let outcome = try await other.run(["records", "asset"] + arguments)
                #expect(Int(outcome.status) == status, "\(arguments): \(outcome)")
            }
            let absent = try await one.run("records", "save", "b", "--asset", "photo=\(source)", "--type", "Note")
            #expect(absent.status == 2 && absent.errors.contains("There is no such file."), "\(absent)")
            #expect(try await other.run("verify").status == 0)
        }
    }

    @Test func assetsAreExportedAndImportedBesideTheirRecords() async throws {
        try await withTenant { house in
            let one = house.person
            let (source, file, folder) = (
                house.folder + "/source", house.folder + "/records.jsonl", house.folder + "/assets"
            )
            for (name, count) in [("a", 300_000), ("b", 20), ("c", 0)] {
                try bytes(count).write(to: URL(fileURLWithPath: source))
                let saved = try await one.run(
                    "records", "save", name, "--asset", "photo=\(source)", "--type", "Note")
                #expect(saved.status == 0, "\(saved)")
            }
            let lines = try await one.run("records", "export", "--assets", folder)
            #expect(lines.status == 0, "\(lines)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 2)
            try Data(lines.output.utf8).write(to: URL(fileURLWithPath: file))

            let other = try await house.anotherPerson()
            // What nobody has there is refused, with its reason.
            let without = try await other.run("records", "import", file)
            #expect(without.output.contains("2 records could not be saved"), "\(without)")
            #expect(without.errors.contains("line 1: a: What an asset of the record rests on"), "\(without)")
            let imported = try await other.run("records", "import", file, "--assets", folder)
            #expect(imported.status == 0, "\(imported)")
            let exported = try await other.run("records", "export", "--assets", house.folder + "/again")
            #expect(exported.output == lines.output)
            let same = try await other.run(shell: "diff -r \(folder) \(house.folder)/again")
            #expect(same.status == 0, "\(same)")
            #expect(try await other.run("verify").status == 0)
        }
    }

    @Test func whatTheServerHasLostIsNamedAndTheRestIsExported() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            let (source, folder) = (house.folder + "/source", house.folder + "/assets")
            // What was written last is lost each time, and nobody knows yet.
            for (number, name) in ["a", "b", "c"].enumerated() {
                try bytes(300_000 + number).write(to: URL(fileURLWithPath: source))
                let saved = try await one.run(
                    "records", "save", name, "--asset", "photo=\(source)", "--type", "Note")
                #expect(saved.status == 0, "\(saved)")
                if name != "c" { try SegmentDamage.damageAll(in: house.deployment + "/data/records") }
            }
            let exported = try await other.run("records", "export", "--assets", folder)
            #expect(exported.status == 8, "\(exported)")
            #expect(exported.output.split(separator: "\n").count == 3, "\(exported)")
            for name in ["a", "b"] {
                #expect(exported.errors.contains("not exported: \(name) photo"), "\(exported)")
                #expect(exported.errors.contains("record: \(name)\n"), "\(exported)")
            }
            #expect(exported.errors.contains("file: \(folder)/") && exported.errors.contains("field: photo"))
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 1)

            let got = try await other.run("records", "asset", "a", "photo", "-o", house.folder + "/got")
            #expect(
                got.status == 8 && got.errors.contains("record: a\n") && got.errors.contains("field: photo"), "\(got)")
        }
    }

    /// A file of an asset that has other bytes, and a line that is no record: the lines before are saved, whatever failed.
    @Test func whatCameBeforeALineThatIsNoneIsSavedThoughAnotherFailed() async throws {
        try await withTenant { house in
            let one = house.person
            let (source, file, folder) = (
                house.folder + "/source", house.folder + "/records.jsonl", house.folder + "/assets"
            )
            try bytes(300_000).write(to: URL(fileURLWithPath: source))
            #expect(try await one.run("records", "save", "a", "--asset", "photo=\(source)", "--type", "T").status == 0)
            var lines = try await one.run("records", "export", "--assets", folder).output
            for name in try FileManager.default.contentsOfDirectory(atPath: folder) {
                try Data("other".utf8).write(to: URL(fileURLWithPath: folder + "/" + name))
            }
            lines += #"{"name":"b","type":"T","fields":{"n":1}}"# + "\n"
            try Data(lines.utf8).write(to: URL(fileURLWithPath: file))
            let failed = try await one.run("records", "import", file, "--assets", folder)
            #expect(failed.status == 1 && failed.errors.contains("line 1: a: The file of an asset"), "\(failed)")
            #expect(try await one.run("records", "get", "b").status == 0)

            lines += #"{"name":"c","type":"T","fields":{"n":1}}"# + "\n{\n"
            try Data(lines.utf8).write(to: URL(fileURLWithPath: file))
            let ended = try await one.run("records", "import", file, "--assets", folder)
            #expect(ended.status == 64 && ended.errors.contains("line 1: a: The file of an asset"), "\(ended)")
            #expect(ended.errors.contains("What came before it was saved, but for what is named."), "\(ended)")
            #expect(try await one.run("records", "get", "c").status == 0)
        }
    }

    @Test func aFolderOfAssetsThatIsNotThereIsSaidBeforeAnythingIsSaved() async throws {
        try await withTenant { house in
            let (person, file) = (house.person, house.folder + "/lines")
            try Data(#"{"name":"x","type":"T","fields":{"a":1}}"#.utf8).write(to: URL(fileURLWithPath: file))
            let absent = try await person.run("records", "import", file, "--assets", house.folder + "/nosuch")
            #expect(absent.status == 2 && absent.errors.contains("folder: \(house.folder)/nosuch"), "\(absent)")
            let noFolder = try await person.run("records", "import", file, "--assets", file)
            #expect(noFolder.status == 8, "\(noFolder)")
            #expect(try await person.run("records", "get", "x").status == 2)
        }
    }

    @Test(arguments: [SIGINT, SIGKILL]) func anAssetThatIsEndedLeavesTheFileAsItWas(signal: Int32) async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            let (source, folder) = (house.folder + "/source", house.folder + "/target")
            try bytes(2_000_000).write(to: URL(fileURLWithPath: source))
            #expect(
                try await one.run("records", "save", "a", "--asset", "photo=\(source)", "--type", "Note").status == 0)
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try Data("old".utf8).write(to: URL(fileURLWithPath: folder + "/photo"))
            let get = try other.start(
                ["records", "asset", "a", "photo", "-o", folder + "/photo", "--limit-rate", "20K"])
            try await eventually("it writes") {
                let files = "/proc/\(get.pid)/fd"
                return try FileManager.default.contentsOfDirectory(atPath: files).contains { file in
                    let path = try? FileManager.default.destinationOfSymbolicLink(atPath: files + "/" + file)
                    return path?.contains(folder) == true
                }
            }
            get.signal(signal)
            #expect(await get.outcome().status == 128 + signal)
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["photo"])
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/photo")) == Data("old".utf8))
        }
    }
}
