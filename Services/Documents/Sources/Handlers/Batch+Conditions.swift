internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What a device takes for granted of items, those among them that its batch does not change.
///
/// Looked at before the first change, over the container as it is. A batch that has taken effect already changes
/// nothing, and is not refused by what has become of it since.
extension Batch {
    /// The first condition that is not so; nil: all are.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, `.incompatibleVersion`, `.limitExceeded`: nobody can say.
    func unmet(_ conditions: [WireItemCondition]) throws -> CloudError? {
        let conditions = try conditions.enumerated().map { index, condition in
            do throws(CloudError) { return try ItemCondition(condition) } catch { throw error.of(condition: index) }
        }
        // What the device itself has changed in a folder it vouches for by conditions of its own.
        var vouched: [DocumentID: ItemCondition.Parts] = [:]
        var unmet: [Int: CloudError] = [:]
        for (index, condition) in conditions.enumerated() {
            guard let part = condition.part else { continue }
            if try holds(condition) {
                vouched[condition.item, default: []].insert(part)
            } else {
                unmet[index] = Self.unmet(condition.item)
            }
        }
        for (index, condition) in conditions.enumerated() {
            guard case .unchanged(let token) = condition.kind else { continue }
            unmet[index] = try otherwise(condition.item, since: token, vouched)
        }
        return unmet.min { $0.key < $1.key }.map { $0.value.of(condition: $0.key) }
    }

    private static func unmet(_ id: DocumentID) -> CloudError {
        CloudError(
            .constraintViolation, "An item is not as the change takes it to be. Look again, and decide anew.",
            details: details(id))
    }

    private func holds(_ condition: ItemCondition) throws -> Bool {
        let item = try find(condition.item)
        let lives = try item.map { try self.lives(condition.item, $0) } ?? false
        return switch condition.kind {
        case .absent: !lives
        case .content(let version): lives && item?.content.version == version
        case .place(let version): lives && item?.placeVersion == version
        case .unchanged: false
        }
    }

    private func lives(_ id: DocumentID, _ item: WireDocumentItem) throws -> Bool {
        do { try checkLives(id, item) } catch let error as CloudError where error.code == .unknownItem { return false }
        return true
    }

    /// Why the folder is not as it was; nil: it is.
    private func otherwise(
        _ folder: DocumentID, since token: ChangeToken, _ vouched: [DocumentID: ItemCondition.Parts]
    ) throws -> CloudError? {
        if !folder.isFixed {
            guard let item = try find(folder), item.kind == .folder, try lives(folder, item) else {
                return Self.unmet(folder)
            }
        }
        let standing = try standing(of: folder, since: token, saidSeen: vouched.count) { id in
            guard let parts = vouched[id], let item = try find(id) else { return false }
            if parts.contains(.absence) { return true }
            return parts.contains(item.hasContent ? [.place, .content] : .place) && item.conflicts.isEmpty
        }
        guard case .unchanged = standing else {
            var error = Self.unmet(folder)
            if case .changed(let items) = standing { error.details.merge(Self.changed(items)) { $1 } }
            return error
        }
        return nil
    }
}

/// A condition that was read.
struct ItemCondition {
    enum Kind {
        case absent
        case content(Data)
        case place(Data)
        case unchanged(ChangeToken)
    }

    /// What a condition says of an item that others might have changed.
    struct Parts: OptionSet {
        let rawValue: Int
        static let place = Parts(rawValue: 1)
        static let content = Parts(rawValue: 2)
        /// That it is in the trash, or gone.
        static let absence = Parts(rawValue: 4)
    }

    let item: DocumentID
    let kind: Kind

    /// Nil: it is about a folder and what is in it.
    var part: Parts? {
        switch kind {
        case .absent: .absence
        case .content: .content
        case .place: .place
        case .unchanged: nil
        }
    }

    /// - Throws: ``CloudError`` `.invalidArguments`; `.incompatibleVersion`: this version does not know the kind.
    init(_ wire: WireItemCondition) throws(CloudError) {
        item = try DocumentsService.item(wire.item, "conditions")
        var namesFolder = false
        switch wire.kind {
        case .absent(true): kind = .absent
        case .contentVersion(let version):
            try ContentRule.checkVersion([UInt8](version), "conditions")
            kind = .content(version)
        case .placeVersion(let version):
            try ContentRule.checkVersion([UInt8](version), "conditions")
            kind = .place(version)
        case .unchangedSince(let token) where token.epoch > 0:
            kind = .unchanged(ChangeToken(token))
            namesFolder = true
        case .absent, .unchangedSince:
            throw CloudError(
                .invalidArguments, "A condition says nothing.", details: ["argument": "conditions"])
        case nil:
            throw CloudError(
                .incompatibleVersion,
                "A condition is of a kind that this version does not know. Upgrade the older side.")
        }
        guard namesFolder || !item.isFixed else {
            throw CloudError(
                .invalidArguments, "Of a folder that every container has there is only what is in it.",
                details: ["argument": "conditions"])
        }
    }
}

extension CloudError {
    /// Says which condition of a batch it is about.
    fileprivate func of(condition index: Int) -> CloudError {
        var error = self
        error.details["condition"] = "\(index)"
        return error
    }
}
