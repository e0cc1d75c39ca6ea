import Foundation
package import NephosCore

/// Where something is in a container, by the names of the folders that lead to it from the top.
package struct DocumentPath: Hashable {
    /// What the folder is called that the person sees.
    static let documents = Data("Documents".utf8)

    var names: [Data]

    /// Reads a path: `/...` begins at the container's top; any other in `Documents`, whether it says so or not.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that no item can have.
    package init(_ text: String) throws(CloudError) {
        names = text.utf8.split(separator: UInt8(ascii: "/")).map { Data($0) }
        if text.utf8.first != UInt8(ascii: "/"), names.first != Self.documents { names.insert(Self.documents, at: 0) }
        try requireNames()
    }

    init(names: [Data]) { self.names = names }

    /// Names beneath `Documents`, by their bytes.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that no item can have, or too many.
    package init(inDocuments names: [Data]) throws(CloudError) {
        self.names = [Self.documents] + names
        try requireNames()
    }

    /// - Throws: ``CloudError`` `.invalidArguments` for a name that no item can have, or too many.
    func requireNames() throws(CloudError) {
        // First: a request may have any number of names.
        guard names.count <= DocumentLimits.depthMax else {
            throw CloudError(
                .invalidArguments, "Folders lie too deep within each other.",
                details: ["depth_max": "\(DocumentLimits.depthMax)"])
        }
        let text = text
        for name in names { try Self.check(name, of: text) }
    }

    /// What a name ends in that stays on its device, with all that is in it.
    package static let localSuffix = ".nosync"

    /// - Throws: ``CloudError`` `.invalidArguments` for what stays on its device.
    func requireSynced() throws(CloudError) {
        guard let name = names.first(where: { $0.suffix(Self.localSuffix.utf8.count) == Data(Self.localSuffix.utf8) })
        else { return }
        throw CloudError(
            .invalidArguments, "What ends in .nosync stays on its device. Give it another name.",
            details: ["name": String(decoding: name, as: UTF8.self), "path": text])
    }

    /// The folder that it is in; nil: it is the top.
    var parent: DocumentPath? { names.isEmpty ? nil : DocumentPath(names: names.dropLast()) }
    var last: Data { names.last ?? Data() }

    package func appending(_ name: Data) -> DocumentPath { DocumentPath(names: names + [name]) }

    /// Of something else in the same folder.
    func renamed(_ name: Data) -> DocumentPath { DocumentPath(names: names.dropLast() + [name]) }

    /// What it clashes by with others, name by name.
    package func key(by key: ([UInt8]) -> [UInt8]) -> [[UInt8]] { names.map { key([UInt8]($0)) } }

    /// Whether the other is this one, or lies in it.
    func contains(_ other: DocumentPath) -> Bool { other.names.starts(with: names) }

    /// Whether ``text`` leads where this does.
    var isText: Bool { names.allSatisfy { String(validating: $0, as: UTF8.self) != nil } }

    /// From the top. Bytes that are no text are shown as U+FFFD.
    package var text: String { "/" + names.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "/") }

    /// A name beside the name: `name 2.txt`.
    package static func numbered(_ name: Data, _ number: Int) -> Data { ConflictName.make(of: name, number: number) }

    /// - Throws: ``CloudError`` `.invalidArguments`.
    package static func check(_ name: Data, of path: String = "") throws(CloudError) {
        guard !DocumentLimits.isName(name) else { return }
        throw CloudError(
            .invalidArguments,
            "No item can be called so: a name has 1 to 255 bytes, none of them / or NUL, and is not . or ..",
            details: ["name": String(decoding: name, as: UTF8.self), "path": path])
    }
}
