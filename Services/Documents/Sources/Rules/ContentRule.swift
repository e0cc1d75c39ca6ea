internal import NephosCore
internal import NephosWire

/// What a content of a request has to be like.
enum ContentRule {
    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`.
    static func check(
        _ content: WireDocumentContent, of kind: WireItemKind, in containerClass: ContainerClass
    ) throws(CloudError) {
        try checkVersion([UInt8](content.version), "version")
        guard content.version.contains(where: { $0 != 0 }) else {
            throw CloudError(
                .invalidArguments, "16 zeros name no version. Choose 16 random bytes.", details: ["argument": "version"]
            )
        }
        if !content.base.isEmpty { try checkVersion([UInt8](content.base), "base") }
        guard content.length <= containerClass.contentBytesMax else {
            throw CloudError(
                .limitExceeded, "The content is too long for its container.",
                details: ["bytes_max": "\(containerClass.contentBytesMax)", "class": containerClass.name])
        }
        if content.length <= UInt64(DocumentLimits.inlineBytesMax) {
            guard content.inline.count == Int(content.length), content.root.isEmpty, content.depth == 0 else {
                throw malformed("A content of up to \(DocumentLimits.inlineBytesMax) bytes goes with its item, whole.")
            }
        } else {
            guard content.inline.isEmpty, content.root.count == ChunkID.byteCount else {
                throw malformed("A content of more than \(DocumentLimits.inlineBytesMax) bytes is named by its root.")
            }
        }
        guard
            kind != .link
                || (1...DocumentLimits.linkBytesMax).contains(Int(clamping: content.length))
                    && !content.inline.contains(0)
        else { throw malformed("A link leads to a path of 1 to \(DocumentLimits.linkBytesMax) bytes without NUL.") }
    }

    /// As it is stored: what this version does not know is left out, or it would be kept without being counted.
    static func canonical(_ given: WireDocumentContent) -> WireDocumentContent {
        var content = WireDocumentContent()
        content.version = given.version
        content.base = given.base
        content.length = given.length
        content.inline = given.inline
        content.root = given.root
        content.depth = given.depth
        content.modified = given.modified
        return content
    }

    static func checkVersion(_ version: [UInt8], _ argument: String) throws(CloudError) {
        guard version.count == DocumentID.byteCount else {
            throw CloudError(
                .invalidArguments, "A version is named by 16 bytes that the device chooses.",
                details: ["argument": argument])
        }
    }

    private static func malformed(_ message: String) -> CloudError {
        CloudError(.invalidArguments, message, details: ["argument": "content"])
    }
}

/// What a further content has to be like.
enum RenditionRule {
    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`.
    static func check(_ request: WireSetRendition, in container: ContainerClass) throws(CloudError) {
        guard DocumentLimits.isRenditionName(request.name) else {
            throw CloudError(
                .invalidArguments,
                "A further content is called by text of 1 to \(DocumentLimits.renditionNameBytesMax) bytes without / and NUL.",
                details: ["argument": "name", "bytes_max": "\(DocumentLimits.renditionNameBytesMax)"])
        }
        guard request.hasContent else { return }
        try ContentRule.check(request.content, of: .file, in: container)
        try ContentRule.checkVersion([UInt8](request.ofVersion), "of_version")
    }
}
