public import NephosCore
internal import NephosWire

/// What is said of items beside their contents. Each attribute is by itself: of two devices that set different ones both
/// have set theirs; of one that both set the last stands. All tags of an item are one.
extension UbiquityContainer {
    /// What is said of an item. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; else as ``item(at:)`` does.
    public func attributes(of path: some DocumentAddressing) async throws(CloudError) -> DocumentAttributes {
        try read { DocumentAttributes(try $0.item(at: $0.path(path)).wire.attributes) }
    }

    /// Changes what is said of an item, one after the other; whatever is not named stays.
    ///
    /// It is on this device when the call returns, and is sent when it can be. No content is sent, and none becomes another
    /// version.
    ///
    /// - Parameter conditions: What this takes for granted, of whichever items; else it is refused.
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for the folders that every container has;
    ///   `.limitExceeded` when there would be too many, or too long ones (take some away first); `.constraintViolation`
    ///   when a condition does not hold here; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func setAttributes(
        _ changes: [DocumentAttributeChange], of path: some DocumentAddressing, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await change(conditions) { draft in
            let item = try draft.documents.item(at: draft.documents.path(path))
            try draft.setAttributes(WireSetAttributes(changes, of: item.wire.attributes), of: item)
            return item.id
        } reading: {
            try $0.requireEntry($1)
        }
    }
}
