import Foundation
import NephosBus
import NephosCore
import NephosFiles
import NephosWire
import Synchronization

/// Where the bytes of a content go, in any order.
protocol ContentSink: Sendable {
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws
}

/// A file that is open for as long as anybody has this: work that is late never meets another file under its number.
final class OpenFile: Sendable {
    let descriptor: Int32

    /// - Parameter descriptor: Of a file that is open. It is closed with this.
    init(_ descriptor: Int32) { self.descriptor = descriptor }

    deinit { close(descriptor) }
}

/// A file that is written in any order. Zeros become holes, which take no room: its owner gives it its
/// length.
struct FileSink: ContentSink {
    /// A hole has at least so many bytes.
    private static let blockBytes = 16 << 10

    let file: OpenFile
    let name: String

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        var start = 0
        while start < bytes.count {
            let isZero = Self.isZero(bytes, at: start)
            var end = min(start + Self.blockBytes, bytes.count)
            while end < bytes.count, Self.isZero(bytes, at: end) == isZero {
                end = min(end + Self.blockBytes, bytes.count)
            }
            if !isZero || !FileSystem.punchHole(file.descriptor, at: offset + start, count: end - start) {
                try writeAll(UnsafeRawBufferPointer(rebasing: bytes[start..<end]), at: offset + start)
            }
            start = end
        }
    }

    private static func isZero(_ bytes: UnsafeRawBufferPointer, at start: Int) -> Bool {
        let count = min(blockBytes, bytes.count - start)
        guard let first = bytes.baseAddress.map({ $0 + start }), count == blockBytes, bytes[start] == 0 else {
            return false
        }
        return memcmp(first, first + 1, count - 1) == 0
    }

    private func writeAll(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        var done = 0
        while done < bytes.count {
            let count = pwrite(
                file.descriptor, bytes.baseAddress.map { $0 + done }, bytes.count - done, off_t(offset + done))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw ContentFolder.failure(name) }
            done += count
        }
    }
}

/// A file, until nobody waits for it any more: what is late then writes nothing, and whatever has begun to write keeps the
/// file open, and with it what holds it.
final class EndingSink: ContentSink {
    private let sink: Mutex<FileSink?>

    init(_ sink: FileSink) { self.sink = Mutex(sink) }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        guard let sink = sink.withLock({ $0 }) else {
            throw CloudError(.operationCancelled, "Nobody waits for the file any more.")
        }
        try sink.write(bytes, at: offset)
    }

    func end() { sink.withLock { $0 = nil } }
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

/// Where chunks of a content may be in the home already: an earlier content of the item, or what was fetched before.
struct LocalChunks: Sendable {
    private let begun: OpenFile?
    private let former: OpenFile?
    private let places: [ChunkID: (offset: Int, length: Int)]
    /// Gets what is in the begun one, which has that already.
    private let second: (any ContentSink)?

    /// - Parameters:
    ///   - begun: What is written to, as far as it was written before; nil: nothing was.
    ///   - second: What is written to besides.
    ///   - former: A content that may have some of the chunks.
    init?(begun: OpenFile?, second: (any ContentSink)? = nil, former: LocalCopy?, in folder: ContentFolder) {
        var places: [ChunkID: (offset: Int, length: Int)] = [:]
        var offset = 0
        for chunk in former?.chunks ?? [] {
            places[chunk.id] = (offset, chunk.length)
            offset += chunk.length
        }
        let other = former.map { open(folder.file($0.file), O_RDONLY | O_CLOEXEC | O_NOFOLLOW) } ?? -1
        guard begun != nil || other >= 0 else { return nil }
        self.begun = begun
        self.second = second
        self.former = other >= 0 ? OpenFile(other) : nil
        self.places = other >= 0 ? places : [:]
    }

