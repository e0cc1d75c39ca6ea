import Foundation
import NephosSimulation
import Testing

/// The operator has all content read now, and not within a week.
@Suite struct ScrubCommandTests {
    @Test func aFlippedByteIsFoundWhenTheOperatorAsksAndComesBackFromADevice() async throws {
        try await withHousehold { house in
            try await house.begin()
            let one = house.person
            let file = house.folder + "/film.bin"
            try Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 7) })
                .write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", file).status == 0)
            try SegmentDamage.damageAll(in: house.deployment)
            // Nobody has read it yet.
            #expect(try await one.run("docs", "status").status == 0)

            let found = try await house.nephos.run("scrub", "--json")
            #expect(found.status == 8 && found.output.contains(#""damaged_chunks""#), "\(found)")
            #expect(found.output.contains(#""service":"records""#), "\(found)")
            // The device that has it brings it back, by whatever asks the server.
            var healed = try await one.run("docs", "status")
            for _ in 0..<30 where healed.status != 0 {
                try await Task.sleep(for: .milliseconds(500))
                healed = try await one.run("docs", "status")
            }
            #expect(healed.status == 0, "\(healed)")
            let whole = try await house.nephos.run("scrub", "--service", "documents")
            #expect(whole.status == 0 && whole.output.contains("and are whole"), "\(whole)")
        }
    }

    @Test func whatCannotBeReadForIsSaid() async throws {
        try await withHousehold { house in
            try await house.begin()
            let other = try await house.nephos.run("scrub", "--service", "identity")
            #expect(other.status == 64 && other.errors.contains("Only documents and records"), "\(other)")
            let nowhere = try await house.nephos.run("scrub", "--data", house.folder + "/nowhere")
            #expect(nowhere.status == 8 && nowhere.errors.contains("--data"), "\(nowhere)")
        }
    }
}
