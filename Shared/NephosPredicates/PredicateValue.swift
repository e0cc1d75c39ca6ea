internal import NephosCore

/// A value that a predicate compares: a constant of its text, or what a field holds. A field without a value has none.
public enum PredicateValue: Sendable {
    /// Counts as 0 or 1 among numbers, as in CloudKit.
    case boolean(Bool)
    case integer(Int64)
    case real(Double)
    case string(String)
    case date(PredicateDate)
    case data([UInt8])
    /// Only a field's, never a constant.
    case location(PredicateLocation)
    /// Only a field's, never a constant. A list within it is no element of it.
    case list([PredicateValue])
}

/// A place on the earth, in degrees.
public struct PredicateLocation: Hashable, Sendable {
    /// -90 to 90, north is positive.
    public var latitude: Double
    /// -180 to 180, east is positive.
    public var longitude: Double

    public init(latitude: Double, longitude: Double) {
        self.latitude = latitude
        self.longitude = longitude
    }
}

/// Sameness of content: texts by their bytes, reals by their bits. What a *predicate* takes for equal is another
/// question; see ``CompiledPredicate``.
extension PredicateValue: Hashable {
    public static func == (left: PredicateValue, right: PredicateValue) -> Bool {
        switch (left, right) {
        case (.boolean(let left), .boolean(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.real(let left), .real(let right)): left.bitPattern == right.bitPattern
        case (.string(let left), .string(let right)): left.hasSameBytes(as: right)
        case (.date(let left), .date(let right)): left == right
        case (.data(let left), .data(let right)): left == right
        case (.location(let left), .location(let right)): left == right
        case (.list(let left), .list(let right)): left == right
        default: false
        }
    }

    public func hash(into hasher: inout Hasher) {
        switch self {
        case .boolean(let value): hasher.combine(value)
        case .integer(let value): hasher.combine(value)
        case .real(let value): hasher.combine(value.bitPattern)
        case .string(let value): PredicateText(value).hash(into: &hasher)
        case .date(let value): hasher.combine(value)
        case .data(let value): hasher.combine(value)
        case .location(let value): hasher.combine(value)
        case .list(let values): hasher.combine(values)
        }
    }
}

extension PredicateValue {
    /// What may be compared with one another.
    enum Kind { case number, string, date, data, location, list }

    var kind: Kind {
        switch self {
        case .boolean, .integer, .real: .number
        case .string: .string
        case .date: .date
        case .data: .data
        case .location: .location
        case .list: .list
        }
    }
}
