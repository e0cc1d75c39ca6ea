internal import Foundation
package import NephosCore
internal import NephosWire

/// How a file of this machine and what is in the container differ.
package struct LocalDifference: Sendable {
    /// What a put would send, a get would bring, or a person has to decide.
    package enum Kind: String, Sendable {
        /// Both are alike.
        case same
        /// Only the file was changed since it was got or put: a put sends it.
        case changedHere = "changed_here"
        /// Only the item was: a get brings it.
        case changedThere = "changed_there"
        /// Both were, or the file was never got: a put keeps both, and a get leaves the file.
        case conflict
        /// A put makes it.
        case onlyHere = "only_here"
        /// A get brings it.
        case onlyThere = "only_there"
        /// It was got or put, and is gone in the container: a put with `-r` leaves it out.
        case deletedThere = "deleted_there"
    }

    package var kind: Kind
    /// Of the item: where it is, or will be made.
    package var path: String
    /// Where the item was when the file was got or put, if it was moved in the container since.
    package var movedFrom: String?
}

extension UbiquityContainer {
    /// Compares files with what is in the container. Nothing is changed or sent; a file that is as it is recorded is not
    /// read.
    ///
    /// - Parameters:
    ///   - readsAll: Whether all are read.
    ///   - onRead: Gets the bytes of each piece that was read.
    /// - Returns: Of each source how it differs, or why it cannot be compared.
    package func compare(
        _ sources: [DocumentSource], basis: PutBasis = .record, readsAll: Bool = false,
        onRead: @escaping @Sendable (Int) -> Void = { _ in }
    ) async throws(CloudError) -> [Result<LocalDifference, CloudError>] {
        let known = readsAll ? [:] : try unchanged(sources, basis)
        let read = await Session.elsewhere { () -> [Result<(LocalOrigin?, ContentDigest?), CloudError>] in
            var keys = LocalFileKeys()
            return sources.enumerated().map { index, source in
                let origin = source.origin(&keys)
                if let digest = known[index]?.record.digest { return .success((origin, digest)) }
                return Result { () throws(CloudError) in
                    do { return (origin, try source.digest(onRead)) } catch {
                        throw LocalFailure.error(of: error, at: nil)
                    }
                }
            }
        }
        let files: [Result<(LocalOrigin?, ContentDigest?), CloudError>]
        do { files = try read.get() } catch { throw CloudError(wrapping: error) }
        return try self.read { documents in
            var draft = draft(of: documents)
            return try zip(sources, files).map { source, file in
                do {
                    let (origin, digest) = try file.get()
                    return .success(try draft.difference(try source.path.get(), origin, digest, basis))
                } catch {
                    guard let error = error as? CloudError else { throw error }
                    return .failure(error)
                }
            }
        }
    }

    /// What a get of an item to a place would do: nothing (``LocalDifference/Kind/same``), bring it, or leave the file.
    ///
    /// - Throws: ``CloudError`` as the get would throw of what is there.
    package func compare(
        _ id: DocumentID, version: DocumentID? = nil, with place: LocalPath, followsLinks: Bool,
        replacing: LocalReplacing, replacesFolder: Bool, timeout: Duration
    ) async throws(CloudError) -> LocalDifference.Kind {
        let (item, content) = try await content(at: id, version, timeout)
        do {
            let plan = try await plan(
                item, content, to: place, followsLinks: followsLinks, replacesFolder: replacesFolder, replacing)
            if plan.isUpToDate { return .same }
            return try place.named.status() == nil ? .onlyThere : .changedThere
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }
}

extension DocumentSource {
    /// Reads the content. Nil: a folder.
    fileprivate func digest(_ onRead: (Int) -> Void) throws -> ContentDigest? {
        switch content {
        case nil: return nil
        case .data(let data)?: return ContentDigest(.file, data)
        case .link(let target)?: return ContentDigest(.link, target)
        case .file(let file, _)?, .package(let file, _)?:
            guard let read = try ContentDigest.read(file, followsLinks: true, onRead: onRead) else {
                throw CloudError(.unknownItem, "There is no such file.", details: ["file": file.text])
            }
            return read.digest
        }
    }
}
