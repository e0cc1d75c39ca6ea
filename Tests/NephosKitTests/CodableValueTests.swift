import Foundation
import NephosCore
import NephosKit
import Testing

@Suite struct CodableValueTests {
    /// The value as it comes back from the store, by its bytes.
    private func roundTrip<Value: Codable>(_ value: Value) throws -> Value {
        let stored = try PropertyValue(encoding: value)
        return try PropertyValue(canonicalBytes: stored.canonicalBytes).decoded()
    }

    private func expectSame<Value: Codable & Equatable>(
        _ value: Value, _ location: SourceLocation = #_sourceLocation
    ) throws {
        #expect(try roundTrip(value) == value, sourceLocation: location)
        // Inside something, and beside something.
        #expect(try roundTrip([value, value]) == [value, value], sourceLocation: location)
        #expect(try roundTrip(["k": value]) == ["k": value], sourceLocation: location)
        #expect(try roundTrip(["k": [value]]) == ["k": [value]], sourceLocation: location)
    }

    @Test func plainValuesComeBackEqual() throws {
        for value in [Int64.min, -1, 0, .max] { try expectSame(value) }
        for value in [0.1, -0.0, 1e300, .leastNonzeroMagnitude, .infinity, 2] { try expectSame(value) }
        #expect(try roundTrip(-0.0).bitPattern == (-0.0).bitPattern)
        #expect(try roundTrip(Double.nan).isNaN)
        for value in [Float(0.1), .greatestFiniteMagnitude, .infinity] { try expectSame(value) }
        try expectSame(UInt8.max)
        try expectSame(Int8.min)
        try expectSame(UInt32.max)
        try expectSame(UInt64(Int64.max))
        try expectSame(Int128(Int64.min))
        try expectSame(true)
        try expectSame("")
        try expectSame("$null")
        try expectSame(Data())
        try expectSame(Data([1, 2, 3]))
        try expectSame(Date(timeIntervalSince1970: 1_769_860_800.123456))
        try expectSame(UUID())
        try expectSame(try #require(URL(string: "https://example.org/a?b=c")))
        try expectSame(Decimal(string: "123456789.123456789"))
        try expectSame([String]())
        try expectSame([String: Int]())
        try expectSame([1: "one", -2: "two"])
        try expectSame([Date(timeIntervalSince1970: 1): "one"])
        try expectSame(["": 1, "a.b": 2, "é": 3])
    }

    struct Settings: Codable, Equatable {
        enum Theme: String, Codable { case light, dark }
        enum Shape: Codable, Equatable {
            case point
            case circle(radius: Double)
            case line(from: [Int], Int?)
            indirect case group([Shape])
        }
        struct Window: Codable, Equatable {
            var size: [Double]
            var title: String?
            var opened: Date
        }

        var theme: Theme
        var shapes: [Shape]
        var windows: [String: Window]
        var last: Window?
        var icon: Data
        var count: Int64
        var holes: [Int?]
        var level: Shape?
        var nested: [[String: [Bool]]]
    }

    static let settings = Settings(
        theme: .dark,
        shapes: [.point, .circle(radius: 2), .line(from: [1, 2], nil), .group([.point, .group([])])],
        windows: ["main": .init(size: [1.5, 2], title: nil, opened: Date(timeIntervalSince1970: 0.000001))], last: nil,
        icon: Data([9]), count: .max, holes: [1, nil, 3, nil], level: .line(from: [], 7), nested: [["a": [true]], [:]])

    @Test func aTypeOfOnesOwnComesBackEqual() throws {
        try expectSame(Self.settings)
        let stored = try PropertyValue(encoding: Self.settings)
        guard case .dictionary(let entries) = stored else { return #expect(Bool(false), "It is a dictionary.") }
        // As another language reads it.
        #expect(entries["theme"] == "dark" && entries["last"] == nil)
        #expect(entries["holes"] == [1, ["$null": true], 3, ["$null": true]])
        #expect(entries["icon"] == .data(Data([9])) && entries["count"] == .integer(.max))
    }

    @Test func whatLooksLikeANilIsNone() throws {
        for key in ["$null", "$$null", "$$$null", "null", "$nul"] {
            try expectSame([key: true])
            try expectSame([key: 1])
            try expectSame([key: true, "other": false])
            try expectSame([["a": true], [key: true], nil])
        }
    }

    class Animal: Codable {
        var name: String
        init(name: String) { self.name = name }
    }

    final class Dog: Animal {
        var tricks: [String]
        private enum Keys: CodingKey { case tricks, base }

        init(name: String, tricks: [String]) {
            self.tricks = tricks
            super.init(name: name)
        }

        required init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: Keys.self)
            tricks = try container.decode([String].self, forKey: .tricks)
            try super.init(from: container.superDecoder())
        }

        override func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: Keys.self)
            // Filled in later than it was opened.
            let base = container.superEncoder()
            try container.encode(tricks, forKey: .tricks)
            try super.encode(to: base)
        }
    }

    @Test func superclassesComeBack() throws {
        let dog = try roundTrip(["rex": [Dog(name: "Rex", tricks: ["sit"])]])["rex"]?.first
        #expect(dog?.name == "Rex" && dog?.tricks == ["sit"])
    }

    /// Uses what the compiler's own code does not.
    struct ByHand: Codable, Equatable {
        var a = 1
        var b: [Int] = [1, 2]
        var c: [String: String] = ["x": "y"]
        var d: Int?

        enum Keys: CodingKey { case a, list, named, d, above }
        enum Inner: CodingKey { case x }

        init() {}

        init(from decoder: any Decoder) throws {
            var all = try decoder.unkeyedContainer()
            let keyed = try all.nestedContainer(keyedBy: Keys.self)
            a = try keyed.decode(Int.self, forKey: .a)
            d = try keyed.decode(Int?.self, forKey: .d)
            var list = try keyed.nestedUnkeyedContainer(forKey: .list)
            b = []
            while !list.isAtEnd { b.append(try list.decode(Int.self)) }
            let named = try keyed.nestedContainer(keyedBy: Inner.self, forKey: .named)
            c = ["x": try named.decode(String.self, forKey: .x)]
            #expect(try keyed.superDecoder(forKey: .above).singleValueContainer().decode(Int.self) == a)
            var inner = try all.nestedUnkeyedContainer()
            #expect(try inner.decodeNil() && inner.isAtEnd)
            #expect(try all.superDecoder().singleValueContainer().decode(String.self) == "last")
            #expect(all.isAtEnd)
            #expect(throws: DecodingError.self) { try all.decode(Int.self) }
        }

        func encode(to encoder: any Encoder) throws {
            var all = encoder.unkeyedContainer()
            var keyed = all.nestedContainer(keyedBy: Keys.self)
            try keyed.encode(a, forKey: .a)
            try keyed.encode(d, forKey: .d)
            var list = keyed.nestedUnkeyedContainer(forKey: .list)
            for number in b { try list.encode(number) }
            var named = keyed.nestedContainer(keyedBy: Inner.self, forKey: .named)
            try named.encode(c["x"] ?? "", forKey: .x)
            var above = keyed.superEncoder(forKey: .above).singleValueContainer()
            try above.encode(a)
            var inner = all.nestedUnkeyedContainer()
            try inner.encodeNil()
            var last = all.superEncoder().singleValueContainer()
            try last.encode("last")
        }
    }

    @Test func containersInContainersComeBack() throws {
        var value = ByHand()
        try expectSame(value)
        value.d = 4
        value.b = []
        try expectSame(value)
    }

    @Test func aTypeWithoutMembersComesBack() throws {
        struct Empty: Codable, Equatable {}
        struct Around: Codable, Equatable { var empty = Empty() }
        struct Silent: Codable, Equatable {
            init() {}
            init(from decoder: any Decoder) throws {}
            func encode(to encoder: any Encoder) throws {}
        }
        try expectSame(Empty())
        try expectSame(Around())
        // And is told from one that is not there.
        try expectSame([Silent(), nil])
    }

    // MARK: What does not fit

    private func refusal(_ body: () throws -> Void) -> CloudError? {
        let error = #expect(throws: CloudError.self) { try body() }
        #expect(error?.code == .invalidArguments && error?.details["reason"] != nil)
        return error
    }

    @Test func whatDoesNotFitSaysWhere() throws {
        #expect(refusal { _ = try PropertyValue(encoding: UInt64.max) }?.details["path"] == nil)
        #expect(refusal { _ = try PropertyValue(encoding: ["a": [0, UInt64.max]]) }?.details["path"] == "a[1]")
        #expect(refusal { _ = try PropertyValue(encoding: [Int128.max]) }?.details["path"] == "[0]")
        struct Timed: Codable { var times: [String: [Date]] }
        let far = Timed(times: ["b": [Date(), Date(timeIntervalSince1970: .nan)]])
        #expect(refusal { _ = try PropertyValue(encoding: far) }?.details["path"] == "times.b[1]")
        #expect(refusal { _ = try PropertyValue(encoding: nil as Int?) } != nil)
        struct Stubborn: Codable {
            struct Reason: Error {}
            init() {}
            init(from decoder: any Decoder) throws { throw Reason() }
            func encode(to encoder: any Encoder) throws { throw Reason() }
        }
        #expect(refusal { _ = try PropertyValue(encoding: Stubborn()) }?.details["type"] == "Reason")
        #expect(refusal { _ = try PropertyValue.integer(1).decoded(as: Stubborn.self) }?.details["type"] == "Reason")
        struct Two: Encodable {
            func encode(to encoder: any Encoder) throws {
                var one = encoder.unkeyedContainer()
                try one.encode(1)
                var two = encoder.container(keyedBy: ByHand.Keys.self)
                try two.encode(2, forKey: .a)
            }
        }
        #expect(refusal { _ = try PropertyValue(encoding: Two()) } != nil)
    }

    final class Linked: Codable {
        var next: Linked?
        init(next: Linked?) { self.next = next }
    }

    /// Ends in nothing that can be stored: it holds itself, with and without containers between.
    struct Endless: Encodable {
        var hasContainers: Bool

        func encode(to encoder: any Encoder) throws {
            if hasContainers {
                var container = encoder.unkeyedContainer()
                try container.encode(self)
            } else {
                var container = encoder.singleValueContainer()
                try container.encode(self)
            }
        }
    }

    /// Opens containers without end, and never throws.
    struct Burrow: Encodable {
        func encode(to encoder: any Encoder) {
            var container = encoder.unkeyedContainer()
            for _ in 0..<100_000 { container = container.nestedUnkeyedContainer() }
        }
    }

    @Test func whatIsTooDeepIsRefusedAndNothingTraps() throws {
        func linked(_ count: Int) -> Linked { (1..<count).reduce(Linked(next: nil)) { next, _ in Linked(next: next) } }
        #expect(try PropertyValue(encoding: linked(PropertyValue.depthMax)).depth == PropertyValue.depthMax)
        let error = refusal { _ = try PropertyValue(encoding: linked(PropertyValue.depthMax + 1)) }
        #expect(error?.details["depth_max"] == "24" && error?.details["path"]?.hasPrefix("next.next.") == true)
        #expect(refusal { _ = try PropertyValue(encoding: Endless(hasContainers: true)) } != nil)
        #expect(refusal { _ = try PropertyValue(encoding: Endless(hasContainers: false)) } != nil)
        #expect(refusal { _ = try PropertyValue(encoding: Burrow()) } != nil)
        let ring = Linked(next: nil)
        ring.next = ring
        defer { ring.next = nil }
        #expect(refusal { _ = try PropertyValue(encoding: ring) } != nil)
    }

    @Test func whatIsReadAsAnotherTypeSaysWhere() async throws {
        try await withStore { store in
            try store.set(Self.settings, forKey: "settings")
            #expect(try store.value(Settings.self, forKey: "settings") == Self.settings)
            #expect(try store.value(Settings.self, forKey: "nothing") == nil)
            struct Wrong: Codable { var windows: [String: [Int]] }
            let wrong = refusal { _ = try store.value(Wrong.self, forKey: "settings") }
            #expect(wrong?.details["key"] == "settings" && wrong?.details["path"] == "windows.main")
            struct More: Codable { var more: Int }
            #expect(refusal { _ = try store.value(More.self, forKey: "settings") }?.details["path"] == "more")
            try store.set(["light", "purple"], forKey: "themes")
            let purple = refusal { _ = try store.value([Settings.Theme].self, forKey: "themes") }
            #expect(purple?.details["path"] == "[1]" && purple?.description.contains("purple") == false)
        }
    }

    @Test func numbersBecomeOtherNumbersOnlyWhereThatChangesNothing() throws {
        #expect(try PropertyValue.real(2).decoded(as: Int.self) == 2)
        #expect(try PropertyValue.integer(2).decoded(as: Double.self) == 2)
        #expect(try PropertyValue.integer(255).decoded(as: UInt8.self) == 255)
        #expect(try PropertyValue.real(0.1).decoded(as: Float.self) == 0.1)
        for number in [2.5, .nan, .infinity, 1e19] {
            #expect(refusal { _ = try PropertyValue.real(number).decoded(as: Int.self) } != nil)
        }
        #expect(refusal { _ = try PropertyValue.integer(256).decoded(as: UInt8.self) } != nil)
        #expect(refusal { _ = try PropertyValue.integer(-1).decoded(as: UInt64.self) } != nil)
        #expect(refusal { _ = try PropertyValue.integer(.max).decoded(as: Double.self) } != nil)
        #expect(refusal { _ = try PropertyValue.real(1e300).decoded(as: Float.self) } != nil)
        #expect(refusal { _ = try PropertyValue.boolean(true).decoded(as: Int.self) } != nil)
        #expect(refusal { _ = try PropertyValue.integer(1).decoded(as: Bool.self) } != nil)
        #expect(refusal { _ = try PropertyValue.integer(1).decoded(as: String.self) } != nil)
        #expect(refusal { _ = try PropertyValue.string("x").decoded(as: Date.self) } != nil)
        #expect(refusal { _ = try PropertyValue.string("x").decoded(as: Data.self) } != nil)
        #expect(refusal { _ = try PropertyValue.array([]).decoded(as: (Int?).self) } != nil)
    }

    @Test func twoDevicesExchangeATypeOfTheirOwn() async throws {
        try await withSessionCloud { house in
            let (one, two) = (try await house.openSignedIn(), try await house.openSignedIn())
            let (mine, theirs) = (try one.keyValueStore(), try two.keyValueStore())
            try await house.wait {
                try await mine.ready()
                try await theirs.ready()
            }
            try mine.set(Self.settings, forKey: "settings")
            try await house.wait {
                try await mine.waitUntilSent()
                try await theirs.waitUntilCurrent()
            }
            var received = try #require(try theirs.value(Settings.self, forKey: "settings"))
            #expect(received == Self.settings)
            received.theme = .light
            let answer = received
            try theirs.set(answer, forKey: "settings")
            try await house.wait {
                try await theirs.waitUntilSent()
                try await mine.waitUntilCurrent()
            }
            #expect(try mine.value(forKey: "settings") == answer)
            // A copy that differed by a bit would be found out.
            let proof = try await house.wait { try await mine.verify() }
            #expect(proof.agrees)
        }
    }
}
