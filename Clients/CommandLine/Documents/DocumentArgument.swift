import ArgumentParser
import NephosCore
import NephosKit

/// An item as somebody names it: its path, or `id:` and its id.
struct DocumentArgument: ExpressibleByArgument, DocumentAddressing {
    let text: String

    init(_ text: String) { self.text = text }
    init?(argument: String) { self.init(argument) }

    var defaultValueDescription: String { text }

    /// A file may be called so: `Documents/id:...` is its path.
    var documentAddress: DocumentAddress {
        let prefix = DocumentID.argumentPrefix
        guard text.hasPrefix(prefix), let id = DocumentID(String(text.dropFirst(prefix.count))) else {
            return .path(text)
        }
        return .item(id)
    }
}
