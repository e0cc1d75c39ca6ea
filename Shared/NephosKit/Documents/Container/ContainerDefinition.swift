internal import Foundation
public import NephosCore
internal import NephosPredicates
internal import NephosWire
internal import SwiftProtobuf

/// The rules of a container, which the operator sets before its first use.
public struct ContainerDefinition: Hashable, Sendable {
    /// The container's class: the data that is kept, for how long, and whether it counts on the plan.
    public var containerClass: ContainerClass
    /// Whether two names clash that differ only in case or Unicode composition.
    public var foldsNames: Bool
    /// Only another app may change it.
    public var isReadOnly: Bool
    /// Bytes that its items count, with contents, versions and the trash, by the last reply.
    public var countedBytes: UInt64
    /// The limit for all containers of the class together; nil: the container counts on the plan.
    public var classBytesMax: UInt64?
    /// Days after which items in the trash are removed permanently, and days for which former versions are kept.
    public var trashDays: Int
    public var versionDays: Int
}

extension DocumentTransaction {
    func definition() throws -> ContainerDefinition {
        let info = try WireContainerInfo(serializedBytes: rows.state().info)
        guard let containerClass = ContainerClass(info.containerClass) else {
            throw CloudError(
                .incompatibleVersion, "The container is of a class that this release does not know. Upgrade it.",
                details: ["container": container])
        }
        return ContainerDefinition(
            containerClass: containerClass, foldsNames: try rule() == .folded, isReadOnly: info.readOnly,
            countedBytes: info.countedBytes, classBytesMax: info.classBytesMax > 0 ? info.classBytesMax : nil,
            trashDays: info.trashDays > 0 ? Int(info.trashDays) : containerClass.trashDays,
            versionDays: info.versionDays > 0 ? Int(info.versionDays) : containerClass.versionDays)
    }

    /// The same check as the service's, before anything is stored here.
    ///
    /// - Throws: ``CloudError`` `.permissionFailure`, `.limitExceeded`, `.constraintViolation`.
    func check(_ draft: DocumentDraft) throws {
        let definition = try definition()
        guard !definition.isReadOnly || draft.changes.isEmpty else {
            throw CloudError(
                .permissionFailure, "Another app alone changes this container. Read it, or ask the operator.",
                details: ["container": container])
        }
        guard definition.containerClass != .documents else { return }
        for (change, _) in draft.changes { try check(change, definition.containerClass) }
    }

    private func check(_ change: WireDocumentChange, _ containerClass: ContainerClass) throws {
        let (content, parent): (WireDocumentContent?, Data?) =
            switch change.kind {
            case .create(let create): (create.hasContent ? create.content : nil, create.parent)
            case .replace(let replace): (replace.content, nil)
            case .place(let place): (nil, place.parent)
            default: (nil, nil)
            }
        if let content, content.length > containerClass.contentBytesMax {
            throw CloudError(
                .limitExceeded, "The content is too long for its container.",
                details: ["bytes_max": "\(containerClass.contentBytesMax)", "class": containerClass.name])
        }
        guard containerClass.hasDocuments || parent != DocumentID.documents.wire else {
            throw CloudError(
                .constraintViolation, "A container of this class has nothing in Documents. Put it beside.",
                details: ["class": containerClass.name])
        }
    }
}
