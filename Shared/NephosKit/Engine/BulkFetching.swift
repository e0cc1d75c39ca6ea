package import NephosBus
package import NephosCore

/// The chunks that a ``BulkClient`` fetches.
final class BulkFetching {
    /// Requests under way at one time.
    private static let requestsMax = 256
    /// Bytes that this device takes before it has looked at them.
    private static let windowBytes = 6 << 20

    /// How long nothing is heard before one chunk is asked for once more; of readers that are less patient, a third of
    /// what they wait.
    private static let probePause: Duration = .seconds(10)

    private struct Pending {
        var chunk: ChunkID
        var patience: Duration
        var isAsked = false
        /// When it was asked for last, among all that were.
        var order = 0
        var completion: (Result<BulkFrame, CloudError>) -> Void
    }

    private unowned let client: BulkClient
    private var pending: [UInt64: Pending] = [:]
    private var waiting: [UInt64] = []
    private var askedCount = 0
    /// Bytes that have come on this connection under this ticket, and that the service was told it may send in all.
    private var taken = 0
    private var granted = 0
    /// How often something was asked for.
    private var asked = 0
    /// One that was asked for once more, under another number.
    private var probe: Probe?

    private struct Probe {
        var number: UInt64
        var original: UInt64
        var order: Int
        var sent: Duration
    }

    init(_ client: BulkClient) { self.client = client }

    var count: Int { pending.count }

    func has(_ number: UInt64) -> Bool { pending[number] != nil }

    func fetch(
        _ chunk: ChunkID, patience: Duration, then completion: @escaping (Result<BulkFrame, CloudError>) -> Void
    ) {
        if let ended = client.ended {
            client.loop.schedule(after: .zero) { completion(.failure(ended)) }
            return
        }
        client.noteStart()
        let number = client.nextNumber()
        pending[number] = Pending(chunk: chunk, patience: patience, completion: completion)
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
            guard client.send(Self.get(request.chunk, number, pass), as: pass.ticket) else { break }
            asked += 1
            pending[number]?.isAsked = true
            pending[number]?.order = asked
            askedCount += 1
            count += 1
        }
        waiting.removeFirst(count)
    }

    private static func get(_ chunk: ChunkID, _ number: UInt64, _ pass: BulkClient.Pass) -> Frame {
        BulkFrame.control(.get, pass.ticket, number: number, chunk: chunk, encoding: .zstandard)
    }

    // MARK: Silence

    /// The line may be slow, or answers may be lost. To ask for all again would fill a slow one; so one is asked for, once
    /// for each ``probePause``. A service answers in order: what was asked before something that is answered, and is not
    /// answered itself, is lost.
    ///
    /// - Parameter silence: How long nothing was heard.
    func probe(_ pass: BulkClient.Pass, after silence: Duration) {
        let pause = pending.values.reduce(Self.probePause) { min($0, $1.patience / 3) }
        guard min(silence, client.loop.monotonicNow - (probe?.sent ?? .zero)) > max(pause, .seconds(1)),
            let (original, request) = pending.filter(\.value.isAsked).min(by: { $0.key < $1.key })
        else { return }
        // What was lost may have used up what the service may send.
        let more = granted + BulkLimits.counted(BulkLimits.chunkBytesMax)
        guard client.send(BulkFrame.control(.credit, pass.ticket, number: UInt64(more)), as: pass.ticket) else {
            return
        }
        granted = more
        let number = client.nextNumber()
        guard client.send(Self.get(request.chunk, number, pass), as: pass.ticket) else { return }
        asked += 1
        probe = Probe(number: number, original: original, order: asked, sent: client.loop.monotonicNow)
    }

    /// Asks again for what is lost, since an answer has come.
    ///
    /// - Returns: Which of the requests it answers.
    private func noteAnswer(_ number: UInt64) -> UInt64 {
        guard let probe else { return number }
        let isProbe = number == probe.number
        guard let order = isProbe ? probe.order : pending[number]?.order else { return number }
        let answered = isProbe ? probe.original : number
        if isProbe { self.probe = nil }
        let lost = pending.filter { $0.key != answered && $0.value.isAsked && $0.value.order < order }.keys
        if !lost.isEmpty || isProbe && pending[answered].map({ $0.isAsked && $0.order < order }) ?? false {
            // How much of what the service may send was lost nobody knows: it gets all of that anew.
            taken = max(taken, granted)
        }
        for number in lost { askAgain(number) }
        waiting.sort()
        return answered
    }

    func take(_ frame: BulkFrame) {
        taken += BulkLimits.counted(frame.contentBytes)
        let number = noteAnswer(frame.number)
        guard let request = pending[number] else { return }
        guard request.chunk == frame.chunk, let chunk = try? client.decoded(frame),
            chunk.withContent({ ChunkID(hashing: $0) }) == frame.chunk
        else {
            return end(
                number, .failure(CloudError(.storageFailure, "The server sent other bytes than the chunk's.")))
        }
        end(number, .success(chunk), moved: frame.contentBytes)
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
        probe = nil
        for number in pending.keys.sorted() { askAgain(number) }
        waiting.sort()
    }

    func end(_ number: UInt64, _ result: Result<BulkFrame, CloudError>, moved: Int = 0) {
        client.forgetPause(number)
        guard let request = pending.removeValue(forKey: number) else { return }
        if case .success(let frame) = result { client.noteDone(frame.contentBytes, moved: moved) }
        if request.isAsked { askedCount -= 1 }
        request.completion(result)
    }

    func failAll(_ error: CloudError) {
        for number in pending.keys.sorted() { end(number, .failure(error)) }
    }
}

extension BulkClient {
    /// Fetches a chunk, verified, and as it is. The completion runs on the loop, once.
    ///
    /// - Parameter patience: How long nothing may come before its caller gives up; by then it was asked for again twice.
    package func fetch(
        _ chunk: ChunkID, patience: Duration = .seconds(30),
        then completion: @escaping (Result<BulkFrame, CloudError>) -> Void
    ) {
        fetching.fetch(chunk, patience: patience, then: completion)
    }
}
