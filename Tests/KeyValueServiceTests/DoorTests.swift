import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// What is decided before key-value's own handlers, as its callers meet it.
struct DoorTests {
    @Test func nothingIsSaidOrDoneWithoutAGoodToken() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        try house.push(house.write("k", 1), by: a)
        func codes(_ token: String) throws -> Set<CloudError.Code?> {
            let answers = try house.requests(on: "notes").map { try house.begin($0, by: b, token: token) }
            return Set(try house.finish(answers).map { answer in failure { _ = try answer.get() }?.code })
        }
        let good = try house.token(of: b)
        let short = try house.token(of: b, lifetime: .seconds(2))
        // The claims of one, and the signature of another.
        let forged = good.split(separator: ".").prefix(2) + short.split(separator: ".").suffix(1)
        for token in ["", "none", forged.joined(separator: ".")] { #expect(try codes(token) == [.notAuthenticated]) }
        #expect(try codes(house.token(of: a)) == [.tokenNotBound])
        #expect(try codes(house.token(of: house.caller("dev_b", store: "other"))) == [.missingEntitlement])
        #expect(try house.values(a) == ["k": 1] && house.events.count == 1)
        #expect(try codes(short) == [nil])
        house.pass(.seconds(2))
        #expect(try codes(short) == [.tokenExpired])
        #expect(try codes(good) == [nil])
    }

    @Test func whatIsNoPushIsRefusedAndHarmsNobody() throws {
        let house = try KeyValueHouse()
        let a = house.caller("dev_a")
        try house.push(house.write("k", 1), by: a)
        // A number, where a push has the store's name.
        var token = WireChangeToken()
        token.epoch = 7
        let error = failure {
            try house.client(of: a).call(
                "PushKeys", token, at: .requests(.keyValue), accessToken: house.token(of: a),
                as: WirePushKeysReply.self)
        }
        #expect(error?.code == .malformedRequest)
        #expect(failure { _ = try house.call(token, by: a, WirePushKeysReply.self) }?.code == .unknownMethod)
        // Names are bytes: the sign for kelvin is no K.
        let lookalike = failure {
            try house.client(of: a).call(
                "Push\u{212A}eys", house.push([house.write("l", 1)]), at: .requests(.keyValue),
                accessToken: house.token(of: a), as: WirePushKeysReply.self)
        }
        #expect(lookalike?.code == .unknownMethod)
        #expect(try house.values(a) == ["k": 1])
    }

    @Test func anOperationIDIsOneRequestOfOneDevice() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        let id = house.newOperation()
        let write = house.write("k", "one")
        let first = try house.push(write, by: a, id: id)
        // As many writes of the same key: nothing but the value tells them apart.
        let other = house.write("k", "two", after: .seconds(1))
        func pushOther() -> CloudError.Code? { failure { try house.push(other, by: a, id: id) }?.code }
        #expect(pushOther() == .operationReused)
        try house.push(house.write("l", 2), by: b, id: id)
        #expect(try house.values(a) == ["k": "one", "l": 2])
        // What the service remembers is not in its memory alone.
        try house.restart()
        #expect(pushOther() == .operationReused)
        #expect(try house.push(write, by: a, id: id) == first)
        #expect(try house.values(a) == ["k": "one", "l": 2])
    }

    @Test func whoAsksForTooMuchWaitsAndNobodyElseDoes() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        let large = PropertyValue.string(String(repeating: "x", count: 1_000_000))
        // All that a device has at once, and a debt that takes longer than its client waits by itself.
        for index in 0..<5 { try house.push(house.write("k", large, after: .milliseconds(index)), by: a) }
        let error = failure { try house.push(house.write("k", 1, after: .seconds(1)), by: a) }
        #expect(error?.code == .requestRateLimited && error?.details["budget"] == "device")
        try house.push(house.write("l", 2), by: b)
        house.pass(try #require(error?.retryAfter))
        try house.push(house.write("k", 1, after: .seconds(1)), by: a)
        #expect(try house.values(b) == ["k": 1, "l": 2])
    }
}