    /// Puts the chunk where it belongs, if it is here.
    ///
    /// - Returns: False: it is not.
    func take(_ chunk: CutChunk, at offset: Int, to sink: any ContentSink) throws -> Bool {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: BulkLimits.chunkBytesMax, alignment: 16)
        defer { buffer.deallocate() }
        if let begun, let bytes = ContentFolder.read(chunk, at: offset, of: begun.descriptor, into: buffer) {
            try second?.write(bytes, at: offset)
            return true
        }
        guard let former, let place = places[chunk.id], place.length == chunk.length,
            let bytes = ContentFolder.read(chunk, at: place.offset, of: former.descriptor, into: buffer)
        else { return false }
        try sink.write(bytes, at: offset)
        return true
    }
}

/// Fetches the chunks of a content, and what leads to them. On the loop only.
///
/// Knows no more of the content at a time than the chunks that are on their way, and what its ``ContentWalk`` holds;
/// and the list of them, if that is wanted.
final class ContentDownload {
    private static let fetchesMax = 32

    private let engine: DeviceEngine
    private let place: ContentPlace
    private var walk: ContentWalk
    private let sink: any ContentSink
    private let patience: Duration
    private let onProgress: (Int) -> Void
    private let onPace: () -> Void
    private let completion: (Result<[CutChunk], CloudError>) -> Void
    private let local: LocalChunks?
    /// Chunks of the list that its owner wants, at most.
    private let listMax: Int
    private var list: [CutChunk] = []
    private var client: BulkClient?
    /// The next chunk, which waits because of the rate.
    private var next: (chunk: CutChunk, offset: Int)?
    /// Those that are looked for here.
    private var looking = 0
    /// Those that are not here.
    private var lacking: [(chunk: CutChunk, offset: Int)] = []
    private var isReading = false
    private var isAtEnd = false
    private var fetching = 0
    private var bytesDone = 0
    private var lastMoved: Duration
    /// Set while the next has to wait because of the rate.
    private var pacing: (any LoopTimer)?
    private(set) var isOver = false

    /// - Parameters:
    ///   - local: Where chunks are looked for before they are fetched; nil: nowhere.
    ///   - listMax: Chunks of the list that the completion gets, at most; it is empty if there are more.
    ///   - patience: How long nothing may come before it is given up.
    ///   - onProgress: Gets the bytes that have come.
    ///   - onPace: Called at least each second while the next chunk waits because of the rate.
    init(
        _ engine: DeviceEngine, _ place: ContentPlace, _ walk: ContentWalk, to sink: any ContentSink,
        local: LocalChunks? = nil, listMax: Int = 0, patience: Duration,
        onProgress: @escaping (Int) -> Void, onPace: @escaping () -> Void = {},
        _ completion: @escaping (Result<[CutChunk], CloudError>) -> Void
    ) {
        self.engine = engine
        self.place = place
        self.walk = walk
        self.sink = sink
        (self.local, self.listMax) = (local, listMax)
        self.patience = patience
        (self.onProgress, self.onPace) = (onProgress, onPace)
        self.completion = completion
        lastMoved = engine.loop.monotonicNow
        do {
            client = try engine.contents.join(place)
            watch()
            fill()
        } catch { end(.failure(CloudError(wrapping: error))) }
    }

    private func fill() {
        do {
            while !isOver, pacing == nil, fetching + looking < Self.fetchesMax, let (chunk, offset) = try following() {
                next = nil
                if let wait = engine.downloadRate.take(chunk.length) {
                    next = (chunk, offset)
                    pacing = engine.loop.schedule(after: wait) { [self] in
                        pacing = nil
                        lastMoved = engine.loop.monotonicNow
                        onPace()
                        fill()
                    }
                    break
                }
                fetching += 1
                client?.fetch(chunk.id, patience: patience) { [self] result in take(result, chunk, offset) }
            }
        } catch { return end(.failure(CloudError(wrapping: error))) }
        if fetching == 0, looking == 0, lacking.isEmpty, next == nil, isAtEnd {
            end(.success(list.count <= listMax ? list : []))
        }
    }

