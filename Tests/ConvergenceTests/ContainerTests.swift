import Testing

/// Whatever happens on the way, all devices end with the same containers, nothing that was put is lost, and the service
/// has what contents rest on, no less and no more.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_SEED=S` tries one.
@Suite struct ContainerHistoryTests {
    @Test func everyHistoryOfContainersConverges() async {
        let failures = await ContainerHistory.failures(of: 60, suite: "everyHistoryOfContainersConverges")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }
}
