internal import NephosCore
package import NephosFiles

/// A small file in the place of one whose content is not on this device. Its name is the file's with ``suffix``, so that no
/// program takes it for the file. It says which item it is, so that it is never sent as a content.
package enum Placeholder {
    package static let suffix = FileName(".nephos".utf8)
    /// A file that takes no more room than this is left on the disk.
    package static let fileSizeMin: Int64 = 8192
    /// Bytes of a placeholder, also with a few words added by hand.
    static let sizes = Int64(text(of: .top).count)...1024

    private static let mark = "Nephos placeholder: this file's content is not on this device.\n"
    private static let itemMark = "item "

    /// The name of a file's placeholder; nil: the file has none, since that would be too long, or since the file is called
    /// like a placeholder itself. Such files are always here, so that no placeholder is in another's way.
    package static func name(of file: FileName) -> FileName? {
        file.count + suffix.count <= DocumentLimits.nameBytesMax && self.file(of: file) == nil ? file + suffix : nil
    }

    /// The name of a placeholder's file; nil: the name is no placeholder's.
    package static func file(of name: FileName) -> FileName? {
        name.count > suffix.count && name.suffix(suffix.count).elementsEqual(suffix)
            ? Array(name.dropLast(suffix.count)) : nil
    }

    /// The content of an item's placeholder.
    static func text(of item: DocumentID) -> [UInt8] {
        Array("\(mark)Get it with: nephos agent download FILE\n\(itemMark)\(item)\n".utf8)
    }

    /// The item of a placeholder; nil: the text is not a placeholder's.
    static func item(in text: [UInt8]) -> DocumentID? {
        guard text.starts(with: mark.utf8) else { return nil }
        let line = String(decoding: text, as: UTF8.self).split(separator: "\n").last { $0.hasPrefix(itemMark) }
        return line.flatMap { DocumentID(String($0.dropFirst(itemMark.count))) }
    }
}

extension HeldFolder {
    /// The item that a placeholder names; nil: the file is not a placeholder.
    func placeholderItem(_ name: FileName, _ facts: FileFacts) -> DocumentID? {
        guard facts.kind == .file, Placeholder.sizes.contains(facts.size) else { return nil }
        return (try? content(of: name, bytesMax: Int(Placeholder.sizes.upperBound))).flatMap(Placeholder.item)
    }
}
