import Foundation
import NephosSimulation
import Testing

/// What the server's disk has lost comes back from a device that has it, through the whole programs.
@Suite struct HealingCommandTests {
    @Test func whatTheDiskHasLostComesBackWithTheNextCommand() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await two.run("docs", "cache", "--limit", "0").status == 0)
            let (file, got) = (house.folder + "/film.bin", house.folder + "/got")
            let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
            try bytes.write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", file).status == 0)
            try SegmentDamage.damageAll(in: house.deployment)
            #expect(try await two.run("docs", "get", "film.bin", got).status != 0)
            let lost = try await two.run("docs", "status")
            #expect(lost.status == 6 && lost.output.contains("/Documents/film.bin is damaged on the server"), "\(lost)")
            let proof = try await two.run("verify", "--service", "documents")
            #expect(proof.status == 6 && proof.output.contains("cannot read some of the content"), "\(proof)")
            let json = try await two.run("verify", "--service", "documents", "--json")
            #expect(json.status == 6 && json.output.contains(#""state":"damaged""#), "\(json)")
            #expect(json.output.contains(#""in_sync":false"#), "\(json)")

            // Whatever it was about.
            #expect(try await one.run("docs", "ls").status == 0)
            #expect(try await two.run("docs", "get", "film.bin", got).status == 0)
            #expect(FileManager.default.contents(atPath: got) == bytes)
            for device in [one, two] {
                #expect(try await device.run("docs", "status").status == 0)
                #expect(try await device.run("verify", "--service", "documents").status == 0)
            }

            // A copy that is damaged too stays here, and that is said.
            let copies = house.folder + "/home/content"
            for name in try FileManager.default.contentsOfDirectory(atPath: copies) where name.utf8.count == 32 {
                try Data(count: bytes.count).write(to: URL(fileURLWithPath: copies + "/" + name))
            }
            try SegmentDamage.damageAll(in: house.deployment)
            #expect(try await two.run("docs", "get", "film.bin", got + "2").status != 0)
            // That it was sent a moment ago has its pause.
            try await Task.sleep(for: .seconds(1))
            let both = try await one.run("docs", "status")
            #expect(both.status == 6 && both.output.contains("is damaged on the server"), "\(both)")
        }
    }

    @Test(arguments: [200, 900_000]) func anAssetThatTheServerHasLostIsNamedByItsRecordAndField(count: Int) async throws
    {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            for name in ["lost", "whole"] {
                let file = house.folder + "/" + name
                try Data((0..<count).map { UInt8(truncatingIfNeeded: ($0 + (name == "lost" ? 0 : 3)) &* $0 >> 7) })
                    .write(to: URL(fileURLWithPath: file))
                if name == "whole" { try SegmentDamage.damageAll(in: house.deployment) }
                let saved = try await one.run("records", "save", name, "--asset", "photo=\(file)", "--type", "Note")
                #expect(saved.status == 0, "\(saved)")
            }
            // Found by whoever wants it.
            let got = try await two.run("records", "asset", "lost", "photo", "-o", house.folder + "/got")
            #expect(got.status != 0, "\(got)")
            let proof = try await two.run("verify", "--service", "records")
            #expect(proof.status == 6, "\(proof)")
            #expect(proof.output.contains("lost, photo: the server cannot read the asset any more"), "\(proof)")
            #expect(!proof.output.contains("whole, photo") && !proof.output.contains("export --assets"), "\(proof)")
            let json = try await two.run("verify", "--service", "records", "--json")
            #expect(
                json.output.contains(#""damaged_assets":[{"field":"photo","record":"lost","zone":"_defaultZone"}]"#),
                "\(json)")
        }
    }

    @Test func whatDiffersIsNamedByItsPath() async throws {
        try await withTenant { house in
            let file = house.folder + "/a"
            try Data("a".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "mkdir", "Letters").status == 0)
            #expect(try await house.person.run("docs", "put", file, "Letters/a").status == 0)
            for options in [[], ["--all"]] {
                let same = try await house.person.run(["verify", "--service", "documents"] + options)
                #expect(same.status == 0 && same.output.hasPrefix("In sync at"), "\(same)")
            }
            let json = try await house.person.run("verify", "--service", "documents", "--json")
            #expect(json.output.contains(#""paths":{}"#) && json.output.contains(#""damaged_chunks":0"#), "\(json)")
        }
    }
}
