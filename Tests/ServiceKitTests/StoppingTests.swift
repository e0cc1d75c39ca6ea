import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosServiceKit

/// A service that is told to stop, and how its log tells of requests.
struct StoppingTests {
    @Test func whatIsInFlightIsAnsweredAndWhatIsNewIsRefused() throws {
        let log = KeptLog()
        let house = try TestHouse(logger: log.logger())
        let client = try house.client()
        var policy = RequestClient.Policy()
        policy.waitMax = .zero
        let late = try house.client(policy: policy)
        house.bus.settle()
        house.identityEngine.holds = true
        var replies: [String] = []
        for name in ["a", "b"] {
            client.send(createAccount(name)) { if $0.code == nil { replies.append(name) } }
            house.bus.settle()
        }
        var hasStopped = false
        house.identityHost.stop(because: "SIGTERM", within: .seconds(3)) { hasStopped = true }
        let refused = late.ask(createAccount("c"), on: house.bus)
        #expect(refused?.code == .serviceUnavailable)
        for _ in 0..<2 {
            #expect(!hasStopped)
            house.identityEngine.goOn()
            house.bus.settle()
        }
        house.bus.run(for: .milliseconds(20))
        #expect(hasStopped && house.identityEngine.isClosed)
        #expect(replies == ["a", "b"] && house.identity.runs == 2)
        let last = try #require(log.all.last)
        for told in ["notice keyvalue: The service has stopped", "open=2", "unanswered=0", "reason=SIGTERM"] {
            #expect(last.contains(told), "\(last)")
        }
    }

    @Test func aFailureIsLoggedWithItsRequestAndInAFollowerWithItsCause() throws {
        let log = KeptLog()
        let house = try TestHouse(withFollower: true, logger: log.logger())
        house.bus.run(for: .seconds(1))
        let client = try house.client()
        house.notifications.refusesEvents = true
        let told = OperationID(at: house.bus.clock.now)
        _ = try #require(client.ask(createAccount("secret name"), on: house.bus, id: told)).get()
        #expect(log.all.contains { $0.contains("was skipped") && $0.contains("cause.id=\(told)") }, "\(log.all)")

        house.identity.refusedReport = AccountID("acc_secret")
        let failed = OperationID(at: house.bus.clock.now)
        let service = try house.client(house.operatorKeys)
        var report = WireReportClosure()
        report.accountID = "acc_secret"
        #expect(service.ask(report, on: house.bus, id: failed)?.code == .internalError)
        let line = log.all.first { $0.contains("A request failed") }
        #expect(line?.contains("method=ReportClosure") == true && line?.contains("request.id=\(failed)") == true)
        #expect(!log.all.contains { $0.contains("secret") })
    }
}
