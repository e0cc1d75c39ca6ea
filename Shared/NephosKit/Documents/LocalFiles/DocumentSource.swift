public import Foundation
internal import NephosCore
internal import NephosWire

/// Something to be put.
public struct DocumentSource: Sendable {
    package enum Content: Sendable {
        case data(Data)
        case file(LocalPath, allowsOpenDatabase: Bool)
        /// Where it leads, in bytes.
        case link(Data)
        case package(LocalPath, allowsOpenDatabase: Bool)
    }

    /// A failure: no item can be called so.
    let path: Result<DocumentPath, CloudError>
    /// Nil: a folder.
    let content: Content?
    /// The file, folder or link of this machine that it is a copy of; nil: it is of none.
    private(set) var local: LocalPath?
    /// Whether a person or an app has named that. Otherwise it was found in a folder that was named.
    private(set) var isNamed = true
    /// Of a folder: when what is in it was changed; nil: as it is.
    package var modified: DocumentDate?

    /// - Parameter file: The file or folder of this machine that it is a copy of.
    private init(_ path: String, _ file: URL, _ content: (LocalPath) -> Content) {
        do throws(CloudError) {
            local = try LocalPath(file)
            self.path = .success(try DocumentPath(path))
        } catch { self.path = .failure(error) }
        self.content = content(local ?? LocalPath(""))
    }

    private init(_ path: String, _ content: Content?) {
        self.path = Result { () throws(CloudError) in try DocumentPath(path) }
        self.content = content
    }

    /// The file that it is read from; nil: a folder, a link, or none.
    package var localFile: LocalPath? { if case .file(let file, _)? = content { file } else { nil } }

    /// - Parameters:
    ///   - local: The file, folder or link of this machine that it is a copy of.
    ///   - isNamed: Whether a person has named that. Otherwise it was found in a folder that was named.
    package init(_ path: DocumentPath, _ content: Content?, local: LocalPath? = nil, isNamed: Bool = true) {
        self.path = .success(path)
        self.content = content
        (self.local, self.isNamed) = (local, isNamed)
    }

    /// Whether a link at ``local`` means what it leads to.
    private var followsLinks: Bool { if case .link? = content { false } else { true } }

    func origin(_ keys: inout LocalFileKeys) -> LocalOrigin? {
        local.flatMap { keys.key(of: $0, followsLinks: followsLinks) }.map { LocalOrigin(file: $0, isNamed: isNamed) }
    }

    /// A folder of this machine, without what is in it, if it is not there yet: with the date that it has here.
    package static func folder(_ folder: LocalPath, at path: DocumentPath) -> DocumentSource {
        var source = DocumentSource(path, nil, local: folder, isNamed: false)
        if let status = (try? folder.status(followsLinks: true)) ?? nil {
            source.modified = DocumentDate(nanoseconds: FileStamp(status).modified)
        }
        return source
    }

    /// A folder, if it is not there yet.
    public static func folder(at path: String) -> DocumentSource { DocumentSource(path, nil) }
    /// A file's content.
    ///
    /// - Parameters:
    ///   - file: The file's path on this device's disk.
    ///   - path: The item's path in the container.
    ///   - allowsOpenDatabase: Whether a SQLite database that has a log, a journal or shared memory beside it,
    ///     and each of those, is put as it is: whoever says so knows that nobody writes to it meanwhile.
    public static func file(_ file: URL, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        DocumentSource(path, file) { .file($0, allowsOpenDatabase: allowsOpenDatabase) }
    }
    /// A file of these bytes.
    public static func data(_ data: Data, at path: String) -> DocumentSource {
        DocumentSource(path, .data(data))
    }
    /// A folder of this machine with all that is in it, as one item that changes as one: a package. What in it ends in
    /// `.nosync` is left out. A file that is the content of a package, to the byte, is put as that.
    ///
    /// - Parameters:
    ///   - folder: The folder's path on this device's disk.
    ///   - path: The item's path in the container.
    ///   - allowsOpenDatabase: As of ``file(_:at:allowsOpenDatabase:)``.
    public static func package(_ folder: URL, at path: String, allowsOpenDatabase: Bool = false) -> DocumentSource {
        DocumentSource(path, folder) { .package($0, allowsOpenDatabase: allowsOpenDatabase) }
    }
    /// A symbolic link that leads there.
    public static func link(to target: String, at path: String) -> DocumentSource {
        DocumentSource(path, .link(Data(target.utf8)))
    }
}
