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

    /// Runs what reads and writes files where it keeps nobody waiting.
    static func elsewhere<Value: Sendable>(
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
