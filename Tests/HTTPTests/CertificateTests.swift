import Foundation
import NephosCore
import NephosHTTP
import Synchronization
import Testing

/// A server with a certificate is as safe as one without, and its certificate can be renewed.
@Suite struct CertificateTests {
    private static let greet: HTTPHandler = { request, answer in answer(HTTPResponse(200, text: request.path)) }

    private func server(
        _ files: TestCertificates, problems: Problems = Problems(), _ change: (inout HTTPLimits) -> Void = { _ in },
        answering handler: @escaping HTTPHandler = greet
    ) throws -> HTTPServer {
        var limits = HTTPLimits()
        change(&limits)
        let certificate = try HTTPCertificate(chainFile: files.chain, keyFile: files.key, lookPause: .zero) {
            problems.add($0)
        }
        return try HTTPServer(host: "127.0.0.1", port: 0, limits: limits, certificate: certificate, handler: handler)
    }

    final class Problems: Sendable {
        private let kept = Mutex<[CloudError]>([])
        func add(_ problem: CloudError) { kept.withLock { $0.append(problem) } }
        var all: [CloudError] { kept.withLock { $0 } }
    }

    /// What curl gets, and its exit code.
    private func curl(_ arguments: String...) async throws -> (status: Int32, output: String) {
        try await onThread {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
            process.arguments = ["curl", "-s", "--max-time", "20"] + arguments
            let output = Pipe()
            process.standardOutput = output
            try process.run()
            let bytes = output.fileHandleForReading.readDataToEndOfFile()
            process.waitUntilExit()
            return (process.terminationStatus, String(decoding: bytes, as: UTF8.self))
        }
    }

    @Test func aClientThatKnowsTheCertificateIsAnsweredOverTLS() async throws {
        let files = try TestCertificates()
        let server = try server(files)
        defer { server.stop() }
        let url = "https://127.0.0.1:\(server.port)/a"
        for version in ["1.2", "1.3"] {
            let answer = try await curl("--tlsv\(version)", "--tls-max", version, "--cacert", files.chain, "-i", url)
            #expect(answer.status == 0 && answer.output.hasSuffix("/a\n"), "\(answer)")
            #expect(answer.output.lowercased().contains("x-content-type-options: nosniff"), "\(answer)")
        }
        // Several requests over one connection.
        let both = try await curl("--cacert", files.chain, "-w", "%{num_connects}", url, url)
        #expect(both.output == "/a\n1/a\n0", "\(both)")
        // Who does not know it, and who speaks what is too old or no TLS.
        #expect(try await curl(url).status == 60)
        let old = try await curl(
            "--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", "--cacert", files.chain, url)
        #expect(old.status == 35, "\(old)")
        #expect(try await curl("http://127.0.0.1:\(server.port)/a").status != 0)
        #expect(try await curl("--cacert", files.chain, url).output == "/a\n")
    }

