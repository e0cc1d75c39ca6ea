import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// Whoever starts services again asks over HTTP how they are.
@Suite struct HealthTests {
    @Test func aServiceSaysThatItLivesAndTakesWhatComes() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_KEYVALUE_HEALTH_PORT": "\(port)"])
            for path in ["live", "ready"] {
                let answer = try await Web.get("http://127.0.0.1:\(port)/\(path)")
                #expect(answer.status == "200", "\(path)")
            }
            #expect(try await Web.get("http://127.0.0.1:\(port)/other").status == "404")
            // One that stands still says nothing good of itself.
            let service = try house.holder(.keyValue)
            kill(service, SIGSTOP)
            let stopped = try await Web.get("http://127.0.0.1:\(port)/live", patience: 2)
            kill(service, SIGCONT)
            #expect(stopped.status == "000")
            #expect(try await Web.get("http://127.0.0.1:\(port)/ready").status == "200")
        }
    }

    @Test func whoHoldsConnectionsKeepsNobodyFromTheAnswer() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_KEYVALUE_HEALTH_PORT": "\(port)"])
            let held = try (0..<100).map { _ in try Web.connect(port) }
            defer { for descriptor in held { close(descriptor) } }
            for path in ["live", "ready", "metrics"] {
                #expect(try await Web.get("http://127.0.0.1:\(port)/\(path)").status == "200", "\(path)")
            }
        }
    }

    /// What has been told to answer has its whole start behind it.
    @Test func aHealthPortThatIsTakenEndsTheStart() async throws {
        let (taken, port) = try Web.listen()
        defer { close(taken) }
        try await withHousehold { house in
            var nephos = house.nephos
            nephos.environment["NEPHOS_KEYVALUE_HEALTH_PORT"] = "\(port)"
            let up = try await nephos.run("up", "--timeout", "10")
            #expect(up.status != 0, "\(up)")
        }
    }

    @Test func aHealthPortThatThereIsNotEndsTheStartWithItsKey() async throws {
        try await withHousehold { house in
            var nephos = house.nephos
            nephos.environment["NEPHOS_KEYVALUE_HEALTH_PORT"] = "70000"
            let up = try await nephos.run("up", "--timeout", "10")
            #expect(up.status != 0, "\(up)")
            #expect(up.errors.contains("NEPHOS_KEYVALUE_HEALTH_PORT"), "\(up)")
        }
    }

    /// What compose and systemd ask: the program itself, so that an image needs no other.
    @Test func aServicesProgramSaysWhetherItIsReady() async throws {
        let port = try Web.freePort()
        try await withHousehold { house in
            try await house.begin(["NEPHOS_KEYVALUE_HEALTH_PORT": "\(port)"])
            var service = Program(name: "nephos-keyvalue")
            service.environment["NEPHOS_HEALTH_PORT"] = "\(port)"
            #expect(try await service.run("--is-ready").status == 0)
            // Where all addresses are listened at, one of them is asked.
            service.environment["NEPHOS_HEALTH_HOST"] = "0.0.0.0"
            #expect(try await service.run("--is-ready").status == 0)
            let process = try house.holder(.keyValue)
            kill(process, SIGSTOP)
            let silent = try await service.run("--is-ready")
            kill(process, SIGCONT)
            #expect(silent.status != 0)
            #expect(silent.errors.contains("does not answer"), "\(silent)")
            service.environment["NEPHOS_HEALTH_PORT"] = ""
            #expect(try await service.run("--is-ready").errors.contains("NEPHOS_KEYVALUE_HEALTH_PORT"))
        }
    }
}
