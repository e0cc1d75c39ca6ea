public import Foundation
public import NephosCore

/// Contents of any length, piece by piece, as ``UbiquityContainer/streams`` has them.
public struct DocumentStreams: Sendable {
    let handle: ContainerHandle

    /// The content of a file of any length, or a part of it, in pieces of at most ``DocumentStream/pieceBytes``.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - range: Bytes of the content; those beyond its end are left out. Nil: all of it.
    ///   - version: Nil: the newest that this device knows of.
    ///   - timeout: How long no byte may come before it is given up.
    ///   - onProgress: Gets the bytes of the part that have come, and all.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/read(_:version:timeout:)`` does, whatever the length.
    public func read(
        _ path: some DocumentAddressing, range: Range<UInt64>? = nil, version: DocumentID? = nil,
        timeout: Duration = .seconds(30), onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> DocumentStream {
        try await handle.reader.stream(
            path, range: range, version: version, timeout: timeout, onProgress: onProgress)
    }

    /// Puts a file of an unknown length, piece by piece. It is seen once the last piece has come.
    ///
    /// - Parameters:
    ///   - pieces: The bytes of the content, in order.
    ///   - path: The item's path in the container.
    ///   - makesFolders: Whether to make missing folders of the path.
    ///   - onProgress: Gets the bytes that were written so far.
    /// - Throws: What the sequence throws, or ``CloudError`` as ``DocumentWriter/write(_:)`` and
    ///   ``DocumentWriter/finish()`` do. Nothing was put then.
    @discardableResult
    public func write<Pieces: AsyncSequence>(
        contentsOf pieces: Pieces, at path: String, makesFolders: Bool = false,
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws -> DocumentEntry where Pieces.Element == Data {
        let writer = try makeWriter(at: path, makesFolders: makesFolders)
        do {
            for try await piece in pieces {
                try await writer.write(piece)
                onProgress(writer.bytesWritten)
            }
        } catch {
            writer.cancel()
            throw error
        }
        return try await writer.finish()
    }

    /// Begins a file of an unknown length.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a path that no item can have; `.storageFailure`.
    public func makeWriter(at path: String, makesFolders: Bool = false) throws(CloudError) -> DocumentWriter {
        try makeWriter(at: DocumentPath(path), makesFolders: makesFolders)
    }

    /// The same at a path by the bytes of its names.
    package func makeWriter(
        at path: DocumentPath, makesFolders: Bool = false
    ) throws(CloudError) -> DocumentWriter {
        try DocumentWriter(handle, at: path, makesFolders: makesFolders)
    }
}
