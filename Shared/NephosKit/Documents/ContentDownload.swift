import Foundation
import NephosBus
import NephosCore
import NephosWire
import Synchronization

/// Where the bytes of a content go, in any order.
protocol ContentSink: Sendable {
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws
}

/// A file that is open.
struct FileSink: ContentSink {
    let descriptor: Int32
    let name: String

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        var done = 0
        while done < bytes.count {
            let count = pwrite(
                descriptor, bytes.baseAddress.map { $0 + done }, bytes.count - done, off_t(offset + done))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw ContentFolder.failure(name) }
            done += count
        }
    }
}

/// Memory.
final class DataSink: ContentSink {
    private let data: Mutex<Data>
    var content: Data { data.withLock { $0 } }

    init(count: Int) { data = Mutex(Data(count: count)) }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        data.withLock { data in
            guard offset >= 0, bytes.count <= data.count - offset else { return }
            data.withUnsafeMutableBytes { $0[offset..<offset + bytes.count].copyBytes(from: bytes) }
        }
    }
}

/// A part of a content: what lies beside it is left out.
struct RangeSink: ContentSink {
    let range: Range<Int>
    let sink: any ContentSink

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        let part = (offset..<offset + bytes.count).clamped(to: range)
        guard !part.isEmpty else { return }
        try sink.write(
            UnsafeRawBufferPointer(rebasing: bytes[part.lowerBound - offset..<part.upperBound - offset]),
            at: part.lowerBound - range.lowerBound)
    }
}

/// Fetches the chunks of a content, and what leads to them. On the loop only.
///
/// Knows no more of the content at a time than the chunks that are on their way, and what its ``ContentWalk`` holds.
final class ContentDownload {
    private static let fetchesMax = 32

    private let engine: DeviceEngine
    private let app: AppID
    private let container: String
    private var walk: ContentWalk
    private let sink: any ContentSink
    private let patience: Duration
    private let onProgress: @Sendable (Int) -> Void
    private let completion: (Result<Void, CloudError>) -> Void
    private var client: BulkClient?
    /// The next chunk, which waits because of the rate.
    private var next: (chunk: CutChunk, offset: Int)?
    private var isReading = false
    private var isAtEnd = false
    private var fetching = 0
    private var bytesDone = 0
    private var lastMoved: Duration
    /// Set while the next has to wait because of the rate.
    private var pacing: (any LoopTimer)?
    private var isOver = false

    /// - Parameter patience: How long nothing may come before it is given up.
    init(
        _ engine: DeviceEngine, app: AppID, container: String, _ walk: ContentWalk, to sink: any ContentSink,
        patience: Duration,
        onProgress: @escaping @Sendable (Int) -> Void, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        self.engine = engine
        self.app = app
        self.container = container
        self.walk = walk
        self.sink = sink
        self.patience = patience
        self.onProgress = onProgress
        self.completion = completion
        lastMoved = engine.loop.monotonicNow
        do {
            client = try engine.contents.join(app)
            watch()
            fill()
        } catch { end(.failure(CloudError(wrapping: error))) }
    }

    private func fill() {
        do {
            while !isOver, pacing == nil, fetching < Self.fetchesMax, let (chunk, offset) = try following() {
                next = nil
                if let wait = engine.downloadRate.take(chunk.length) {
                    next = (chunk, offset)
                    pacing = engine.loop.schedule(after: wait) { [self] in
                        pacing = nil
                        lastMoved = engine.loop.monotonicNow
                        fill()
                    }
                    break
                }
                fetching += 1
                client?.fetch(chunk.id) { [self] result in take(result, chunk, offset) }
            }
        } catch { return end(.failure(CloudError(wrapping: error))) }
        if fetching == 0, isAtEnd { end(.success(())) }
    }

    /// The next chunk; nil: there is none, or it is not known yet.
    private func following() throws(CloudError) -> (chunk: CutChunk, offset: Int)? {
        if let next { return next }
        guard !isReading, !isAtEnd else { return nil }
        switch try walk.next() {
        case .chunk(let chunk, let offset): return (chunk, offset)
        case .nodes(let ids): read(ids)
        case .end: isAtEnd = true
        }
        return nil
    }

    private func read(_ ids: [ChunkID]) {
        isReading = true
        var request = WireReadNodes()
        request.container = container
        request.ids = ids.map { Data($0.bytes) }
        engine.call(
            .documents, request, as: WireReadNodesReply.self, app: app, timeout: patience, endsWhenRefused: true
        ) { [self] result, _ in
            guard !isOver else { return }
            isReading = false
            lastMoved = engine.loop.monotonicNow
            do {
                try walk.take(result.get().nodes)
                // Not within the call that may have made it.
                engine.loop.schedule(after: .zero) { [self] in if !isOver { fill() } }
            } catch { end(.failure(CloudError(wrapping: error))) }
        }
    }

    private func take(_ result: Result<BulkFrame, CloudError>, _ chunk: CutChunk, _ offset: Int) {
        guard !isOver else { return }
        fetching -= 1
        lastMoved = engine.loop.monotonicNow
        do {
            let frame = try result.get()
            guard frame.contentBytes == chunk.length else { throw ContentReading.damaged }
            try frame.withContent { try sink.write(UnsafeRawBufferPointer($0), at: offset) }
            bytesDone += chunk.length
            onProgress(bytesDone)
            fill()
        } catch { end(.failure(LocalFailure.error(of: error, at: nil))) }
    }

    private func watch() {
        engine.loop.schedule(after: .seconds(1)) { [self] in
            guard !isOver else { return }
            if engine.loop.monotonicNow - lastMoved >= patience {
                let waiting = client?.progress.waiting?.reason
                return end(
                    .failure(
                        CloudError(
                            waiting?.code ?? .deadlineExceeded, waiting?.message ?? "The content did not come in time.",
                            details: waiting?.details ?? [:])))
            }
            watch()
        }
    }

    private func end(_ result: Result<Void, CloudError>) {
        guard !isOver else { return }
        isOver = true
        pacing?.cancel()
        if let client { engine.contents.leave(client, of: app) }
        client = nil
        // Not before it is made.
        engine.loop.schedule(after: .zero) { [completion] in completion(result) }
    }
}
