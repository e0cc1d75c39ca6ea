import Foundation
import NephosCore
import Synchronization

/// Contents that somebody waits for.
extension Session {
    /// Fetches the chunks of a content, until it is done or the task that waits for it is cancelled.
    ///
    /// - Parameters:
    ///   - local: Where chunks are looked for before they are fetched; nil: nowhere.
    ///   - listMax: Chunks of the list that is returned, at most; it is empty if there are more.
    ///   - patience: How long nothing may come before it is given up.
    ///   - onProgress: Gets the bytes that have come, on the loop.
    /// - Returns: The chunks, in their order.
    func fetch(
        _ place: ContentPlace, _ walk: ContentWalk, to sink: any ContentSink, local: LocalChunks? = nil,
        listMax: Int, patience: Duration, _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) -> [CutChunk] {
        let (engine, fetch) = (engine, CancellableFetch(id: engine.makeDocumentID()))
        let result: Result<[CutChunk], CloudError> = await withTaskCancellationHandler {
            do throws(CloudError) {
                return .success(
                    try await engine.perform { engine, completion in
                        guard !fetch.isCancelled else { return completion(.failure(ContentDownload.cancelled)) }
                        engine.contents.begin(
                            fetch.id,
                            ContentDownload(
                                engine, place, walk, to: sink, local: local, listMax: listMax, patience: patience,
                                onProgress: onProgress
                            ) { result in
                                engine.contents.forget(fetch.id)
                                completion(result)
                            })
                    })
            } catch { return .failure(error) }
        } onCancel: {
            fetch.cancel()
            engine.execute { $0.contents.cancel(fetch.id) }
        }
        return try result.get()
    }

    /// Fetches a content or a part of it.
    ///
    /// - Parameters:
    ///   - bound: Bytes that may stay here; a longer content does not.
    ///   - begun: What the sink writes to, as far as it was written before; nil: nothing was.
    ///   - former: A copy that may have some of the chunks.
    /// - Returns: What may stay here, once all of it has gone where it was to go; nil: nothing may.
    func fetch(
        _ content: some ContentAddress, _ range: Range<Int>, of place: ContentPlace, to sink: any ContentSink,
        staying bound: UInt64, begun: OpenFile? = nil, former: LocalCopy? = nil, _ patience: Duration,
        _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) -> (copy: KeptContent, chunks: [CutChunk])? {
        guard let root = ChunkID(bytes: [UInt8](content.root)) else { throw ContentReading.damaged }
        let walk = try ContentWalk(
            root: root, depth: content.depth, length: content.length,
            range: UInt64(range.lowerBound)..<UInt64(range.upperBound))
        let isWhole = range.lowerBound == 0 && UInt64(range.upperBound) == content.length
        let folder = try? ContentFolder(home: local.home)
        let copy =
            isWhole && content.length <= bound
            ? folder.flatMap { KeptContent($0, engine.makeDocumentID(), length: content.length) } : nil
        let chunks: [CutChunk]
        do throws(CloudError) {
            chunks = try await fetch(
                place, walk, to: copy.map { TeeSink(first: sink, second: $0) } ?? sink,
                local: folder.flatMap { LocalChunks(begun: begun, second: copy, former: former, in: $0) },
                listMax: copy == nil ? 0 : ContentFolder.chunksMax, patience: patience, onProgress)
        } catch {
            // What has fetched it may be about for a while yet.
            copy?.drop()
            throw error
        }
        guard let copy, copy.isWhole, !chunks.isEmpty, (try? CutChunk.root(of: chunks)) == root else {
            copy?.drop()
            return nil
        }
        return (copy, chunks)
    }

    /// Runs disk access away from the threads of tasks.
    package static func elsewhere<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async -> Result<Value, any Error> {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async { continuation.resume(returning: Result { try body() }) }
        }
    }
}

/// A fetch that may be given up before it has begun.
private final class CancellableFetch: Sendable {
    let id: DocumentID
    private let state = Mutex(false)
    var isCancelled: Bool { state.withLock { $0 } }

    init(id: DocumentID) { self.id = id }

    func cancel() { state.withLock { $0 = true } }
}