    /// The next chunk to be fetched; nil: there is none, or it is not known yet.
    private func following() throws(CloudError) -> (chunk: CutChunk, offset: Int)? {
        if let next { return next }
        if let chunk = lacking.popLast() { return chunk }
        while !isReading, !isAtEnd, fetching + looking < Self.fetchesMax {
            switch try walk.next() {
            case .chunk(let chunk, let offset):
                if list.count <= listMax { list.append(chunk) }
                guard let local else { return (chunk, offset) }
                look(for: chunk, at: offset, in: local)
            case .nodes(let ids): read(ids)
            case .end: isAtEnd = true
            }
        }
        return nil
    }

    private func look(for chunk: CutChunk, at offset: Int, in local: LocalChunks) {
        looking += 1
        engine.loop.offload(to: .content) { [sink] in
            try local.take(chunk, at: offset, to: sink)
        } then: { [self] result in
            guard !isOver else { return }
            looking -= 1
            lastMoved = engine.loop.monotonicNow
            switch result {
            case .success(true): moved(chunk)
            // The pool may be full: what is not found is fetched.
            case .success(false): lacking.append((chunk, offset))
            case .failure(let error):
                guard CloudError(wrapping: error).code == .serviceBusy else {
                    return end(.failure(LocalFailure.error(of: error, at: nil)))
                }
                lacking.append((chunk, offset))
            }
            fill()
        }
    }

    private func moved(_ chunk: CutChunk) {
        bytesDone += chunk.length
        onProgress(bytesDone)
    }

    private func read(_ ids: [ChunkID]) {
        isReading = true
        var request = WireReadNodes()
        request.container = place.container
        request.ids = ids.map { Data($0.bytes) }
        engine.call(
            place.service, request, as: WireReadNodesReply.self, app: place.app, timeout: patience,
            endsWhenRefused: true
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
        lastMoved = engine.loop.monotonicNow
        do {
            let frame = try result.get()
            guard frame.contentBytes == chunk.length else { throw ContentReading.damaged }
            // To write takes longer than to fetch, and the loop has to hear of the next meanwhile. What is held so is bounded:
            // beyond, the loop writes itself, and the service hears of no room before it has.
            let contents = engine.contents
            guard contents.writingBytes + chunk.length <= ContentConnections.writingBytesMax else {
                try Self.write(frame, at: offset, to: sink)
                return written(chunk)
            }
            contents.writingBytes += chunk.length
            engine.loop.offload(to: .content) { [sink] in
                try Self.write(frame, at: offset, to: sink)
            } then: { [self] result in
                contents.writingBytes -= chunk.length
                guard !isOver else { return }
                do {
                    if case .failure(let error) = result {
                        // The pool may be full.
                        guard CloudError(wrapping: error).code == .serviceBusy else { throw error }
                        try Self.write(frame, at: offset, to: sink)
                    }
                    written(chunk)
                } catch { end(.failure(LocalFailure.error(of: error, at: nil))) }
            }
        } catch { end(.failure(LocalFailure.error(of: error, at: nil))) }
    }

    private static func write(_ frame: BulkFrame, at offset: Int, to sink: any ContentSink) throws {
        try frame.withContent { try sink.write(UnsafeRawBufferPointer($0), at: offset) }
    }

    private func written(_ chunk: CutChunk) {
        fetching -= 1
        lastMoved = engine.loop.monotonicNow
        moved(chunk)
        fill()
    }

    private func watch() {
        engine.loop.schedule(after: .seconds(1)) { [self] in
            guard !isOver else { return }
            // What others of the connection fetch comes before this, or instead of it.
            if engine.loop.monotonicNow - max(lastMoved, client?.lastMoved ?? lastMoved) >= patience {
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

    var service: ServiceName { place.service }

    /// It is known that nothing will come for now.
    func fail(_ error: CloudError) { end(.failure(error)) }

    /// Nobody wants it any more.
    func cancel() { end(.failure(Self.cancelled)) }

    static let cancelled = CloudError(.operationCancelled, "The download was cancelled.")

    private func end(_ result: Result<[CutChunk], CloudError>) {
        guard !isOver else { return }
        isOver = true
        pacing?.cancel()
        if let client { engine.contents.leave(client, of: place) }
        client = nil
        list = []
        // Not before it is made.
        engine.loop.schedule(after: .zero) { [completion] in completion(result) }
    }
}
