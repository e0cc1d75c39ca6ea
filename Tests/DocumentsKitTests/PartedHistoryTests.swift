import Foundation
import NephosSimulation
import Testing

@testable import NephosKit

/// The service comes back more than once, from copies of which the later ones know nothing of what there was between.
@Suite struct PartedHistoryTests {
    /// The disk is lost, and the service begins with nothing; days later the old copy is found. Its sequences go further
    /// than those of the days between.
    @Test func whatWasDoneBetweenTwoCopiesIsKept() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for number in 1...40 {
                try await one.container.put(Data("often \(number)".utf8), at: "often")
                try await one.settle()
            }
            for name in ["1", "2", "3"] { try await one.container.put(Data(name.utf8), at: name) }
            try await one.container.put(Data("deep".utf8), at: "h/deep", makesFolders: true)
            try await one.settle()
            try await two.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try cloud.simulation.use { try $0.restore(nil, of: .documents) }
            try await one.settle()
            try await two.settle()
            try await one.container.put(Data("new".utf8), at: "1")
            _ = try await one.container.move("2", to: "h/moved")
            try await one.container.trash(["3"])
            try await one.settle()
            try await two.settle()
            let paths = try await one.paths()
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            for _ in 0..<3 { try await two.settle() }
            #expect(try await two.text("1") == "new")
            #expect(try await two.paths() == paths)
            one.setOffline(false)
            for _ in 0..<3 { try await one.settle() }
            try await two.settle()
            #expect(try await one.text("1") == "new")
            for device in [one, two] {
                #expect(try await device.paths() == paths)
                let status = try await device.container.scope.status()
                #expect(status.isInSync && status.refused.isEmpty)
            }
        }
    }
}
