import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Waiting for as long as something moves, and what is said where nothing does.
@Suite struct WaitingTests {
    private static let late = CloudError(.deadlineExceeded, "Nothing moves.")

    @Test func whatMovesIsWaitedForAndWhatStandsStillIsNot() async throws {
        let patience = Duration.milliseconds(200)
        // Longer than anybody has patience, and always a little further.
        var steps = 0
        let start = ContinuousClock.now
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: Int, failure: CloudError)? in
            do { try await Task.sleep(for: .milliseconds(50)) } catch { throw CloudError(wrapping: error) }
            steps += 1
            return steps == 10 ? nil : (steps, Self.late)
        }
        #expect(steps == 10 && start.duration(to: .now) > patience)
        var looks = 0
        let error = await #expect(throws: CloudError.self) {
            try await waitWhileItMoves(within: patience) {
                () async throws(CloudError) -> (mark: Int, failure: CloudError)? in
                do { try await Task.sleep(for: .milliseconds(20)) } catch { throw CloudError(wrapping: error) }
                looks += 1
                return (0, CloudError(.deadlineExceeded, "Look \(looks)."))
            }
        }
        // As it stood at the last look.
        #expect(looks >= 2 && error?.message == "Look \(looks).")
        let failure = await #expect(throws: CloudError.self) {
            try await waitWhileItMoves(within: .seconds(60)) {
                () async throws(CloudError) -> (mark: Int, failure: CloudError)? in
                throw CloudError(.unknownItem, "It is gone.")
            }
        }
        #expect(failure?.code == .unknownItem)
    }

    @Test func whatSomebodyHoldsStillIsNotWhyTheServerIsSilent() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "held")
            try await one.settle()
            try await one.container.pauses.pause("held")
            try await one.container.put(Data("2".utf8), at: "held")
            one.setOffline(true)
            for isWaiting in [false, true] {
                if isWaiting { try await one.container.put(Data("3".utf8), at: "other") }
                let error = await #expect(throws: CloudError.self) {
                    if isWaiting {
                        try await one.container.scope.waitUntilSent(timeout: .seconds(5))
                    } else {
                        try await one.container.scope.waitUntilCurrent(timeout: .seconds(5))
                    }
                }
                let reason = try #require(error?.details["reason"])
                #expect(!reason.contains("paused"), "\(reason)")
            }
        }
    }
}
