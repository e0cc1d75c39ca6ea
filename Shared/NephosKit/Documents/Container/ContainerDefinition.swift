internal import Foundation
public import NephosCore
internal import NephosPredicates
internal import NephosWire
internal import SwiftProtobuf

/// What a container is, as the operator has said before its first use.
public struct ContainerDefinition: Hashable, Sendable {
    /// What follows from what it is for: what is kept, for how long, and whether it counts on the plan.
    public var containerClass: ContainerClass
    /// Whether names that differ in capitals or composition alone clash.
    public var foldsNames: Bool
    /// Another app alone changes it.
    public var isReadOnly: Bool
    /// Bytes that its items count, with their contents, versions and those in the trash, when this device heard last.
    public var countedBytes: UInt64
    /// Bytes that all containers of the class may have together; nil: it counts on the plan.
    public var classBytesMax: UInt64?
    /// Days that something stays in the trash before it is removed for good, and that former versions are kept.
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
