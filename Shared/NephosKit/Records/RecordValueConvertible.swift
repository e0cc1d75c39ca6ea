public import struct Foundation.Data
public import struct Foundation.Date

/// A type of Swift's that a field can hold.
public protocol RecordValueConvertible {
    /// Nil: the value is of another type.
    init?(recordValue: RecordValue)
    var recordValue: RecordValue { get }
}

// MARK: Types of Swift's

extension String: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .string(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .string(self) }
}

extension Int64: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .integer(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .integer(self) }
}

extension Int: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .integer(let value) = recordValue else { return nil }
        self.init(exactly: value)
    }
    public var recordValue: RecordValue { .integer(Int64(self)) }
}

/// Kept as the integer 0 or 1, as CloudKit does.
extension Bool: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .integer(let value) = recordValue else { return nil }
        self = value != 0
    }
    public var recordValue: RecordValue { .integer(self ? 1 : 0) }
}

extension Double: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        switch recordValue {
        case .real(let value): self = value
        case .integer(let value): self.init(exactly: value)
        default: return nil
        }
    }
    public var recordValue: RecordValue { .real(self) }
}

extension Data: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .data(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .data(self) }
}

extension Date: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .date(let value) = recordValue else { return nil }
        self = value.date
    }
    public var recordValue: RecordValue { .date(RecordDate(self)) }
}

extension RecordDate: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .date(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .date(self) }
}

extension RecordLocation: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .location(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .location(self) }
}

extension RecordReference: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .reference(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .reference(self) }
}

extension RecordAsset: RecordValueConvertible {
    public init?(recordValue: RecordValue) {
        guard case .asset(let value) = recordValue else { return nil }
        self = value
    }
    public var recordValue: RecordValue { .asset(self) }
}

extension Array: RecordValueConvertible where Element: RecordListElement {
    public init?(recordValue: RecordValue) {
        guard let values = Element.list(of: recordValue) else { return nil }
        self = values
    }
    public var recordValue: RecordValue { Element.recordValue(of: self) }
}

/// A type of Swift's of which a field can hold a list.
public protocol RecordListElement {
    /// Nil: the value is no list of these.
    static func list(of value: RecordValue) -> [Self]?
    static func recordValue(of list: [Self]) -> RecordValue
}

extension String: RecordListElement {
    public static func list(of value: RecordValue) -> [String]? {
        if case .strings(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [String]) -> RecordValue { .strings(list) }
}

extension Int64: RecordListElement {
    public static func list(of value: RecordValue) -> [Int64]? {
        if case .integers(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [Int64]) -> RecordValue { .integers(list) }
}

extension Double: RecordListElement {
    public static func list(of value: RecordValue) -> [Double]? {
        if case .reals(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [Double]) -> RecordValue { .reals(list) }
}

extension Data: RecordListElement {
    public static func list(of value: RecordValue) -> [Data]? {
        if case .datas(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [Data]) -> RecordValue { .datas(list) }
}

extension Date: RecordListElement {
    public static func list(of value: RecordValue) -> [Date]? {
        if case .dates(let values) = value { values.map(\.date) } else { nil }
    }
    public static func recordValue(of list: [Date]) -> RecordValue { .dates(list.map { RecordDate($0) }) }
}

extension RecordLocation: RecordListElement {
    public static func list(of value: RecordValue) -> [RecordLocation]? {
        if case .locations(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [RecordLocation]) -> RecordValue { .locations(list) }
}

extension RecordReference: RecordListElement {
    public static func list(of value: RecordValue) -> [RecordReference]? {
        if case .references(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [RecordReference]) -> RecordValue { .references(list) }
}

extension RecordAsset: RecordListElement {
    public static func list(of value: RecordValue) -> [RecordAsset]? {
        if case .assets(let values) = value { values } else { nil }
    }
    public static func recordValue(of list: [RecordAsset]) -> RecordValue { .assets(list) }
}
