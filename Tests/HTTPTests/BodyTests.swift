import Foundation
import NephosCore
import NephosHTTP
import Synchronization
import Testing

/// Bodies of requests, and answers of unknown length, over real sockets.
@Suite struct BodyTests {
    typealias Handler = @Sendable (HTTPRequest) async -> HTTPResponse

    private static func server(
        _ handler: @escaping Handler, limits change: (inout HTTPLimits) -> Void = { _ in }
    ) throws -> HTTPServer {
        var limits = HTTPLimits()
        limits.bodyBytesMax = 1 << 30
        change(&limits)
        return try HTTPServer(
            host: "127.0.0.1", port: 0, limits: limits, methods: [.get, .put, HTTPRequest.Method(rawValue: "PROPFIND")]
        ) { request, answer in
            Task { answer(await handler(request)) }
        }
    }

    /// Says how long the body was, and how it began.
    @Sendable private static func measure(_ request: HTTPRequest) async -> HTTPResponse {
        var (count, first) = (0, [UInt8]())
        do {
            while let body = request.body {
                let piece = try await body.next()
                if piece.isEmpty { break }
                count += piece.count
                first += piece.prefix(Swift.max(0, 3 - first.count))
            }
        } catch { return HTTPResponse(413, text: "\(error)") }
        return HTTPResponse(200, text: "\(request.method.rawValue) \(count) \(String(decoding: first, as: UTF8.self))")
    }

    @Test func bodiesComeWholeAndTheConnectionIsKept() async throws {
        let server = try Self.server(Self.measure)
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            // At once, so that each body comes behind the request before.
            connection.send(
                "PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n"
                    + "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n3\r\nzzz\r\n0\r\n\r\n"
                    + "PROPFIND /d HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
            for text in ["PUT 3 abc\n", "GET 0 \n", "PUT 5 xyz\n", "PROPFIND 0 \n"] {
                #expect(connection.answer()?.text == text)
            }
            let long = [UInt8](repeating: UInt8(ascii: "l"), count: 5_000_000)
            connection.send("PUT /e HTTP/1.1\r\nContent-Length: \(long.count)\r\n\r\n")
            connection.send(bytes: long)
            #expect(connection.answer()?.text == "PUT 5000000 lll\n")
        }
    }

    @Test func aClientIsToldToGoOnOnceItsBodyIsWanted() async throws {
        let server = try Self.server { request in
            guard request.path == "/wanted" else { return HTTPResponse(401, text: "Who are you?") }
            return await Self.measure(request)
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/wanted", method: "PUT", ["Content-Length: 3", "Expect: 100-continue"])
            #expect(String(decoding: connection.receive(), as: UTF8.self).hasPrefix("HTTP/1.1 100 Continue\r\n"))
            connection.send("abc")
            #expect(connection.answer()?.text == "PUT 3 abc\n")
            connection.get("/", method: "PUT", ["Content-Length: 3", "Expect: 100-continue"])
            let answer = try #require(connection.answer())
            #expect(answer.status == 401 && answer.headers["connection"] == "close")
            #expect(connection.receiveAll().isEmpty)
        }
    }

