import Foundation
import NephosCore
import NephosPropertyLists
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Files come from anywhere: each is read, or refused with a reason, and ends nothing.
@Suite struct DamagedPropertyTests {
    private static let values: [PropertyValue] = {
        var random = SplitMix64(seed: 1)
        return (0..<60).map { _ in
            PropertyValue.dictionary(["a": .random(using: &random, nesting: 3), "b": .random(using: &random)])
        }
    }()

    /// The value as Foundation knows it; nil: it takes two of its keys for one.
    private static func object(_ value: PropertyValue) -> Any? {
        switch value {
        case .boolean(let value): return value
        case .integer(let value): return value
        case .real(let value): return value
        case .string(let value): return value
        case .date(let value): return value
        case .data(let value): return value
        case .array(let values):
            let objects = values.compactMap(object)
            return objects.count == values.count ? objects : nil
        case .dictionary(let values):
            let pairs = values.compactMap { key, value in object(value).map { (key.rawValue, $0) } }
            let objects = Dictionary(pairs) { $1 }
            return objects.count == values.count ? objects : nil
        }
    }

    /// What is read can be stored, unless it is too deep; what is refused is refused with a reason.
    private func check(_ read: () throws(CloudError) -> PropertyValue) -> Bool {
        do throws(CloudError) {
            let value = try read()
            guard value.depth <= PropertyValue.depthMax else { return true }
            let bytes = value.canonicalBytes
            #expect((try? PropertyValue(canonicalBytes: bytes))?.canonicalBytes == bytes)
            return true
        } catch {
            #expect(error.code == .invalidArguments && error.details["reason"] != nil)
            return false
        }
    }

    @Test func binaryLists() throws {
        var good: [[UInt8]] = []
        for value in Self.values {
            guard let object = Self.object(value) else { continue }
            let data = try PropertyListSerialization.data(fromPropertyList: object, format: .binary, options: 0)
            #expect(try PropertyValue(propertyList: data) == value)
            good.append([UInt8](data))
        }
        checkLists(damagedOf: good)
    }

    @Test func listsInXML() throws {
        // What others write and this one does not.
        let theirs = """
            <?xml version="1.0"?><!-- <a> --><plist><array><string>&#x41;&#66;&lt;<![CDATA[C]]><!-- D -->E</string>
            <integer> 0x1F </integer><real>+1e3</real><real>nan</real><data> AAEC AwQ= </data><dict/><true></true>
            </array></plist>
            """
        var good = Array(repeating: Array(theirs.utf8), count: 20)
        for value in Self.values {
            let data = XMLPropertyList.data(["v": value])
            #expect(try PropertyValue(propertyList: data) == ["v": value])
            good.append([UInt8](data))
        }
        checkLists(damagedOf: good)
    }

    private func checkLists(damagedOf good: [[UInt8]]) {
        var readable = 0
        for bytes in BadBytes(2000, from: good, seed: 2) {
            if check({ () throws(CloudError) in try PropertyValue(propertyList: Data(bytes)) }) { readable += 1 }
        }
        #expect(good.count > 20 && readable > 100)
    }

    @Test func json() throws {
        let good = Self.values.map { [UInt8](DefaultsFile.encode(["v": $0], json: true)) }
        for (value, bytes) in zip(Self.values, good) where DefaultsFile.holds("v", value, json: true) {
            #expect(try DefaultsFile.decode(Data(bytes), json: true) == ["v": value])
        }
        var readable = 0
        for bytes in BadBytes(1500, from: good, seed: 3) {
            let text = String(decoding: bytes, as: UTF8.self)
            for form in [PropertyJSONForm.plain, .typed, .exact] {
                guard check({ () throws(CloudError) in try PropertyValue(json: text, form: form) }) else { continue }
                readable += 1
                let theirs = try? JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)
                #expect(theirs != nil, "\(text.prefix(200))")
            }
        }
        #expect(readable > 100)
    }
}
