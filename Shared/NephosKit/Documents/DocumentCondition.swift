internal import Foundation
public import NephosCore
internal import NephosWire

/// What a change takes for granted of items, those among them that it does not change.
///
/// It is looked at here, and by the server before anything is changed. If it is otherwise by then, all that the change
/// was to do is among what was refused, and nothing of it was done.
public enum DocumentCondition: Hashable, Sendable {
    /// There is no such item, or it lies in the trash, itself or with a folder that it is in.
    case absent(DocumentID)
    /// It is there, and this is the version of its content (``DocumentEntry/version``).
    case content(DocumentID, version: DocumentID)
    /// It is there, where it was and called as it was (``DocumentEntry/placeVersion``).
    case place(DocumentID, version: DocumentID)
    /// The folder is there, and nobody else has changed what lies in it, however deep, since this device had the
    /// container as it was at this head (``UbiquityContainer/head()``). What was moved out of it, or removed for good, is
    /// not noticed.
    case unchanged(DocumentID, since: ChangeToken)

    /// The item is there, with the content and at the place that the entry says.
    public static func asRead(_ entry: DocumentEntry) -> [DocumentCondition] {
        [
            entry.version.map { .content(entry.id, version: $0) },
            entry.placeVersion.map { .place(entry.id, version: $0) },
        ].compactMap { $0 }
    }

    var item: DocumentID {
        switch self {
        case .absent(let item), .content(let item, _), .place(let item, _), .unchanged(let item, _): item
        }
    }

    fileprivate var wire: WireItemCondition {
        var wire = WireItemCondition()
        wire.item = item.wire
        switch self {
        case .absent: wire.absent = true
        case .content(_, let version): wire.contentVersion = version.wire
        case .place(_, let version): wire.placeVersion = version.wire
        case .unchanged(_, let token): wire.unchangedSince = WireChangeToken(token)
        }
        return wire
    }
}

extension DocumentTransaction {
    /// The conditions as they are sent.
    ///
    /// What this device has changed itself in a folder, and what the server has not heard of before these conditions
    /// arrive there, is vouched for by conditions of its own: so nothing is refused for what its own device did.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: here already it is otherwise; `.limitExceeded`: they are too many,
    ///   or too much in a folder waits to be sent.
    func require(_ conditions: [DocumentCondition]) throws -> [WireItemCondition] {
        var wire: [WireItemCondition] = []
        var folders: Set<DocumentID> = []
        for condition in conditions {
            guard try holds(condition) else {
                throw CloudError(
                    .constraintViolation, "An item is not as the change takes it to be. Look again, and decide anew.",
                    details: ["item": "\(condition.item)"])
            }
            wire.append(condition.wire)
            if case .unchanged = condition { folders.insert(condition.item) }
        }
        var own = Set(folders.isEmpty ? [] : wire)
        for folder in folders.sorted() {
            for item in try waiting(in: folder) {
                for condition in Self.vouching(for: item) where own.insert(condition).inserted {
                    wire.append(condition)
                }
            }
        }
        guard wire.count <= DocumentLimits.conditionsMax else {
            throw CloudError(
                .limitExceeded, "Too many conditions, or too much in a folder waits to be sent. Send that before.",
                details: ["maximum": "\(DocumentLimits.conditionsMax)"])
        }
        return wire
    }

    /// What the server will have of an item, once it has what waits here.
    private static func vouching(for item: HeldDocument) -> [WireItemCondition] {
        if item.isTrashed { return [DocumentCondition.absent(item.id).wire] }
        return [
            DocumentID(bytes: item.wire.placeVersion).map { .place(item.id, version: $0) },
            item.wire.hasContent
                ? DocumentID(bytes: item.wire.content.version).map { .content(item.id, version: $0) } : nil,
        ].compactMap { (condition: DocumentCondition?) in condition?.wire }
    }

    /// As far as it is known here.
    private func holds(_ condition: DocumentCondition) throws -> Bool {
        let id = condition.item
        guard !id.isFixed else {
            if case .unchanged = condition { return true }
            throw CloudError(
                .invalidArguments, "Of a folder that every container has there is only what is in it.",
                details: ["item": "\(id)"])
        }
        let item = try document(id)
        let lives = try item.flatMap { try path(of: $0) }.map { !$0.isInTrash } ?? false
        return switch condition {
        case .absent: !lives
        case .content(_, let version): lives && item?.wire.content.version == version.wire
        case .place(_, let version): lives && item?.wire.placeVersion == version.wire
        case .unchanged: lives && item?.isFolder == true
        }
    }
}