    /// A client reads the refusal also while it goes on sending.
    @Test func anUnwantedBodyHidesNoAnswer() async throws {
        let server = try Self.server { _ in HTTPResponse(401, text: "Who are you?") }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/", method: "PUT", ["Content-Length: 500000"])
            connection.send(bytes: [UInt8](repeating: 0, count: 500_000))
            #expect(connection.answer()?.status == 401)
            #expect(connection.receiveAll().isEmpty && !connection.hasTimedOut)
            // Without end it is cut off.
            let endless = try RawConnection(port)
            endless.get("/", method: "PUT", ["Transfer-Encoding: chunked"])
            var sent = 0
            while endless.send("10000\r\n" + String(repeating: "x", count: 0x10000) + "\r\n"), sent < 64 << 20 {
                sent += 0x10000
            }
            #expect(sent < 64 << 20)
        }
    }

    @Test func nothingIsReadThatNobodyWants() async throws {
        let (gate, open) = AsyncStream.makeStream(of: Void.self)
        let server = try Self.server { request in
            _ = try? await request.body?.next()
            for await _ in gate {}
            return await Self.measure(request)
        }
        defer { server.stop() }
        // Before anything was read, and in all.
        let before = Mutex(0)
        let sent = Mutex(0)
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            let total = 100 << 20
            connection.get("/", method: "PUT", ["Content-Length: \(total)"])
            DispatchQueue.global().asyncAfter(deadline: .now() + 1) {
                before.withLock { $0 = sent.withLock { $0 } }
                open.finish()
            }
            let piece = [UInt8](repeating: 1, count: 1 << 20)
            for _ in 0..<100 where connection.send(bytes: piece) { sent.withLock { $0 += piece.count } }
            #expect(connection.answer()?.status == 200)
        }
        // What the sockets hold.
        #expect(before.withLock { 1..<32 << 20 ~= $0 } && sent.withLock { $0 } == 100 << 20)
    }

    @Test func whoSendsTooSlowlyOrTooMuchIsCutOff() async throws {
        let ended = Mutex<[HTTPRequestBody.Ended]>([])
        let server = try Self.server { request in
            do { _ = try await request.body?.all(max: 100_000) } catch let error as HTTPRequestBody.Ended {
                ended.withLock { $0.append(error) }
                return HTTPResponse(413, text: "Too long.")
            } catch {}
            return HTTPResponse(200, text: "Thank you.")
        } limits: {
            $0.stallTime = .milliseconds(300)
            $0.bodyBytesMax = 1000
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let slow = try RawConnection(port)
            slow.get("/", method: "PUT", ["Content-Length: 900"])
            let begin = ContinuousClock.now
            // Never still for long.
            while slow.send("a"), ContinuousClock.now - begin < .seconds(10) { Thread.sleep(forTimeInterval: 0.05) }
            #expect(ContinuousClock.now - begin < .seconds(5))
            let still = try RawConnection(port)
            still.get("/", method: "PUT", ["Content-Length: 900"])
            #expect(still.receiveAll().isEmpty && !still.hasTimedOut)
            let gone = try RawConnection(port)
            gone.get("/", method: "PUT", ["Content-Length: 900"])
            let long = try RawConnection(port)
            long.get("/", method: "PUT", ["Content-Length: 1001"])
            #expect(long.answer()?.status == 413)
            let longer = try RawConnection(port)
            longer.get("/", method: "PUT", ["Transfer-Encoding: chunked"])
            longer.send("7d0\r\n" + String(repeating: "x", count: 2000) + "\r\n0\r\n\r\n")
            #expect(longer.answer()?.status == 413)
        }
        #expect(ended.withLock { $0.filter(\.isTooLong).count == 1 && $0.count >= 3 })
    }

    @Test func anAnswerOfUnknownLengthGoesOnUntilTheOtherEndLeaves() async throws {
        let count = Mutex(0)
        let (ends, end) = AsyncStream.makeStream(of: Void.self)
        let server = try Self.server { request in
            guard request.path == "/endless" else {
                let pieces = Mutex(["one ", "two ", "three"].map { Array($0.utf8) })
                return HTTPResponse(
                    200, .stream(HTTPBodyStream { pieces.withLock { $0.isEmpty ? [] : $0.removeFirst() } }))
            }
            return HTTPResponse(
                200, headers: [(name: "Content-Type", value: "text/event-stream")],
                .stream(
                    HTTPBodyStream(onEnd: { end.finish() }) {
                        try await Task.sleep(for: .milliseconds(5))
                        count.withLock { $0 += 1 }
                        return Array(": beat\n\n".utf8)
                    }))
        }
        defer { server.stop() }
        try await onThread { [port = server.port] in
            let connection = try RawConnection(port)
            connection.get("/")
            let text = String(
                decoding: connection.receive() + connection.receive() + connection.receive(), as: UTF8.self)
            #expect(text.lowercased().contains("transfer-encoding: chunked") && text.contains("4\r\none \r\n"))
            let endless = try RawConnection(port)
            endless.get("/endless")
            var bytes = 0
            while bytes < 500 { bytes += endless.receive().count }
        }
        for await _ in ends {}
        #expect(count.withLock { $0 } > 10)
    }
}