    @Test func filesThatAreReplacedAreReadAgain() async throws {
        let (files, problems) = (try TestCertificates(), Problems())
        let server = try server(files, problems: problems)
        defer { server.stop() }
        let url = "https://127.0.0.1:\(server.port)/a"
        let first = files.folder + "/first.pem"
        try files.write(files.first.chain, to: first)
        #expect(try await curl("--cacert", first, url).status == 0)
        try files.replace(by: files.second)
        #expect(try await curl("--cacert", files.chain, url).output == "/a\n")
        #expect(try await curl("--cacert", first, url).status == 60)
        #expect(problems.all.isEmpty)
        // What cannot be used is told once, and what is in use stays.
        let second = files.folder + "/second.pem"
        try files.write(files.second.chain, to: second)
        try files.write(files.first.chain, to: files.chain)
        for _ in 0..<3 { #expect(try await curl("--cacert", second, url).output == "/a\n") }
        #expect(problems.all.map(\.code) == [.configurationInvalid])
        try FileManager.default.removeItem(atPath: files.key)
        #expect(try await curl("--cacert", second, url).output == "/a\n")
        #expect(problems.all.count == 2)
        try files.replace(by: files.first)
        #expect(try await curl("--cacert", first, url).output == "/a\n")
        #expect(problems.all.count == 2)
    }

    @Test func whatCannotBeUsedIsRefusedWithItsFile() throws {
        func refused(_ file: KeyPath<TestCertificates, String>, _ change: (TestCertificates) throws -> Void) throws {
            let files = try TestCertificates()
            try change(files)
            let error = #expect(throws: CloudError.self) {
                try HTTPCertificate(chainFile: files.chain, keyFile: files.key)
            }
            #expect(error?.code == .configurationInvalid && error?.details["file"] == files[keyPath: file])
        }
        try refused(\.chain) { try FileManager.default.removeItem(atPath: $0.chain) }
        try refused(\.chain) { try $0.write("nothing", to: $0.chain) }
        try refused(\.chain) { try $0.write($0.second.chain, to: $0.chain) }
        try refused(\.key) { try FileManager.default.removeItem(atPath: $0.key) }
        try refused(\.key) { try $0.write("nothing", to: $0.key) }
        try refused(\.key) { try $0.write(TestCertificates.text("locked.key"), to: $0.key) }
        try refused(\.key) { try $0.write($0.first.key, to: $0.key, mode: 0o644) }
        let files = try TestCertificates()
        // A group of its own may read it.
        try files.write(files.first.key, to: files.key, mode: 0o640)
        _ = try HTTPCertificate(chainFile: files.chain, keyFile: files.key)
    }

    /// The bounds of a server without one hold.
    @Test func whoeverShakesNoHandsIsCut() async throws {
        let files = try TestCertificates()
        let server = try server(files) { $0.headerTime = .milliseconds(400) }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let silent = try RawConnection(port)
            let start = ContinuousClock.now
            #expect(silent.receiveAll().isEmpty)
            #expect((.milliseconds(300)...(.seconds(15))).contains(start.duration(to: .now)))
            // The beginning of a greeting, and no more.
            let slow = try RawConnection(port)
            slow.send(bytes: [0x16, 0x03, 0x01, 0x02, 0x00, 0x01])
            #expect(slow.receiveAll().isEmpty)
        }
    }

    @Test func whoeverSendsTooMuchIsTold() async throws {
        let files = try TestCertificates()
        let server = try server(files) { $0.headerBytesMax = 4096 }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            var generator = SplitMix64(seed: 3)
            for _ in 0..<50 {
                let hostile = try RawConnection(port)
                hostile.send(bytes: (0..<300).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
            }
        }
        let url = "https://127.0.0.1:\(server.port)/a"
        let long = try await curl(
            "--cacert", files.chain, "-o", "/dev/null", "-w", "%{http_code}", "-H",
            "X: " + String(repeating: "a", count: 20_000), url)
        #expect(long.output == "431", "\(long)")
        #expect(try await curl("--cacert", files.chain, url).output == "/a\n")
    }

    @Test func whoeverDoesNotReadHasNothingMadeForIt() async throws {
        let files = try TestCertificates()
        let asked = Atomic(0)
        let server = try server(files) {
            $0.stallTime = .milliseconds(500)
        } answering: { _, answer in
            let body = MadeBody(piece: 1 << 20) { asked.add(1, ordering: .relaxed) }
            answer(HTTPResponse(200, .source(body, length: 1 << 30)))
        }
        defer { server.stop() }
        let cut = try await curl(
            "--cacert", files.chain, "--limit-rate", "1000", "-o", "/dev/null", "https://127.0.0.1:\(server.port)/")
        #expect(cut.status == 18 || cut.status == 56 || cut.status == 28, "\(cut)")
        #expect((1...32).contains(asked.load(ordering: .relaxed)))
        let deadline = ContinuousClock.now + .seconds(120)
        while server.connectionCount > 0, ContinuousClock.now < deadline {
            try await Task.sleep(for: .milliseconds(20))
        }
        #expect(server.connectionCount == 0)
    }
}
