package import NephosCore

private import struct Foundation.Data
private import struct Foundation.Date

extension PropertyValue {
    /// A value of any type, and of lengths at which encodings change.
    ///
    /// - Parameter nesting: How deep it may nest.
    package static func random(using random: inout SplitMix64, nesting: Int = 2) -> PropertyValue {
        let length = [0, 1, 5, 14, 15, 127, 128, 1000].randomElement(using: &random) ?? 0
        switch Int.random(in: 0..<(nesting > 0 ? 8 : 6), using: &random) {
        case 0: return .boolean(.random(using: &random))
        case 1: return .integer(Int64(bitPattern: random.next()) >> Int64.random(in: 0..<64, using: &random))
        case 2: return .real([0.5, -0.0, 0.1, -2.5e300, 1e-300].randomElement(using: &random) ?? 0)
        case 3:
            return .string(
                String(repeating: ["x", "ü", "\u{1f600}"].randomElement(using: &random) ?? "", count: length))
        // To the second, as property lists in XML have it.
        case 4:
            return .date(
                Date(timeIntervalSince1970: Double(Int64.random(in: -9_000_000_000...9_000_000_000, using: &random))))
        case 5: return .data(Data((0..<length).map { UInt8(truncatingIfNeeded: $0) }))
        case 6:
            return .array(
                (0..<Int.random(in: 0...3, using: &random)).map { _ in .random(using: &random, nesting: nesting - 1) })
        default:
            let keys: [ItemName] = ["a", "ü", "u\u{308}", "a longer key"]
            return .dictionary(
                Dictionary(
                    uniqueKeysWithValues: keys.prefix(Int.random(in: 0...4, using: &random)).map {
                        ($0, .random(using: &random, nesting: nesting - 1))
                    }))
        }
    }
}
