package import Foundation
package import NephosCore

/// Reads a binary property list (`bplist00`): objects, a table of their offsets, and a trailer that tells where it is.
///
/// Foundation's reader changes what it has no type for, and follows shared parts for as long as they go.
package struct BinaryPropertyList {
    private let bytes: [UInt8]
    private let objectCount: Int
    private let offsetBytes: Int
    private let referenceBytes: Int
    private let table: Int
    private var place = ValuePlace()

    package static func value(in data: Data) throws(CloudError) -> PropertyValue {
        let bytes = [UInt8](data)
        var list = try BinaryPropertyList(bytes)
        guard let top = unsigned(bytes, at: bytes.count - 16, 8) else { throw list.damaged }
        return try list.object(top)
    }

    private static let trailerBytes = 32
    private static let headerBytes = 8

    private init(_ bytes: [UInt8]) throws(CloudError) {
        self.bytes = bytes
        let trailer = bytes.count - Self.trailerBytes
        guard trailer >= Self.headerBytes, let count = Self.unsigned(bytes, at: trailer + 8, 8),
            let table = Self.unsigned(bytes, at: trailer + 24, 8), table <= trailer,
            1...8 ~= bytes[trailer + 6], 1...8 ~= bytes[trailer + 7],
            count <= (trailer - table) / Int(bytes[trailer + 6])
        else { throw ValuePlace().failure("It is no property list, or a damaged one.") }
        objectCount = count
        self.table = table
        offsetBytes = Int(bytes[trailer + 6])
        referenceBytes = Int(bytes[trailer + 7])
    }

    private var damaged: CloudError { place.failure("It is no property list, or a damaged one.") }

    /// A number of so many bytes; nil: it is not all there, or too large to be a place in a file.
    private static func unsigned(_ bytes: [UInt8], at start: Int, _ count: Int) -> Int? {
        guard start >= 0, count >= 0, start <= bytes.count, count <= bytes.count - start else { return nil }
        return Int(exactly: bytes[start..<start + count].reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
    }

    private func unsigned(at start: Int, _ count: Int) throws(CloudError) -> Int {
        guard let value = Self.unsigned(bytes, at: start, count) else { throw damaged }
        return value
    }

    private func slice(at start: Int, _ count: Int) throws(CloudError) -> ArraySlice<UInt8> {
        guard start >= 0, count >= 0, start <= table, count <= table - start else { throw damaged }
        return bytes[start..<start + count]
    }

    private func offset(of number: Int) throws(CloudError) -> Int {
        guard number >= 0, number < objectCount else { throw damaged }
        let offset = try unsigned(at: table + number * offsetBytes, offsetBytes)
        guard offset >= Self.headerBytes, offset < table else { throw damaged }
        return offset
    }

    private mutating func object(_ number: Int) throws(CloudError) -> PropertyValue {
        let start = try offset(of: number)
        let kind = bytes[start] >> 4
        let detail = Int(bytes[start] & 0xf)
        try place.count()
        switch (kind, detail) {
        case (0x0, 0x8): return .boolean(false)
        case (0x0, 0x9): return .boolean(true)
        case (0x0, _): throw place.failure("A store holds no null.")
        case (0x1, 0...4): return .integer(try integer(at: start + 1, 1 << detail))
        case (0x2, 2): return .real(Double(Float(bitPattern: UInt32(try unsigned(at: start + 1, 4)))))
        case (0x2, 3): return .real(try double(at: start + 1))
        case (0x3, 3): return .date(try date(at: start + 1))
        case (0x4, _):
            let (first, count) = try extent(start, detail)
            try place.count(bytes: count)
            return .data(Data(try slice(at: first, count)))
        case (0x5, _), (0x6, _), (0x7, _): return .string(try string(start))
        case (0x8, _): throw place.failure("A store holds no UID.")
        case (0xa, _): return .array(try array(start, detail))
        case (0xb, _), (0xc, _): throw place.failure("A store holds no set.")
        case (0xd, _): return .dictionary(try dictionary(start, detail))
        default: throw damaged
        }
    }

    /// Where an object's content begins, and how many there are of what it is made of.
    private func extent(_ start: Int, _ detail: Int) throws(CloudError) -> (first: Int, count: Int) {
        guard detail == 0xf else { return (start + 1, detail) }
        // A number follows.
        guard let marker = try slice(at: start + 1, 1).first, marker >> 4 == 1, marker & 0xf <= 3 else { throw damaged }
        let width = 1 << Int(marker & 0xf)
        return (start + 2 + width, try unsigned(at: start + 2, width))
    }

    /// One, two and four bytes have no sign; eight have one. Sixteen are how larger ones without a sign are written.
    private func integer(at start: Int, _ width: Int) throws(CloudError) -> Int64 {
        let digits = try slice(at: start, width)
        let low = digits.suffix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        let value = Int64(bitPattern: low)
        if width == 16 {
            let sign: UInt8 = value < 0 ? 0xff : 0
            guard digits.prefix(8).allSatisfy({ $0 == sign }) else {
                throw place.failure("An integer has no place in 64 bits.")
            }
        }
        return value
    }

    private func double(at start: Int) throws(CloudError) -> Double {
        Double(bitPattern: try slice(at: start, 8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
    }

    private func date(at start: Int) throws(CloudError) -> Date {
        let date = Date(timeIntervalSinceReferenceDate: try double(at: start))
        let microseconds = (date.timeIntervalSince1970 * 1_000_000).rounded()
        guard microseconds.isFinite, Int64(exactly: microseconds) != nil else {
            throw place.failure("A date is too far away.")
        }
        return date
    }

    private mutating func string(_ start: Int) throws(CloudError) -> String {
        let (first, count) = try extent(start, Int(bytes[start] & 0xf))
        var text: String?
        if bytes[start] >> 4 == 0x6 {
            guard count <= bytes.count else { throw damaged }
            let units = try slice(at: first, count * 2)
            try place.count(bytes: count * 2)
            let pairs = (0..<count).map { index -> UInt16 in
                let place = units.startIndex + index * 2
                return UInt16(units[place]) << 8 | UInt16(units[place + 1])
            }
            text = String(validating: pairs, as: UTF16.self)
        } else {
            let units = try slice(at: first, count)
            try place.count(bytes: count)
            text = String(validating: units, as: UTF8.self)
        }
        guard let text else { throw place.failure("A string is not text in Unicode.") }
        return text
    }

    private mutating func array(_ start: Int, _ detail: Int) throws(CloudError) -> [PropertyValue] {
        let (first, count) = try extent(start, detail)
        guard count <= bytes.count else { throw damaged }
        _ = try slice(at: first, count * referenceBytes)
        var values: [PropertyValue] = []
        for index in 0..<count {
            try place.enter(index: index)
            values.append(try object(unsigned(at: first + index * referenceBytes, referenceBytes)))
            place.leave()
        }
        return values
    }

    private mutating func dictionary(_ start: Int, _ detail: Int) throws(CloudError) -> [ItemName: PropertyValue] {
        let (first, count) = try extent(start, detail)
        guard count <= bytes.count else { throw damaged }
        _ = try slice(at: first, count * 2 * referenceBytes)
        var entries: [ItemName: PropertyValue] = [:]
        for index in 0..<count {
            let name = try offset(of: unsigned(at: first + index * referenceBytes, referenceBytes))
            guard 0x5...0x7 ~= bytes[name] >> 4 else { throw place.failure("A dictionary's key is no string.") }
            let key = try string(name)
            try place.enter(key: key)
            let value = try object(unsigned(at: first + (count + index) * referenceBytes, referenceBytes))
            guard entries.updateValue(value, forKey: ItemName(key)) == nil else {
                throw place.failure("The key is there twice.")
            }
            place.leave()
        }
        return entries
    }
}
