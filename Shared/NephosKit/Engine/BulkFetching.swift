package import NephosBus
package import NephosCore

/// The chunks that a ``BulkClient`` fetches.
final class BulkFetching {
    /// Requests under way at one time.
    private static let requestsMax = 256
    /// Bytes that this device takes before it has looked at them.
    private static let windowBytes = 6 << 20

    private struct Pending {
        var chunk: ChunkID
        var isAsked = false
        var completion: (Result<BulkFrame, CloudError>) -> Void
    }

    private unowned let client: BulkClient
    private var pending: [UInt64: Pending] = [:]
    private var waiting: [UInt64] = []
    private var askedCount = 0
    /// Bytes that have come on this connection under this ticket, and that the service was told it may send in all.
    private var taken = 0
    private var granted = 0

    init(_ client: BulkClient) { self.client = client }

    var count: Int { pending.count }

    func has(_ number: UInt64) -> Bool { pending[number] != nil }

    func fetch(_ chunk: ChunkID, then completion: @escaping (Result<BulkFrame, CloudError>) -> Void) {
        if let ended = client.ended {
            client.loop.schedule(after: .zero) { completion(.failure(ended)) }
            return
        }
        client.noteStart()
        let number = client.nextNumber()
        pending[number] = Pending(chunk: chunk, completion: completion)
        waiting.append(number)
        client.goOn()
    }

    func goOn(_ pass: BulkClient.Pass) {
        if granted == 0 || granted - taken <= Self.windowBytes / 2, !pending.isEmpty {
            let total = taken + Self.windowBytes
            guard client.send(BulkFrame.control(.credit, pass.ticket, number: UInt64(total)), as: pass.ticket) else {
                return
            }
            granted = total
        }
        var count = 0
        for number in waiting {
            guard askedCount < Self.requestsMax else { break }
            guard let request = pending[number] else {
                count += 1
                continue
            }
            let frame = BulkFrame.control(.get, pass.ticket, number: number, chunk: request.chunk)
            guard client.send(frame, as: pass.ticket) else { break }
            pending[number]?.isAsked = true
            askedCount += 1
            count += 1
        }
        waiting.removeFirst(count)
    }

    func take(_ frame: BulkFrame) {
        taken += BulkLimits.counted(frame.contentBytes)
        guard let request = pending[frame.number] else { return }
        let isTrue = request.chunk == frame.chunk && frame.withContent { ChunkID(hashing: $0) } == frame.chunk
        end(
            frame.number,
            isTrue
                ? .success(frame)
                : .failure(CloudError(.storageFailure, "The server sent other bytes than the chunk's.")))
    }

    func askAgain(_ number: UInt64) {
        guard pending[number]?.isAsked == true else { return }
        pending[number]?.isAsked = false
        askedCount -= 1
        waiting.append(number)
    }

    /// Asks for all once more.
    ///
    /// - Parameter isNew: Whether the service knows nothing of the connection or the ticket yet.
    func restart(isNew: Bool) {
        if isNew { taken = 0 }
        granted = taken
        for number in pending.keys.sorted() { askAgain(number) }
        waiting.sort()
    }

    func end(_ number: UInt64, _ result: Result<BulkFrame, CloudError>) {
        client.forgetPause(number)
        guard let request = pending.removeValue(forKey: number) else { return }
        if case .success(let frame) = result { client.noteDone(frame.contentBytes) }
        if request.isAsked { askedCount -= 1 }
        request.completion(result)
    }

    func failAll(_ error: CloudError) {
        for number in pending.keys.sorted() { end(number, .failure(error)) }
    }
}

extension BulkClient {
    /// Fetches a chunk, verified. The completion runs on the loop, once.
    package func fetch(_ chunk: ChunkID, then completion: @escaping (Result<BulkFrame, CloudError>) -> Void) {
        fetching.fetch(chunk, then: completion)
    }
}
