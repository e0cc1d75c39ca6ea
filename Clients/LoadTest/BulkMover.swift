import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosWire
import NephosZeroMQ
import Synchronization

/// A device that stores chunks as fast as it may, and fetches them again.
final class BulkMover: Sendable {
    enum Direction: Sendable {
        case store, fetch
    }

    struct Outcome: Sendable {
        var bytes = 0
        /// What went over the line for them.
        var bytesMoved = 0
        /// From the first chunk to the last answer in time.
        var elapsed: Duration = .zero
        var failures: [String: Int] = [:]

        var bytesPerSecond: Double {
            elapsed > .zero ? Double(bytes) / (Double(elapsed.nanoseconds) / 1e9) : 0
        }
    }

    /// A run that is under way.
    final class Run: Sendable {
        fileprivate let outcome = Shared(Outcome())
        fileprivate let done = DispatchSemaphore(value: 0)
        fileprivate let loop = Mutex<(any LoopHandle)?>(nil)

        func wait() -> Outcome {
            done.wait()
            loop.withLock { $0 }?.stop()
            return outcome.state.withLock { $0 }
        }
    }

    private let documents: ServerAddress
    private let bulk: ServerAddress
    private let device: LoadDevice
    private let transport: ZeroMQTransport
    private let chunkBytes: Int
    private let isCompressible: Bool
    private let roomBytes: UInt64
    private let upload: [UInt8]
    private let stored = Shared<[ChunkID]>([])

