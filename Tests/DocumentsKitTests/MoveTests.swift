import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What is moved takes what is in it along.
@Suite struct MoveTests {
    @Test func aFolderOf10000FilesMovesAndGoesAsOneSmallChange() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let count = 10_000
            try await one.container.put(
                (0..<count).map { .data(Data("\($0)".utf8), at: "large/\($0)") }, makesFolders: true)
            try await one.container.makeFolder(at: "away")
            for device in [one, two] { try await device.settle() }
            // As many of which each would have to be told.
            let changes: [(String, () async throws -> Void)] = [
                ("moved", { try await one.container.move("large", to: "away/renamed") }),
                ("deleted", { try await one.container.trash(["away/renamed"]) }),
                ("brought back", { try await one.container.trash.restore() }),
            ]
            for (what, change) in changes {
                let before = cloud.simulation.use { $0.movedBytes(.documents) }
                try await change()
                #expect(try one.container.handle.read { try $0.rows.operationCount() } == 1)
                for device in [one, two] { try await device.settle() }
                let moved = cloud.simulation.use { $0.movedBytes(.documents) } - before
                #expect(moved > 100 && moved < 16 << 10, "\(what): \(moved) bytes")
            }
            let there = try await two.container.items(in: "away/renamed")
            #expect(there.count == count)
            #expect(try await two.text("away/renamed/9999") == "9999")
        }
    }
}
