import Foundation
import NephosCore
import NephosKit
import Testing

@Suite struct PlainValueTests {
    @Test func whatIsSetIsRead() async throws {
        try await withStore { store in
            // Whole microseconds; what is finer is rounded to them.
            let date = Date(timeIntervalSince1970: 1_769_860_800.123456)
            try store.set(42, forKey: "int")
            try store.set(Int64.min, forKey: "int64")
            try store.set(0.1, forKey: "double")
            try store.set(true, forKey: "bool")
            try store.set("text with é", forKey: "string")
            try store.set(Data([0, 255]), forKey: "data")
            try store.set(date.addingTimeInterval(0.000_000_2), forKey: "date")
            try store.set([1, "a", true], forKey: "mixed")
            try store.set(["a": 1, "b": [2.5]], forKey: "named")
            try store.set([1, 2, 3], forKey: "ints")
            try store.set(["a": date], forKey: "dates")
            #expect(store.integer(forKey: "int") == 42)
            #expect(store.longLong(forKey: "int64") == .min && store.integer(forKey: "int64") == .min)
            #expect(store.double(forKey: "double") == 0.1)
            #expect(store.bool(forKey: "bool"))
            #expect(store.string(forKey: "string") == "text with é")
            #expect(store.data(forKey: "data") == Data([0, 255]))
            #expect(store.date(forKey: "date") == date)
            #expect(store.array(forKey: "mixed") == [1, "a", true])
            #expect(store.dictionary(forKey: "named") == ["a": 1, "b": [2.5]])
            #expect(try store.value([Int].self, forKey: "ints") == [1, 2, 3])
            #expect(store.array(forKey: "ints") == [1, 2, 3])
            #expect(try store.value([String: Date].self, forKey: "dates") == ["a": date])
            #expect(store["int"] == 42 && store["nothing"] == nil)
            let sent = try PropertyValue(canonicalBytes: try #require(store["dates"]).canonicalBytes)
            #expect(sent == .dictionary(["a": .date(date)]))
        }
    }

    @Test func nilDeletes() async throws {
        try await withStore { store in
            let deletions: [() throws -> Void] = [
                { try store.set(nil, forKey: "k") }, { try store.set(nil as String?, forKey: "k") },
                { try store.set(nil as [Date]?, forKey: "k") }, { try store.set(Int??.some(nil), forKey: "k") },
            ]
            for (index, delete) in deletions.enumerated() {
                try store.set(.some(index), forKey: "k")
                #expect(store.integer(forKey: "k") == index)
                try delete()
                #expect(try store.read("k") == .absent)
            }
        }
    }

    @Test func whatIsOfAnotherTypeIsNilOrZeroAsAppleHasIt() async throws {
        try await withStore { store in
            for value in ["text", [1], ["a": 1], .data(Data([1])), .date(Date())] as [PropertyValue] {
                try store.set(value, forKey: "k")
                #expect(!store.bool(forKey: "k") && store.longLong(forKey: "k") == 0 && store.double(forKey: "k") == 0)
                #expect(store.integer(forKey: "k") == nil)
            }
            #expect(store.integer(forKey: "nothing") == nil && store.longLong(forKey: "nothing") == 0)
            try store.set(1, forKey: "k")
            #expect(
                store.string(forKey: "k") == nil && store.data(forKey: "k") == nil && store.date(forKey: "k") == nil)
            #expect(store.array(forKey: "k") == nil && store.dictionary(forKey: "k") == nil)
            #expect(store.bool(forKey: "k") && store.double(forKey: "k") == 1)
            try store.set(true, forKey: "k")
            #expect(store.longLong(forKey: "k") == 1 && store.double(forKey: "k") == 1)
            #expect(store.integer(forKey: "k") == nil)
            for (real, integer, longLong) in [
                (2.0, 2, 2), (-0.0, 0, 0), (2.5, nil, 2), (1e19, nil, 0), (.nan, nil, 0), (.infinity, nil, 0),
                (-.infinity, nil, 0),
            ] as [(Double, Int?, Int64)] {
                try store.set(real, forKey: "k")
                #expect(store.integer(forKey: "k") == integer && store.longLong(forKey: "k") == longLong)
                #expect(store.double(forKey: "k").bitPattern == real.bitPattern)
            }
        }
    }

    @Test func aDateThatCannotBeKeptIsRefused() async throws {
        try await withStore { store in
            for seconds in [Double.nan, .infinity, -.infinity, 1e13, -1e13, .greatestFiniteMagnitude] {
                let date = Date(timeIntervalSince1970: seconds)
                let writes: [() throws -> Void] = [
                    { try store.set(date, forKey: "k") }, { try store.set([.date(date)], forKey: "k") },
                    { try store.set(["a": [date]], forKey: "k") }, { try store.set(date as Date?, forKey: "k") },
                    { try store.transaction { $0["k"] = .date(date) } },
                ]
                for write in writes {
                    let error = #expect(throws: CloudError.self) { try write() }
                    #expect(error?.code == .invalidArguments && error?.details["key"] == "k")
                }
            }
            #expect(try store.read("k") == .absent)
            // At the end of what can be kept, what comes back stays as it is.
            for seconds in [9_223_372_036_854, -9_223_372_036_854, 1e12 + 0.001] {
                try store.set(Date(timeIntervalSince1970: seconds), forKey: "k")
                let kept = try #require(store.date(forKey: "k"))
                try store.set(kept, forKey: "k")
                #expect(store.date(forKey: "k") == kept)
            }
        }
    }
}
