import Foundation
import NephosCore
import NephosHTTP
import Synchronization
import Testing

/// What an honest client gets, and what others may take of the server, over real sockets.
@Suite struct ServerTests {
    private static func server(
        _ change: (inout HTTPLimits) -> Void = { _ in }, answering handler: @escaping HTTPHandler = greet
    ) throws -> HTTPServer {
        var limits = HTTPLimits()
        change(&limits)
        return try HTTPServer(host: "127.0.0.1", port: 0, limits: limits, handler: handler)
    }

    private static func answering(_ handler: @escaping HTTPHandler) throws -> HTTPServer {
        try server(answering: handler)
    }

    private static let greet: HTTPHandler = { request, answer in
        answer(HTTPResponse(200, text: "\(request.method.rawValue) \(request.path)"))
    }

    @Test func anAnswerHasSafeHeadersAndTheConnectionIsKept() async throws {
        let server = try Self.server()
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            for path in ["/a", "/b?secret=1"] {
                connection.get(path)
                let answer = try #require(connection.answer())
                #expect(answer.status == 200 && answer.text == "GET \(path.prefix(2))\n")
                #expect(answer.headers["x-content-type-options"] == "nosniff")
                #expect(answer.headers["content-security-policy"] == "sandbox; default-src 'none'")
                #expect(answer.headers["referrer-policy"] == "no-referrer")
                #expect(answer.headers["cache-control"] == "private, no-store")
                #expect(answer.headers["connection"] != "close")
            }
            connection.get("/c", method: "HEAD")
            let head = try #require(connection.answer(hasBody: false))
            #expect(head.status == 200 && head.headers["content-length"] == "8")
            connection.get("/d")
            #expect(connection.answer()?.text == "GET /d\n")
        }
    }

    @Test func othersThanGetAndHeadAreNotAnswered() async throws {
        let server = try Self.answering { _, _ in Issue.record("It was handled.") }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"] {
                let connection = try RawConnection(port)
                connection.get(method == "CONNECT" ? "a:1" : "/", method: method)
                let answer = try #require(connection.answer())
                #expect(answer.status == 405 && answer.headers["allow"] == "GET, HEAD", "\(method)")
                #expect(answer.headers["x-content-type-options"] == "nosniff")
                #expect(connection.receiveAll().isEmpty)
            }
            let body = try RawConnection(port)
            body.get("/", ["Content-Length: 3"])
            body.send("abc")
            #expect(body.answer()?.status == 413)
            for text in [
                "nonsense\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                "GET  HTTP/1.1\r\n\r\n",
            ] {
                let connection = try RawConnection(port)
                connection.send(text)
                #expect(connection.answer()?.status == 400, "\(text)")
                #expect(connection.receiveAll().isEmpty)
            }
        }
    }

    @Test func requestsThatComeAtOnceAreAnsweredInTheirOrder() async throws {
        let server = try Self.answering { request, answer in
            // The first takes the longest.
            let pause = request.path == "/0" ? 0.3 : 0
            DispatchQueue.global().asyncAfter(deadline: .now() + pause) {
                answer(HTTPResponse(200, text: request.path))
            }
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.send((0..<50).map { "GET /\($0) HTTP/1.1\r\nHost: here\r\n\r\n" }.joined())
            for number in 0..<50 { #expect(connection.answer()?.text == "/\(number)\n") }
        }
    }

    /// Whatever comes, and however it is cut, the next client is served.
    @Test func hostileBytesEndNoServer() async throws {
        let server = try Self.server { $0.headerTime = .milliseconds(300) }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            var generator = SplitMix64(seed: 7)
            let whole = "GET /a HTTP/1.1\r\nHost: here\r\nRange: bytes=0-1\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
            for _ in 0..<200 {
                var bytes = Array(whole.utf8)
                for _ in 0..<Int.random(in: 0..<4, using: &generator) {
                    bytes[Int.random(in: 0..<bytes.count, using: &generator)] = .random(
                        in: .min ... .max, using: &generator)
                }
                let connection = try RawConnection(port)
                connection.send(bytes: Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &generator))))
                // Some wait for an answer; some are gone before it.
                if Bool.random(using: &generator) { _ = connection.answer() }
            }
            let honest = try RawConnection(port)
            honest.get("/a")
            #expect(honest.answer()?.status == 200)
        }
    }

    @Test func headersAreBounded() async throws {
        let server = try Self.server { $0.headerBytesMax = 4096 }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            // One that ends, and one that never does.
            for end in ["\r\n\r\n", ""] {
                let connection = try RawConnection(port)
                connection.send("GET / HTTP/1.1\r\nX: " + String(repeating: "a", count: 5000) + end)
                #expect(connection.answer()?.status == 431)
                #expect(connection.receiveAll().isEmpty)
            }
            let many = try RawConnection(port)
            many.get("/", (0..<100).map { "X\($0): 1" })
            #expect(many.answer()?.status == 431)
            // What many requests have together is not counted.
            let honest = try RawConnection(port)
            honest.send(
                String(repeating: "GET /a HTTP/1.1\r\nX: \(String(repeating: "a", count: 900))\r\n\r\n", count: 20))
            for _ in 0..<20 { #expect(honest.answer()?.status == 200) }
        }
    }

    @Test func whoeverSendsSlowlyOrNothingIsCut() async throws {
        let server = try Self.server {
            $0.headerTime = .milliseconds(400)
            $0.idleTime = .milliseconds(400)
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let silent = try RawConnection(port)
            let start = ContinuousClock.now
            #expect(silent.receiveAll().isEmpty)
            #expect((.milliseconds(300)...(.seconds(15))).contains(start.duration(to: .now)))
            let slow = try RawConnection(port)
            var sent = 0
            for byte in "GET / HTTP/1.1\r\nHost: here\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
                usleep(50_000)
                guard slow.send(String(byte)) else { break }
                sent += 1
            }
            #expect(sent < 40)
            let idle = try RawConnection(port)
            idle.get("/")
            #expect(idle.answer()?.status == 200)
            #expect(idle.receiveAll().isEmpty)
        }
    }

    /// A program that is started beside the server has none of its connections, and so keeps none of them open.
    @Test func connectionsAreNotInheritedByPrograms() async throws {
        let server = try Self.server { $0.idleTime = .milliseconds(800) }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/")
            #expect(connection.answer()?.status == 200)
            let arguments: [UnsafeMutablePointer<CChar>?] = [strdup("/bin/sleep"), strdup("30"), nil]
            defer { for argument in arguments { free(argument) } }
            var program: pid_t = 0
            try #require(posix_spawn(&program, "/bin/sleep", nil, nil, arguments, nil) == 0)
            defer {
                kill(program, SIGKILL)
                waitpid(program, nil, 0)
            }
            #expect(connection.receiveAll().isEmpty && !connection.hasTimedOut)
        }
    }

    @Test func oneAddressDoesNotTakeAllConnections() async throws {
        let server = try Self.server {
            $0.connectionsMax = 12
            $0.connectionsOfAddressMax = 8
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            var held: [RawConnection] = []
            for _ in 0..<10 {
                let connection = try RawConnection(port)
                connection.get("/")
                #expect(connection.answer()?.status == 200)
                held.append(connection)
            }
            #expect(server.connectionCount == 8)
            // The address's first two made room; the others are served.
            for (number, connection) in held.enumerated() {
                connection.get("/again")
                #expect((connection.answer()?.status == 200) == (number >= 2), "\(number)")
            }
        }
    }

    /// While all are being answered nobody makes room.
    @Test func connectionsAreBoundedInAll() async throws {
        let asked = Mutex<[@Sendable (HTTPResponse) -> Void]>([])
        let server = try Self.server {
            $0.connectionsMax = 3
            $0.connectionsOfAddressMax = 8
        } answering: { _, answer in
            asked.withLock { $0.append(answer) }
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let held = try (0..<3).map { _ in try RawConnection(port) }
            for connection in held { connection.get("/") }
            while asked.withLock({ $0.count < 3 }) { usleep(10_000) }
            for _ in 0..<2 {
                let further = try RawConnection(port)
                further.get("/")
                #expect(further.answer() == nil)
            }
            #expect(server.connectionCount == 3)
            for answer in asked.withLock({ $0 }) { answer(HTTPResponse(200, text: "here")) }
            for connection in held { #expect(connection.answer()?.status == 200) }
        }
    }

    @Test(arguments: [4, 32]) func whoOpensManyAndAsksNothingKeepsNobodyOut(ofAddress: Int) async throws {
        let asked = Mutex<(@Sendable (HTTPResponse) -> Void)?>(nil)
        let server = try Self.server {
            $0.connectionsMax = 4
            $0.connectionsOfAddressMax = ofAddress
        } answering: { request, answer in
            if request.path == "/slow" {
                asked.withLock { $0 = answer }
            } else {
                answer(HTTPResponse(200, text: "here"))
            }
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            // One that is being answered stays, though it is the oldest.
            let slow = try RawConnection(port)
            slow.get("/slow")
            let deadline = ContinuousClock.now + .seconds(120)
            while asked.withLock({ $0 == nil }), ContinuousClock.now < deadline { usleep(10_000) }
            var held: [RawConnection] = []
            for number in 0..<40 {
                let idle = try RawConnection(port)
                // Some ask once, and some begin to.
                if number % 3 == 0 { idle.get("/"); #expect(idle.answer()?.status == 200) }
                if number % 3 == 1 { _ = idle.send("GET / HT") }
                held.append(idle)
                let honest = try RawConnection(port)
                honest.get("/live")
                #expect(honest.answer()?.text == "here\n", "\(number)")
            }
            #expect(server.connectionCount <= 4)
            asked.withLock { $0 }?(HTTPResponse(200, text: "late"))
            #expect(slow.answer()?.text == "late\n")
        }
    }

    @Test func aConnectionHasSoManyRequests() async throws {
        let server = try Self.server { $0.requestsMax = 3 }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.send(String(repeating: "GET / HTTP/1.1\r\n\r\n", count: 5))
            for number in 1...3 { #expect((connection.answer()?.headers["connection"] == "close") == (number == 3)) }
            #expect(connection.answer() == nil)
        }
    }

    /// Whoever does not read has a piece made for it and what the kernel takes, and no more.
    @Test func whoeverDoesNotReadHasNothingMadeForIt() async throws {
        let asked = Atomic(0)
        let length = 1 << 30
        let server = try Self.server {
            $0.stallTime = .milliseconds(800)
        } answering: { _, answer in
            let body = MadeBody(piece: 1 << 20) { asked.add(1, ordering: .relaxed) }
            answer(HTTPResponse(200, .source(body, length: UInt64(length))))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/")
            usleep(400_000)
            let made = asked.load(ordering: .relaxed)
            #expect((1...16).contains(made), "\(made)")
            // It is cut, and sees that something is missing.
            usleep(1_500_000)
            #expect(connection.answer() == nil)
            #expect(asked.load(ordering: .relaxed) < 32)
        }
    }

    @Test func aBodyIsWrittenPieceByPieceAndWhole() async throws {
        let server = try Self.answering { _, answer in
            answer(HTTPResponse(200, .source(MadeBody(piece: 100_000), length: 1_000_000)))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            for _ in 0..<3 {
                connection.get("/")
                #expect(connection.answer()?.body.count == 1_000_000)
            }
            connection.get("/", method: "HEAD")
            #expect(connection.answer(hasBody: false)?.headers["content-length"] == "1000000")
            connection.get("/")
            #expect(connection.answer()?.body.count == 1_000_000)
        }
    }

    /// Too much, too little, an error: none of it looks like a whole answer.
    @Test func aBodyThatFailsCutsTheConnection() async throws {
        struct Body: HTTPBodySource {
            var pieces: @Sendable () -> Result<[UInt8], any Error>
            func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) { completion(pieces()) }
        }
        let bodies = [
            Body { .success([]) }, Body { .success([1, 2, 3, 4]) },
            Body { .failure(CloudError(.storageFailure, "It is damaged.")) },
        ]
        for body in bodies {
            let server = try Self.answering { _, answer in answer(HTTPResponse(200, .source(body, length: 3))) }
            defer { server.stop() }
            try await onThread { [port = server.port] in
                let connection = try RawConnection(port)
                connection.get("/")
                #expect(connection.answer() == nil)
            }
        }
    }

    @Test func aRequestThatIsNotAnsweredInTimeIsEnded() async throws {
        let server = try Self.server {
            $0.answerTime = .milliseconds(200)
        } answering: { request, answer in
            // Twice, and late: nobody minds.
            DispatchQueue.global().asyncAfter(deadline: .now() + 0.5) {
                answer(HTTPResponse(200, text: "late"))
                answer(HTTPResponse(200, text: "late"))
            }
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/")
            #expect(connection.answer()?.status == 503)
            #expect(connection.receiveAll().isEmpty)
        }
    }

    @Test func aRequestHasItsTimeInAll() async throws {
        struct Slow: HTTPBodySource {
            func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) {
                DispatchQueue.global().asyncAfter(deadline: .now() + 0.1) { completion(.success([0])) }
            }
        }
        let server = try Self.server {
            $0.requestTime = .milliseconds(500)
        } answering: { _, answer in
            answer(HTTPResponse(200, .source(Slow(), length: 60)))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/")
            // Without that time it has its answer after six seconds.
            #expect(connection.answer() == nil)
        }
    }

    /// Whoever has gone has nothing more made for it, and the server is told so.
    @Test func aBodyIsToldThatItsClientHasGone() async throws {
        final class Waiting: HTTPBodySource {
            let cancels = Atomic(0)
            func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) {}
            func cancel() { cancels.add(1, ordering: .relaxed) }
        }
        let (waiting, whole) = (Waiting(), Waiting())
        let server = try Self.answering { request, answer in
            let isEmpty = request.path == "/empty"
            answer(HTTPResponse(200, .source(isEmpty ? whole : waiting, length: isEmpty ? 0 : 5)))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            for _ in 0..<3 {
                let connection = try RawConnection(port)
                connection.get("/empty")
                #expect(connection.answer()?.status == 200)
                connection.get("/")
                usleep(50_000)
            }
            let deadline = ContinuousClock.now + .seconds(120)
            while waiting.cancels.load(ordering: .relaxed) < 3, ContinuousClock.now < deadline { usleep(10_000) }
            #expect(waiting.cancels.load(ordering: .relaxed) == 3)
            // One that came to its end is not.
            #expect(whole.cancels.load(ordering: .relaxed) == 0)
        }
    }

    @Test func anAddressAsksSoOften() async throws {
        let handled = Atomic(0)
        let server = try Self.server {
            $0.requestsOfAddressMax = 5
            $0.requestsOfAddressPerSecond = 1
        } answering: { _, answer in
            handled.add(1, ordering: .relaxed)
            answer(HTTPResponse(200, text: "here"))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            var statuses: [Int?] = []
            for _ in 0..<2 {
                // On one connection, and on another.
                let connection = try RawConnection(port)
                for _ in 0..<4 {
                    connection.get("/")
                    let answer = connection.answer()
                    if answer?.status == 429 { #expect(answer?.headers["retry-after"] == "1") }
                    statuses.append(answer?.status)
                }
            }
            #expect(statuses == [200, 200, 200, 200, 200, 429, 429, 429])
            #expect(handled.load(ordering: .relaxed) == 5)
            usleep(1_200_000)
            let connection = try RawConnection(port)
            connection.get("/")
            #expect(connection.answer()?.status == 200)
        }
    }

    /// A request that waits for the test to answer it.
    private final class HeldRequest: Sendable {
        private let answer = Mutex<(@Sendable (HTTPResponse) -> Void)?>(nil)

        var handler: HTTPHandler { { _, answer in self.answer.withLock { $0 = answer } } }

        func wait() {
            while answer.withLock({ $0 == nil }) { usleep(5000) }
        }

        func give(_ text: String) { answer.withLock { $0 }?(HTTPResponse(200, text: text)) }
    }

    /// Stops the server, and waits until it has ended.
    private static func stop(_ server: HTTPServer, meanwhile: () -> Void = {}) {
        let ended = DispatchSemaphore(value: 0)
        server.stop { ended.signal() }
        meanwhile()
        ended.wait()
    }

    @Test func whatIsUnderWayIsAnsweredBeforeTheServerEnds() async throws {
        let held = HeldRequest()
        let server = try Self.server(answering: held.handler)
        try await onThread {
            let (idle, busy) = (try RawConnection(server.port), try RawConnection(server.port))
            busy.get("/")
            held.wait()
            Self.stop(server) {
                #expect(idle.receiveAll().isEmpty)
                held.give("done")
            }
            let answer = busy.answer()
            #expect(answer?.text == "done\n" && answer?.headers["connection"] == "close")
            #expect(throws: CloudError.self) { try RawConnection(server.port) }
        }
    }

    @Test func whatIsNotAnsweredInTimeDoesNotKeepTheServer() async throws {
        let held = HeldRequest()
        let server = try Self.server {
            $0.graceTime = .milliseconds(300)
        } answering: {
            held.handler($0, $1)
        }
        try await onThread {
            let busy = try RawConnection(server.port)
            busy.get("/")
            held.wait()
            let start = ContinuousClock.now
            Self.stop(server)
            #expect((.milliseconds(200)...(.seconds(20))).contains(start.duration(to: .now)))
            #expect(busy.answer() == nil)
        }
    }

    @Test func anAddressThatIsTakenIsAnErrorWithACure() throws {
        let server = try Self.server()
        defer { server.stop() }
        do {
            _ = try HTTPServer(host: "127.0.0.1", port: server.port, handler: Self.greet)
            Issue.record("Two servers listen at one port.")
        } catch { #expect(error.code == .configurationInvalid && error.details["port"] == "\(server.port)") }
    }
}
