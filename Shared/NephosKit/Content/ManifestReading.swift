import Foundation
import NephosBus
import NephosCore
import NephosWire

/// Reads from a container which chunks a content of it consists of. On the loop only.
final class ManifestReading {
    private let engine: DeviceEngine
    private let place: ContentPlace
    private var walk: ContentWalk
    private var chunks: [CutChunk] = []
    private let completion: (Result<[CutChunk], CloudError>) -> Void

    /// - Parameter completion: Gets the chunks in their order, ``ContentFolder/chunksMax`` at most; or what the service
    ///   says, `.limitExceeded`, or `.storageFailure` for what cannot be true.
    init(
        _ engine: DeviceEngine, _ place: ContentPlace, _ source: ContentSource, length: UInt64,
        _ completion: @escaping (Result<[CutChunk], CloudError>) -> Void
    ) throws(CloudError) {
        self.engine = engine
        self.place = place
        walk = try ContentWalk(root: source.root, depth: source.depth, length: length, range: 0..<length)
        self.completion = completion
    }

    func goOn() {
        do throws(CloudError) {
            while true {
                switch try walk.next() {
                case .end: return completion(.success(chunks))
                case .nodes(let ids): return read(ids)
                case .chunk(let chunk, _):
                    guard chunks.count < ContentFolder.chunksMax else {
                        throw CloudError(
                            .limitExceeded, "The content is too long to be copied by this device. Divide the file.",
                            details: ["chunks_max": "\(ContentFolder.chunksMax)"])
                    }
                    chunks.append(chunk)
                }
            }
        } catch { completion(.failure(error)) }
    }

    private func read(_ ids: [ChunkID]) {
        var request = WireReadNodes()
        request.container = place.container
        request.ids = ids.map { Data($0.bytes) }
        engine.call(place.service, request, as: WireReadNodesReply.self, app: place.app) { [self] result, _ in
            do {
                try walk.take(result.get().nodes)
                goOn()
            } catch { completion(.failure(CloudError(wrapping: error))) }
        }
    }
}
