import NephosSimulation
import Testing

/// Whatever happens on the way, all devices end with the same containers, nothing that was put is lost, and the service
/// has what contents rest on, no less and no more.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED=S` where they begin, `NEPHOS_SEED=S` tries one.
@Suite struct ContainerHistoryTests {
    /// Places that something goes wrong at in histories of containers, and where devices are ended.
    /// Of the usual number of histories none comes to `download.keep` while something is to go wrong there.
    private static var places: Set<String> {
        let ofDevices = ["open", "read", "save", "secrets", "send", "receive", "writer.flush"]
        let ofDocuments = FaultPoint.all.map(\.name).filter { $0.hasPrefix("documents.") }
        return Set(
            ofDocuments + ofDevices.map { "device.\($0)" } + DeviceKiller.places.dropLast().map { "killed at \($0)" })
    }

    @Test func everyHistoryOfContainersConverges() async {
        let count = 60
        let outcome = await ContainerHistory.outcome(
            of: count, and: [122, 267, 423], suite: "everyHistoryOfContainersConverges")
        for failure in outcome.failures.prefix(10) { Issue.record("\(failure)") }
        #expect(outcome.failures.isEmpty, "\(outcome.failures.count) histories went wrong")
        guard ContainerHistory.isWholeRun else { return }
        #expect(Self.places.subtracting(outcome.struck.keys).sorted() == [], "places where nothing went wrong")
    }
}
