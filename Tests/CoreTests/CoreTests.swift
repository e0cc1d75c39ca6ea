import NephosSimulation
import Testing

@testable import NephosCore

@Suite struct HybridClockTests {
    private let noon = Timestamp(milliseconds: 1_767_268_800_000)

    /// Whoever chooses the random part binds it like identity does.
    @Test(arguments: [
        String(repeating: "\0", count: 16), "\u{202e}aaaaaaaaaaaaa", "AAAAAAAAAAAAAAAA", "a\naaaaaaaaaaaaaa",
    ])
    func anIDOfOtherCharactersIsNobodys(_ random: String) {
        let account = AccountID("acct_1")
        let name = "dev_" + random
        #expect(!DeviceID(name + DeviceID.binding(of: name, to: account)).belongs(to: account))
    }

    @Test func doesNotGoBackWhenTheWallClockGoesBackALittle() {
        var clock = HybridClock()
        let first = clock.tick(now: noon)
        let second = clock.tick(now: noon.advanced(by: .seconds(-50)))
        #expect(second > first)
    }

    @Test func comesBackFromAFutureThatOnlyItsOwnWallClockSaid() {
        var clock = HybridClock()
        let seen = HybridTimestamp(noon.advanced(by: .seconds(30)))
        clock.observe(seen)
        let ahead = clock.tick(now: noon.advanced(by: .seconds(3600)))
        #expect(clock.tick(now: noon) == seen.next)
        #expect(clock.tick(now: noon, after: ahead) == ahead.next)
        #expect(clock.tick(now: noon.advanced(by: .seconds(40))) == HybridTimestamp(noon.advanced(by: .seconds(40))))
    }

    @Test func whatIsWrittenAfterSomethingWasSeenIsLater() {
        var clock = HybridClock()
        let ahead = HybridTimestamp(noon.advanced(by: .seconds(30)))
        clock.observe(ahead)
        #expect(clock.tick(now: noon) > ahead)
    }

    @Test func aMinuteAheadIsTheLimit() {
        #expect(HybridClock.limit(now: noon) == HybridTimestamp(noon.advanced(by: .seconds(60))))
    }
}

@Suite struct SetDigestTests {
    private func item(_ text: String) -> SetDigest { SetDigest(ofItem: Array(text.utf8)) }

    @Test func doesNotDependOnTheOrder() {
        var left = SetDigest.empty
        var right = SetDigest.empty
        for text in ["a", "b", "c"] { left.add(item(text)) }
        for text in ["c", "a", "b"] { right.add(item(text)) }
        #expect(left == right)
        #expect(left != .empty)
    }

    @Test func removingWhatWasAddedGivesTheDigestBefore() {
        var digest = item("a")
        digest.add(item("b"))
        digest.remove(item("b"))
        #expect(digest == item("a"))
    }

    @Test func survivesItsBytes() {
        let digest = item("a")
        #expect(SetDigest(bytes: digest.bytes) == digest)
        #expect(SetDigest(bytes: digest.bytes.dropLast()) == nil)
    }
}

@Suite struct OperationIDTests {
    @Test func carriesItsTimeAndSortsByIt() {
        var generator = SplitMix64(seed: 1)
        let early = OperationID(at: Timestamp(milliseconds: 1000), using: &generator)
        let late = OperationID(at: Timestamp(milliseconds: 1001), using: &generator)
        #expect(early.time == Timestamp(milliseconds: 1000))
        #expect(early < late)
        #expect(OperationID.lowerBound(at: Timestamp(milliseconds: 1001)) <= late)
        #expect(OperationID.lowerBound(at: Timestamp(milliseconds: 1001)) > early)
    }

    @Test func isAUUIDOfVersion7InTextAndBytes() {
        var generator = SplitMix64(seed: 2)
        let id = OperationID(at: Timestamp(milliseconds: 1_767_268_800_123), using: &generator)
        #expect(OperationID(id.description) == id)
        #expect(OperationID(bytes: id.bytes) == id)
        #expect(id.description.dropFirst(14).first == "7")
        #expect(OperationID(bytes: [1, 2, 3]) == nil)
        #expect(OperationID("not a uuid") == nil)
    }
}