    init(
        _ enrolment: Enrolment, _ device: LoadDevice, transport: ZeroMQTransport, chunkBytes: Int,
        isCompressible: Bool, roomBytes: UInt64
    ) {
        documents = enrolment.documents
        bulk = enrolment.bulk
        self.device = device
        self.transport = transport
        self.chunkBytes = chunkBytes
        self.isCompressible = isCompressible
        self.roomBytes = roomBytes
        var generator = SystemRandomNumberGenerator()
        upload = (0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    }

    /// Begins, on a loop of its own.
    func begin(_ direction: Direction, for duration: Duration) throws -> Run {
        let run = Run()
        // It has a machine of its own, and gives way to the writer's.
        let loop = try transport.startLoop(named: "mover", for: .content) { [self] loop in
            let client = try connect(loop)
            switch direction {
            case .store: Storing(client, loop, self, run, for: duration).begin()
            case .fetch: Fetching(client, loop, stored.state.withLock { $0 }, run, for: duration).begin()
            }
        }
        run.loop.withLock { $0 = loop }
        return run
    }

    private func connect(_ loop: any BusLoop) throws -> BulkClient {
        let requests = try RequestClient(
            loop: loop,
            socket: RequestSocketOptions(
                endpoints: [documents.endpoint], serverKey: documents.key, keys: device.keys))
        let token = device.accessToken
        return try BulkClient(
            loop: loop,
            socket: RequestSocketOptions(endpoints: [bulk.endpoint], serverKey: bulk.key, keys: device.keys),
            purpose: BulkClient.Purpose(upload: upload, uploadBytes: roomBytes)
        ) { purpose, done in
            var request = WireOpenTransfer()
            request.transferID = Data(purpose.upload ?? [])
            request.uploadBytes = purpose.uploadBytes
            requests.call("OpenTransfer", body: Frame(encoding: request), accessToken: token) { reply in
                done(
                    reply.result.decoded(as: WireOpenTransferReply.self).map {
                        BulkClient.Pass(
                            ticket: $0.ticket.withUnsafeBytes { BulkTicket(bytes: $0) } ?? .none,
                            creditBytes: $0.creditBytes)
                    })
            }
        }
    }

    /// Counts answers, until the time is up.
    private class Counting {
        let client: BulkClient
        let loop: any BusLoop
        private let run: Run
        private let duration: Duration
        private var start: Duration?
        private(set) var isOver = false

        init(_ client: BulkClient, _ loop: any BusLoop, _ run: Run, for duration: Duration) {
            self.client = client
            self.loop = loop
            self.run = run
            self.duration = duration
        }

        /// The first chunk is on its way.
        func noteBegun() {
            guard start == nil else { return }
            start = loop.monotonicNow
            loop.schedule(after: duration) { self.end() }
        }

        private func end() {
            isOver = true
            client.onRoom = {}
            run.done.signal()
        }

        func note(_ bytes: Int, _ error: CloudError?) {
            guard !isOver, let start else { return }
            let elapsed = loop.monotonicNow - start
            run.outcome.state.withLock {
                if let error {
                    $0.failures["\(error.code)", default: 0] += 1
                } else {
                    $0.bytes += bytes
                    $0.bytesMoved = client.progress.bytesMoved
                    $0.elapsed = elapsed
                }
            }
            // Nothing comes after some failures.
            if let error, error.code.retry == .never, !isOver { end() }
        }
    }

    private final class Storing: Counting {
        private let mover: BulkMover
        private let content: [UInt8]
        private var number: UInt64 = 0
        private var ids: [UInt64: ChunkID] = [:]

        init(_ client: BulkClient, _ loop: any BusLoop, _ mover: BulkMover, _ run: Run, for duration: Duration) {
            self.mover = mover
            content = mover.isCompressible ? Self.words(mover.chunkBytes) : Self.random(mover.chunkBytes)
            super.init(client, loop, run, for: duration)
        }

        private static func random(_ count: Int) -> [UInt8] {
            var generator = SystemRandomNumberGenerator()
            let words = (0..<(count + 7) / 8).map { _ in generator.next() }
            return words.withUnsafeBytes { [UInt8]($0.prefix(count)) }
        }

        /// Of a thousand words, each as likely.
        private static func words(_ count: Int) -> [UInt8] {
            let letters = UInt8(ascii: "a")...UInt8(ascii: "z")
            let words = (0..<1000).map { _ in
                (0..<Int.random(in: 2...10)).map { _ in UInt8.random(in: letters) } + [UInt8(ascii: " ")]
            }
            var text: [UInt8] = []
            while text.count < count { text += words[Int.random(in: words.indices)] }
            return Array(text.prefix(count))
        }

        func begin() { client.onRoom = { self.storeMore() } }

        private func storeMore() {
            while !isOver, client.room >= content.count {
                noteBegun()
                number += 1
                let number = number
                // Before its completion runs.
                ids[number] = client.store(bytes: content.count) { room in
                    content.withUnsafeBytes { room.copyMemory(from: $0) }
                    // Each chunk is another.
                    room.storeBytes(of: number, as: UInt64.self)
                    return ChunkID(hashing: UnsafeRawBufferPointer(room))
                } then: { [self] result in
                    let id = ids.removeValue(forKey: number)
                    if let id, case .success = result { mover.stored.state.withLock { $0.append(id) } }
                    if case .failure(let error) = result { note(0, error) } else { note(content.count, nil) }
                }
            }
        }
    }

    private final class Fetching: Counting {
        private let chunks: [ChunkID]
        private var next = 0

        init(
            _ client: BulkClient, _ loop: any BusLoop, _ chunks: [ChunkID], _ run: Run, for duration: Duration
        ) {
            self.chunks = chunks
            super.init(client, loop, run, for: duration)
        }

        func begin() {
            guard !chunks.isEmpty else { return noteBegun() }
            for _ in 0..<64 { fetchNext() }
        }

        private func fetchNext() {
            guard !isOver else { return }
            noteBegun()
            let chunk = chunks[next % chunks.count]
            next += 1
            client.fetch(chunk) { [self] result in
                switch result {
                case .success(let frame): note(frame.contentBytes, nil)
                case .failure(let error): note(0, error)
                }
                fetchNext()
            }
        }
    }
}
