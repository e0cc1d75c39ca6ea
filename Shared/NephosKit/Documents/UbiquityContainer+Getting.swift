import Foundation
package import NephosCore
import NephosFiles

extension UbiquityContainer {
    /// Contents that are fetched at a time of several. A small one takes the time of its request, and the connection
    /// has room for many.
    private static let fetchesMax = 8

    /// Gets several items, each to its place, as ``get(_:to:followsLinks:version:timeout:onProgress:)`` does; no link is
    /// followed. They take their places once all of them are written and flushed, in one go: until then, whatever
    /// happens, what was there is there.
    ///
    /// - Parameters:
    ///   - items: At most some hundreds: each is an open file.
    ///   - replacesFolders: Whether packages take the place of folders with something in them.
    ///   - endsAll: Whether the others need not be tried after this error.
    ///   - onProgress: Gets the number of an item, and the bytes of it that have come.
    /// - Returns: How it went with each; nil: it was not tried.
    package func getEach(
        _ items: [(item: DocumentID, place: LocalPath)], replacesFolders: Bool = false, timeout: Duration,
        endsAll: @escaping @Sendable (CloudError) -> Bool = { _ in false },
        onProgress: @escaping @Sendable (Int, UInt64) -> Void = { _, _ in }
    ) async -> [Result<Void, CloudError>?] {
        typealias Got = (part: any LocalPart, fetched: FetchedContent?)
        typealias Outcome = (number: Int, part: Result<Got?, CloudError>)
        var parts: [Result<Got?, CloudError>?] = items.map { _ in nil }
        await withTaskGroup(of: Outcome.self) { group in
            var isEnded = false
            for (number, (item, place)) in items.enumerated() {
                if number >= Self.fetchesMax, let outcome = await group.next() {
                    parts[outcome.number] = outcome.part
                    if case .failure(let error) = outcome.part, endsAll(error) { isEnded = true }
                }
                if isEnded { break }
                group.addTask {
                    do throws(CloudError) {
                        let part = try await self.part(
                            item, for: place, followsLinks: false, version: nil, replacesFolder: replacesFolders,
                            timeout: timeout
                        ) { done, _ in onProgress(number, done) }
                        return (number, .success(part))
                    } catch { return (number, .failure(error)) }
                }
            }
            for await outcome in group { parts[outcome.number] = outcome.part }
        }
        let flushed = await Self.flush(parts.compactMap { try? $0?.get()?.part })
        defer { keep(parts.compactMap { try? $0?.get()?.fetched }) }
        return parts.map { part in
            guard let part else { return nil }
            return Result { () throws(CloudError) in
                guard let part = try part.get()?.part else { return }
                try flushed.get()
                try part.takePlace()
            }
        }
    }

    /// Flushes the file systems that the parts are on: what would be done for each of them, once for all.
    private static func flush(_ parts: [any LocalPart]) async -> Result<Void, CloudError> {
        await withCheckedContinuation { continuation in
            // It can take a while.
            DispatchQueue.global().async {
                var devices: Set<dev_t> = []
                continuation.resume(
                    returning: Result { () throws(CloudError) in
                        for part in parts {
                            var status = stat()
                            guard fstat(part.descriptor, &status) == 0 else {
                                throw ContentFolder.failure(part.name)
                            }
                            guard devices.insert(status.st_dev).inserted else { continue }
                            let number = FileSystem.flush(part.descriptor)
                            guard number == 0 else {
                                errno = number
                                throw ContentFolder.failure(part.name)
                            }
                        }
                    })
            }
        }
    }
}
