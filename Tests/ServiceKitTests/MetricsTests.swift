import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

/// What is counted of requests, whatever they are.
struct MetricsTests {
    let house: TestHouse
    let client: RequestClient

    init() throws {
        house = try TestHouse()
        client = try house.client()
    }

    private func lines(_ start: String) -> [Substring] {
        house.identityHost.metrics().split(separator: "\n").filter { $0.hasPrefix(start) }
    }

    /// Else whoever sends names of methods could fill the memory of the service, and of what watches over it.
    @Test func clientsAddNoSeries() throws {
        _ = client.ask(createAccount("one"), on: house.bus)
        _ = client.ask(createAccount("refused"), on: house.bus)
        let socket = try house.rawSocket { _ in }
        _ = socket.send(
            RequestEnvelope(method: "Unheard", id: OperationID(at: house.bus.clock.now), body: Frame([])).encoded())
        house.bus.settle()
        let before = lines("nephos_").count
        for number in 1...20 {
            _ = socket.send(
                RequestEnvelope(
                    method: "Unheard\(number)\"} 1\n", id: OperationID(at: house.bus.clock.now), body: Frame([])
                ).encoded())
        }
        _ = socket.send([Frame([1, 2, 3])])
        house.bus.settle()
        #expect(lines("nephos_").count <= before + 1)
        #expect(
            lines("nephos_requests_total{method=\"other\",code=\"unknownMethod\"}") == [
                "nephos_requests_total{method=\"other\",code=\"unknownMethod\"} 21"
            ])
        #expect(lines("nephos_requests_total{method=\"other\",code=\"malformedRequest\"}").count == 1)
        #expect(
            lines("nephos_requests_total{method=\"CreateAccount\",code=\"ok\"}") == [
                "nephos_requests_total{method=\"CreateAccount\",code=\"ok\"} 1"
            ])
        #expect(
            lines("nephos_requests_total{method=\"CreateAccount\",code=\"invalidArguments\"}") == [
                "nephos_requests_total{method=\"CreateAccount\",code=\"invalidArguments\"} 1"
            ])
    }

    /// What takes long counts from its arrival, also what waits for work off the loop.
    @Test func eachAnswerIsCountedOnceWithItsTime() throws {
        _ = client.ask(createAccount("one"), on: house.bus)
        _ = client.ask(WireListAccounts(), on: house.bus)
        var signIn = WireSignIn()
        signIn.accountName = "one"
        _ = client.ask(signIn, on: house.bus)
        for method in ["CreateAccount", "ListAccounts", "SignIn"] {
            #expect(
                lines("nephos_request_duration_seconds_count{method=\"\(method)\"}") == [
                    "nephos_request_duration_seconds_count{method=\"\(method)\"} 1"
                ])
        }
        #expect(lines("nephos_request_duration_seconds_count{method=\"CheckHealth\"}").isEmpty)
    }
}
