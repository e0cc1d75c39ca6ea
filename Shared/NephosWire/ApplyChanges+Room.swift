extension WireApplyChanges {
    /// Whether it is carried out while the service's disk is full: all that it does makes room.
    package var makesRoom: Bool { nodes.isEmpty && changes.allSatisfy(\.makesRoom) && !changes.isEmpty }
}

extension WireDocumentChange {
    fileprivate var makesRoom: Bool {
        switch kind {
        case .trash, .remove, .resolve, .versions: true
        case .rendition(let rendition): !rendition.hasContent
        default: false
        }
    }
}