@Suite struct KeyTests {
    /// The example of ZeroMQ RFC 32.
    @Test func z85IsTheRFCs() {
        let bytes: [UInt8] = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b]
        #expect(Z85.encode(bytes) == "HelloWorld")
        #expect(Z85.decode("HelloWorld") == bytes)
        #expect(Z85.decode("Hello") == [0x86, 0x4f, 0xd2, 0x6f])
        #expect(Z85.decode("Hell") == nil)
        #expect(Z85.decode("%%%%%") == nil)
        #expect(Z85.decode("Hell\u{e9}") == nil)
    }

    @Test func secretKeysDoNotPrintThemselves() throws {
        let key = try #require(SecretKey(bytes: [UInt8](repeating: 7, count: 32)))
        #expect("\(key)" == "(secret key)")
    }

    @Test func connectionStringsSurviveTheirText() throws {
        let key = try #require(PublicKey(bytes: (0..<32).map { UInt8($0) }))
        let connection = try ConnectionString(host: "cloud.example", port: 7400, key: key)
        #expect(try ConnectionString(connection.description) == connection)
        // A shell takes it without quotes, and it fits a line.
        #expect(connection.description == "nephos://cloud.example/1JNArUumxYJcSQpbuxuroRZtcSMVLcy5WbYGt14SRm6MJ")
        let text = "nephos://cloud.example:7410/1JNArUumxYJcSQpbuxuroRZtcSMVLcy5WbYGt14SRm6MJ"
        #expect(try ConnectionString(text).port == 7410)
        for text in [
            "http://a:1/x", "nephos://a", "nephos://a:0/x", "nephos://a:1", "", connection.description + "x",
            String(connection.description.dropLast()), connection.description + "/", "nephos://a/0OIl",
            connection.description.replacing("cloud.example", with: "cloud.example:+7400"),
            connection.description.replacing("cloud.example", with: "eth0;127.0.0.1"),
        ] {
            #expect(throws: CloudError.self) { try ConnectionString(text) }
        }
    }
}

@Suite struct LimitTests {
    @Test func tellsWhichLimitAndByHowMuch() throws {
        let limits = KeyValueLimits.standard
        do {
            try limits.check(keyBytes: 65, valueBytes: 1)
            Issue.record("A key of 65 bytes was accepted")
        } catch {
            #expect(error.code == .quotaExceeded)
            #expect(error.details["limit"] == "key_bytes")
            #expect(error.details["over_by"] == "1")
        }
    }

    @Test func whatMakesAStoreSmallerIsNeverRefused() throws {
        let limits = KeyValueLimits.original
        try limits.check(keyCount: 2000, totalBytes: 1 << 20, previousKeyCount: 2001, previousTotalBytes: 2 << 20)
        #expect(throws: CloudError.self) {
            try limits.check(keyCount: 2001, totalBytes: 10, previousKeyCount: 2000, previousTotalBytes: 10)
        }
    }
}

@Suite struct NameRuleTests {
    @Test(arguments: ["com.example.notes", "a", "A_b-9"]) func acceptsIDs(_ name: String) {
        #expect(NameRule.accepts(name))
    }

    @Test(arguments: ["", "com.example.*", "a b", "ä", String(repeating: "a", count: 129)])
    func refusesWildcardsAndTheRest(_ name: String) {
        #expect(!NameRule.accepts(name))
    }
}

@Suite struct ErrorCodeTests {
    @Test func everyCodeSurvivesItsNumber() {
        for code in CloudError.Code.all { #expect(CloudError.Code(number: code.number) == code) }
        #expect(CloudError.Code(number: 9999) == nil)
    }
}

@Suite struct TokenCheckTests {
    @Test func sixteenBytesAreACheckAndAllElseIsNone() {
        let some: [UInt8] = (1...16).map { $0 }
        for bytes in BadBytes(2000, from: [some, some + some], seed: 1) + [some, [], [UInt8](repeating: 0, count: 16)] {
            let check = TokenCheck(bytes: bytes)
            let isOne = bytes.count == TokenCheck.byteCount && bytes.contains { $0 != 0 }
            #expect(check.bytes == (isOne ? bytes : []))
            // Wherever in memory they lie.
            #expect(([0] + bytes).withUnsafeBytes { TokenCheck(bytes: .init(rebasing: $0.dropFirst())) } == check)
        }
    }
}

/// What is typed in, or comes with a token.
@Suite struct DamagedTextTests {
    private let key = PublicKey(bytes: (0..<32).map { UInt8($0 * 7) })

    @Test func keysHaveOneSpelling() throws {
        let good = try #require(key).z85
        for bytes in BadBytes(2000, from: [Array(good.utf8)], seed: 1) {
            let text = String(decoding: bytes, as: UTF8.self)
            guard let read = Z85.decode(text) else { continue }
            #expect(Z85.encode(read).utf8.elementsEqual(text.utf8))
        }
    }

    @Test func connectionStringsSayWhatTheySaidOrAreRefused() throws {
        let good = try ["cloud.example", "::1", "127.0.0.1"].map {
            Array(try ConnectionString(host: $0, port: 7400, key: #require(key)).description.utf8)
        }
        var readable = 0
        for bytes in BadBytes(2000, from: good, seed: 2) {
            guard let read = try? ConnectionString(String(decoding: bytes, as: UTF8.self)) else { continue }
            readable += 1
            #expect(try ConnectionString(read.description) == read)
        }
        #expect(readable > 20)
    }
}
