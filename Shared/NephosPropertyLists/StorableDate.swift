package import Foundation
package import NephosCore

extension Date {
    /// Whether its microseconds since 1970 have a place in 64 bits, but for the last that a `Double` tells apart: else
    /// another date would come back.
    package var isStorable: Bool { abs(timeIntervalSince1970 * 1_000_000) <= 0x1p63 }
}

extension PropertyValue {
    /// Whether every date in it can be kept. Only for what does not nest too deeply.
    package var hasStorableDates: Bool {
        switch self {
        case .date(let date): date.isStorable
        case .array(let values): values.allSatisfy(\.hasStorableDates)
        case .dictionary(let values): values.values.allSatisfy(\.hasStorableDates)
        case .boolean, .integer, .real, .string, .data: true
        }
    }
}
