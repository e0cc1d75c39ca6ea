package import Foundation
package import NephosCore
package import NephosWire
private import SwiftProtobuf

/// What a save makes of a record: a pure rule.
///
/// The policies are CloudKit's (CKRecordSavePolicy): with the default the change tag that the device knew has to be the
/// record's; with the other two the fields that are named are saved, whatever has become of the others.
package enum SaveRule {
    /// A record as it is stored.
    package struct State: Equatable {
        /// Nil: there is none.
        package var record: WireRecord?
        /// Change tags that it had before, the newest first; of one that was deleted, too.
        package var former: [[UInt8]] = []
        /// Of one that was deleted: by whom, and when; nil: that is not known.
        package var deletion: WireRecordStamp?
        /// It was saved or deleted since the service came back from a copy, and not as it had been before.
        package var isSince = false
        /// It was saved or deleted after the service had come back from a copy, and before anybody had shown it that: its
        /// stamp does not say what it has not followed.
        package var isUnshown = false
        /// When the present epoch began, nanoseconds since 1970: what is older was in the copy, or is offered again.
        package var epochBegan: Int64 = 0

        package init(
            record: WireRecord? = nil, former: [[UInt8]] = [],
            deletion: WireRecordStamp? = nil,
            isSince: Bool = false
        ) {
            self.record = record
            self.former = former
            self.deletion = deletion
            self.isSince = isSince
        }

        package var isThere: Bool { record != nil }
    }

    package enum Outcome: Equatable {
        /// It is to be stored so.
        ///
        /// - Parameter overwrites: What the device had not seen is lost by it.
        case write(WireRecord, overwrites: Bool)
        /// It is already as was asked.
        case same(WireRecord)
    }

    /// - Parameter stamp: Of the save.
    /// - Throws: ``CloudError`` `.serverRecordChanged`, `.unknownItem` (it was deleted since), `.invalidArguments` (of another type; a field is to be sealed that is there unsealed).
    package static func decide(
        _ save: WireSaveRecord, over state: State, stamp: WireRecordStamp
    ) throws(CloudError) -> Outcome {
        let version = [UInt8](save.version)
        guard let stored = state.record else {
            // A save that comes late, of a record that was deleted since.
            guard !state.former.contains(version) else { throw deletedSince }
            guard save.base.isEmpty || save.policy != .ifServerRecordUnchanged else { throw deletedSince }
            let stamp = later(stamp, than: state)
            var created = stamp
            created.gaps = []
            return .write(made(save, from: WireRecord(), created: created, stamp), overwrites: false)
        }
        // Its own save, again.
        if stored.version == save.version || state.former.contains(version) { return .same(stored) }
        guard stored.type.hasSameBytes(as: save.type) else {
            throw CloudError(
                .invalidArguments, "The record has another type, and keeps it.", details: ["argument": "type"])
        }
        try checkSealing(save.fields, over: stored)
        let result = made(save, from: stored, created: stored.created, later(stamp, than: state))
        guard stored.version != save.base else { return .write(result, overwrites: false) }
        // Equal content is no conflict.
        if hasSameContent(result, stored) { return .same(stored) }
        guard save.policy != .ifServerRecordUnchanged else {
            throw CloudError(
                .serverRecordChanged,
                "The record was saved since this device read it. Merge into the server's record, and save that.")
        }
        return .write(result, overwrites: true)
    }

    /// A field that is there does not become an encrypted one: what it was lies in histories and indexes, open.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`.
    package static func checkSealing(_ fields: [WireRecordField], over stored: WireRecord) throws(CloudError) {
        let sealed = fields.filter(\.isSealed)
        guard !sealed.isEmpty else { return }
        let open = Set(stored.fields.filter { !$0.isSealed }.map { ItemName($0.name) })
        for field in sealed where open.contains(ItemName(field.name)) {
            throw CloudError(
                .invalidArguments,
                "A field that is there does not become an encrypted one. Give the encrypted one another name.",
                details: ["field": field.name])
        }
    }

    /// - Parameter base: The change tag that the device knew; empty: whichever it is.
    /// - Throws: ``CloudError`` `.serverRecordChanged`.
    package static func decideDeletion(of state: State, base: Data) throws(CloudError) {
        guard state.isThere, !base.isEmpty, state.record?.version != base else { return }
        throw CloudError(
            .serverRecordChanged, "The record was saved since this device read it. Look again, and delete it then.")
    }

    /// The times of a record's saves and deletions rise, whatever the clock does: by them it is known after a restore
    /// which of two was the later one, and by their gaps whether it has followed the other.
    ///
    /// - Parameter isDeletion: It is the stamp of one, from which nobody can tell when the record was made.
    package static func later(
        _ stamp: WireRecordStamp, than state: State, isDeletion: Bool = false
    ) -> WireRecordStamp {
        guard let last = state.record?.modified ?? state.deletion else { return stamp }
        var later = stamp
        if last.time >= stamp.time, last.time < .max { later.time = last.time + 1 }
        // What goes with a deletion that is offered again went with it then.
        let hasParted = last.time < state.epochBegan && state.epochBegan <= later.time
        later.gaps = last.gaps
        // Until there is one, what is older than the record is its gap.
        if let record = state.record, later.gaps.isEmpty, hasParted || isDeletion {
            later.gaps = [0, record.created.time]
        }
        // Nor has what was made from what has not followed it.
        if state.isUnshown { later.gaps += [later.gaps.last ?? 0, last.time] }
        if hasParted { later.gaps += [last.time, state.epochBegan] }
        while later.gaps.count > 2 * RecordLimits.gapsMax { later.gaps.removeSubrange(1...2) }
        return later
    }

    private static let deletedSince = CloudError(
        .unknownItem, "The record was deleted. Save it as a new one, or leave it.")

    /// Byte for byte: strings that are equal to a reader are others here, and what is no number is itself.
    package static func hasSameContent(_ left: WireRecord, _ right: WireRecord) -> Bool {
        let contents = [left, right].map { record -> [UInt8]? in
            var content = WireRecord()
            content.fields = record.fields
            content.parent = record.parent
            return try? content.serializedBytes()
        }
        return contents[0] != nil && contents[0] == contents[1]
    }

    /// The record that a save makes, without saying whether it may.
    package static func made(
        _ save: WireSaveRecord, from stored: WireRecord, created: WireRecordStamp, _ stamp: WireRecordStamp
    ) -> WireRecord {
        var record = stored
        record.type = save.type
        record.version = save.version
        record.created = created
        record.modified = stamp
        record.seal = 0
        if save.hasParent { record.parent = save.parent }
        record.fields = merged(save.replace ? [] : stored.fields, save.fields)
        return record
    }

    /// - Returns: In the order of names.
    private static func merged(_ stored: [WireRecordField], _ saved: [WireRecordField]) -> [WireRecordField] {
        let named = Set(saved.map { ItemName($0.name) })
        // One of a kind that is not known here has a value all the same.
        let fields =
            stored.filter { !named.contains(ItemName($0.name)) }
            + saved.filter { $0.value != nil || !$0.unknownFields.data.isEmpty }
        return fields.sorted { ItemName($0.name) < ItemName($1.name) }
    }
}

extension WireRecordField {
    /// Whether devices have sealed it among themselves.
    package var isSealed: Bool { if case .encrypted? = value { true } else { false } }
}
