internal import NephosCore
package import NephosPredicates
package import NephosWire
private import SwiftProtobuf

/// What a query asks of a record. The rest of it is not decoded, which is most of what a query costs.
package struct RecordParts: Sendable {
    /// Nil: all of them.
    private let fields: [[UInt8]]?
    /// Besides the type: who saved it and when, its change tag and its parent.
    private let hasRest: Bool

    /// Everything.
    package static let all = RecordParts(fields: nil, hasRest: true)
    /// Nothing but its type.
    package static let type = RecordParts(fields: [], hasRest: false)

    private init(fields: [[UInt8]]?, hasRest: Bool) { (self.fields, self.hasRest) = (fields, hasRest) }

    /// - Parameter sort: What else of it is asked for.
    package init(of predicate: CompiledPredicate?, _ sort: [FieldName]) {
        guard predicate?.readsTexts != true else {
            self = .all
            return
        }
        let named = ((predicate?.fields ?? []) + sort).map(\.rawValue)
        hasRest = named.contains(where: QueriedRecord.isSystemField)
        fields = Set(named.filter { !QueriedRecord.isSystemField($0) }).map { Array($0.utf8) }
    }

    // The numbers of `Record` and `RecordField`, as tags: of a part that a length stands before.
    private static let lengthWire: UInt64 = 2
    private static let typeTag = 1 << 3 | lengthWire
    private static let fieldTag = 2 << 3 | lengthWire
    private static let fieldName: UInt8 = 1 << 3 | 2

    /// The record, with these parts of it.
    ///
    /// - Throws: What the decoder throws: it is no record.
    package func decode(_ body: [UInt8]) throws -> WireRecord {
        guard let fields else { return try WireRecord(serializedBytes: body) }
        let reduced = body.withUnsafeBytes { reduce($0, to: fields) }
        return try WireRecord(serializedBytes: reduced ?? body)
    }

    /// Nil: it is written in another way than ours, and decoded as a whole.
    private func reduce(_ body: UnsafeRawBufferPointer, to fields: [[UInt8]]) -> [UInt8]? {
        var reader = ProtobufReader(body)
        var reduced: [UInt8] = []
        while !reader.isAtEnd {
            let start = reader.place
            guard let tag = reader.varint() else { return nil }
            var isKept = hasRest || tag == Self.typeTag
            switch tag & 7 {
            case 0: guard reader.varint() != nil else { return nil }
            case 1: guard reader.take(8) != nil else { return nil }
            case Self.lengthWire:
                guard let part = reader.part() else { return nil }
                if tag == Self.fieldTag {
                    var inner = ProtobufReader(part)
                    guard inner.byte() == Self.fieldName, let name = inner.part() else { return nil }
                    isKept = fields.contains { $0.elementsEqual(name) }
                }
            case 5: guard reader.take(4) != nil else { return nil }
            default: return nil
            }
            if isKept { reduced.append(contentsOf: body[start..<reader.place]) }
        }
        return reduced
    }
}
