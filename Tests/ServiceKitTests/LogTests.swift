import Foundation
import Logging
import NephosCore
import Testing

@testable import NephosServiceKit

/// How services write their logs.
struct LogTests {
    @Test func aLineHasItsTimeLevelServiceAndFields() throws {
        let kept = KeptLog()
        kept.logger(.text).warning("It is so", metadata: ["request.id": "abc", "what": "two words", "n": "1"])
        #expect(
            kept.all == ["2026-03-01T12:00:00.123Z warning keyvalue: It is so n=1 request.id=abc what=\"two words\"\n"])
        kept.logger(.json).warning("It is so", metadata: ["request.id": "abc", "what": "two words", "level": "no"])
        let object = try JSONSerialization.jsonObject(with: Data(kept.all[1].utf8)) as? [String: String]
        #expect(
            object == [
                "time": "2026-03-01T12:00:00.123Z", "level": "warning", "service": "keyvalue", "message": "It is so",
                "request.id": "abc", "what": "two words",
            ])
    }

    /// Whatever is in it, it is one line, and tells neither a terminal nor a reader of objects something else.
    @Test func noValueEndsALineOrCommandsATerminal() throws {
        let hostile = "a\nb\u{1b}[2J\"\\\u{202e}\r\u{0}"
        let kept = KeptLog()
        kept.logger(.text).error("x", metadata: ["v": "\(hostile)"])
        kept.logger(.json).error("x", metadata: ["v": "\(hostile)"])
        for line in kept.all {
            #expect(line.utf8.count { $0 < 0x20 } == 1 && line.hasSuffix("\n"))
        }
        #expect(!kept.all[0].contains("\u{202e}"))
        #expect(kept.all[0].contains(#"\"\\\u{202e}"#))
        let object = try JSONSerialization.jsonObject(with: Data(kept.all[1].utf8)) as? [String: String]
        #expect(object?["v"] == hostile)
    }

    /// Not for a reader who has stopped, and not with half a line before the next.
    @Test func nobodyWaitsForWhoeverReadsTheLog() throws {
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        let (from, to) = (ends[0], ends[1])
        defer { close(from) }
        let line = [UInt8](repeating: 0x61, count: 4999) + [0x0a]
        let done = DispatchSemaphore(value: 0)
        let written = DispatchSemaphore(value: 0)
        DispatchQueue.global().async {
            let output = LogOutput(to)
            for _ in 0..<100 { output.write(line) }
            written.signal()
            done.wait()
            output.write(Array("next\n".utf8))
            close(to)
        }
        #expect(written.wait(timeout: .now() + 10) == .success)
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        let first = read(from, &bytes, bytes.count)
        #expect((1 << 15..<100 * line.count).contains(first))
        var text = String(decoding: bytes.prefix(max(0, first)), as: UTF8.self)
        done.signal()
        while case let count = read(from, &bytes, bytes.count), count > 0 {
            text += String(decoding: bytes.prefix(count), as: UTF8.self)
        }
        let lines = text.split(separator: "\n")
        #expect(lines.last == "next" && lines.dropLast(2).allSatisfy { $0.utf8.count == 4999 })
    }

    @Test func aValueIsBounded() {
        let kept = KeptLog()
        for format in [LogFormat.text, .json] {
            kept.logger(format).error("x", metadata: ["v": "\(String(repeating: "é", count: 1 << 20))"])
        }
        #expect(kept.all.count == 2 && kept.all.allSatisfy { $0.utf8.count < 1200 && $0.contains("é…") })
    }

    /// Nobody fills the disk by having the same said a million times, or hides what else is said.
    @Test func aKindOfLineIsBoundedAndToldOf() {
        let kept = KeptLog()
        let logger = kept.logger(.text)
        for _ in 0..<10_000 { logger.error("Again") }
        logger.error("Something else")
        #expect(kept.all.count { $0.contains(": Again") } == 20)
        #expect(kept.all.count { $0.contains("Something else") } == 1)
        #expect(!kept.all.contains { $0.contains("left out") })
        kept.passes(.seconds(6))
        logger.error("Something else")
        #expect(kept.all.count { $0.contains("Lines were left out: 9980 more like this") && $0.contains("Again") } == 1)
        // A day of it.
        for _ in 0..<1000 {
            kept.passes(.seconds(86))
            for _ in 0..<100 { logger.error("Again") }
        }
        #expect(kept.all.count < 1000 * 25)
        #expect(kept.all.count { $0.contains(": Again") } > 1000)
    }

    @Test func whatWasLeftOutIsToldAtTheEnd() {
        let kept = KeptLog()
        let sink = kept.sink(.json)
        for _ in 0..<30 { sink.log(.info, "Again", []) }
        sink.end()
        #expect(kept.all.last?.contains("\"count\":\"10\"") == true)
        #expect(sink.leftOut == 10)
    }

    @Test func kindsWithoutEndAreOneKind() {
        let kept = KeptLog()
        let sink = kept.sink(.text)
        for number in 0..<5000 { sink.log(.info, "Kind \(number)", []) }
        #expect(kept.all.count == LogRates.kindsMax + LogRates.burst)
    }

    /// What a person wrote or named is in no log.
    @Test func whatPeopleNamedIsNotLogged() {
        let error = CloudError(
            .invalidArguments, "No.",
            details: [
                "item": "Diary.txt", "key": "secret", "former_name": "x", "value": "y", "token": "z",
                "argument": "keys",
                "bytes_max": "10",
            ])
        #expect(error.loggedDetails == "argument=keys bytes_max=10")
    }
}
