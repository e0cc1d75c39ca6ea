import Foundation
import NephosCore
import NephosSimulation
import Synchronization
import Testing

@testable import NephosKit

/// Contents piece by piece, of whatever length.
@Suite struct StreamTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func files(_ device: ContainerCloud.Device) -> [String] {
        let folder = device.session.home.path + "/content"
        return ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).filter { !$0.hasPrefix(".") }
    }

    private func all(_ stream: DocumentStream) async throws -> (data: Data, pieces: Int) {
        var (data, pieces) = (Data(), 0)
        for try await piece in stream {
            #expect(!piece.isEmpty && piece.count <= DocumentStream.pieceBytes)
            data.append(piece)
            pieces += 1
        }
        return (data, pieces)
    }

    @Test(arguments: [0, 10, 4096, 4097, 100_000, 10_000_000])
    func whatIsWrittenInPiecesIsReadInPieces(count: Int) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = bytes(count, seed: UInt64(count))
            let writer = try one.container.streams.makeWriter(at: "f/x", makesFolders: true)
            for start in stride(from: 0, to: count, by: 777_777) {
                try await writer.write(Data(content[start..<min(count, start + 777_777)]))
            }
            #expect(try await one.container.item(at: "f/x") == nil)
            #expect(try await writer.finish().size == UInt64(count))
            try await one.settle()
            try await two.settle()
            let whole = try await all(two.container.streams.read("f/x"))
            #expect(whole.data == content)
            #expect(whole.pieces == (count + DocumentStream.pieceBytes - 1) / DocumentStream.pieceBytes)
            let part = try await all(two.container.streams.read("f/x", range: 3..<9_000_001))
            #expect(part.data == content.dropFirst(3).prefix(9_000_001 - 3))
            // Read to its end, it stays.
            two.setOffline(true)
            #expect(try await two.container.item(at: "f/x")?.download.status == .current)
            #expect(try await all(two.container.streams.read("f/x")).data == content)
            #expect(files(two).count == (count > 4096 ? 1 : 0))
        }
    }

    @Test func aStreamIsOfOneVersionAndLeavesNothingWhenItIsLeft() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = bytes(9_000_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            let stream = try await two.container.streams.read("x")
            let iterator = stream.makeAsyncIterator()
            var data = try #require(try await iterator.next())
            try await one.container.put(bytes(5_000_000, seed: 2), at: "x")
            try await one.settle()
            try await two.settle()
            while let piece = try await iterator.next() { data.append(piece) }
            #expect(data == content)
            // It is not what the item has now.
            #expect(files(two).isEmpty)
            do {
                let left = try await two.container.streams.read("x").makeAsyncIterator()
                _ = try await left.next()
            }
            cloud.simulation.pass(.seconds(5))
            #expect(files(two).isEmpty)
        }
    }

    @Test func whatIsGivenUpLeavesNothing() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            #expect(throws: CloudError.self) { try one.container.streams.makeWriter(at: "a.nosync") }
            let writer = try one.container.streams.makeWriter(at: "x")
            try await writer.write(bytes(100_000, seed: 1))
            #expect(files(one).count == 1)
            writer.cancel()
            #expect(files(one).isEmpty)
            await #expect(throws: CloudError.self) { try await writer.write(Data([1])) }
            await #expect(throws: CloudError.self) { try await writer.finish() }
            // The folder is not there.
            let other = try one.container.streams.makeWriter(at: "no/x")
            try await other.write(bytes(100_000, seed: 1))
            await #expect(throws: CloudError.self) { try await other.finish() }
            #expect(files(one).isEmpty)
            do {
                let forgotten = try one.container.streams.makeWriter(at: "x")
                try await forgotten.write(bytes(100_000, seed: 1))
            }
            // The thread that wrote the piece may hold the writer for a moment more.
            for _ in 0..<1000 where !files(one).isEmpty { try await Task.sleep(for: .milliseconds(5)) }
            #expect(files(one).isEmpty)
            struct Failure: Error {}
            let pieces = AsyncThrowingStream<Data, any Error> { continuation in
                continuation.yield(Data(count: 100_000))
                continuation.finish(throwing: Failure())
            }
            await #expect(throws: Failure.self) { try await one.container.streams.write(contentsOf: pieces, at: "x") }
            #expect(files(one).isEmpty)
            #expect(try await one.paths().isEmpty)
            let good = AsyncStream<Data> { continuation in
                for _ in 0..<3 { continuation.yield(Data(count: 50_000)) }
                continuation.finish()
            }
            #expect(try await one.container.streams.write(contentsOf: good, at: "x").size == 150_000)
        }
    }

    /// A sequence that ends because its task was cancelled has not come to its end.
    @Test func whatWasCutOffByCancellationIsNotPut() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for count in [100, 100_000] {
                let (pieces, feed) = AsyncStream<Data>.makeStream()
                feed.yield(bytes(count, seed: 1))
                let task = Task { try await one.container.streams.write(contentsOf: pieces, at: "x") }
                if count > 4096 {
                    while files(one).isEmpty { try await Task.sleep(for: .milliseconds(5)) }
                } else {
                    try await Task.sleep(for: .milliseconds(100))
                }
                task.cancel()
                let failure = await #expect(throws: CloudError.self) { try await task.value }
                #expect(failure?.code == .operationCancelled)
                #expect(try await one.paths().isEmpty && files(one).isEmpty)
            }
        }
    }

    @Test func aWriterEndsOnceAndLeavesNothingWhereItFails() async throws {
        try await withContainers { cloud in
            let fails = Mutex(false)
            let one = try await cloud.open { name in
                if name == "writer.flush", fails.withLock({ $0 }) { throw POSIXError(.EIO) }
            }
            try await one.settle()
            for count in [100, 100_000] {
                let writer = try one.container.streams.makeWriter(at: "\(count)")
                try await writer.write(bytes(count, seed: 1))
                let ended = await withTaskGroup(of: Bool.self) { group in
                    for _ in 0..<4 { group.addTask { (try? await writer.finish()) != nil } }
                    return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
                }
                #expect(ended == 1)
                #expect(try await one.container.read("\(count)") == bytes(count, seed: 1))
            }
            try await one.settle()
            let before = files(one)
            fails.withLock { $0 = true }
            let writer = try one.container.streams.makeWriter(at: "y")
            try await writer.write(bytes(100_000, seed: 1))
            await #expect(throws: CloudError.self) { try await writer.finish() }
            #expect(files(one) == before)
        }
    }

    /// However slowly it comes.
    @Test func whoeverGivesUpDoesNotWaitForWhatWasAskedFor() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(9_000_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            two.session.setTransferLimits(TransferLimits(download: 1000))
            let stream = try await two.container.streams.read("x")
            cloud.simulation.waitingPassesTime = false
            let task = Task {
                let iterator = stream.makeAsyncIterator()
                _ = try await iterator.next()
            }
            while cloud.simulation.waiterCount == 0 { try await Task.sleep(for: .milliseconds(5)) }
            cloud.simulation.pass(.seconds(1))
            task.cancel()
            try await Task.sleep(for: .milliseconds(50))
            cloud.simulation.pass(.seconds(1))
            cloud.simulation.waitingPassesTime = true
            let failure = await #expect(throws: CloudError.self) { try await task.value }
            #expect(failure?.code == .operationCancelled)
            cloud.simulation.pass(.seconds(2))
            #expect(files(two).isEmpty)
            let far = try await two.container.streams.read("x", range: 0..<UInt64.max)
            #expect(far.range.upperBound == 9_000_000)
        }
    }

    @Test func readingAndWritingTellHowFarTheyAre() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let content = Data((0..<9_000_000).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 9) })
            let pieces = AsyncStream<Data> { continuation in
                for start in stride(from: 0, to: content.count, by: 1_000_000) {
                    continuation.yield(content[start..<start + 1_000_000])
                }
                continuation.finish()
            }
            var written: [UInt64] = []
            try await one.container.streams.write(contentsOf: pieces, at: "x") { written.append($0) }
            #expect(written == (1...9).map { $0 * 1_000_000 })
            let file = cloud.root + "/file"
            try content.write(to: URL(fileURLWithPath: file))
            var read: [UInt64] = []
            try await one.container.put(file: file, at: "y") { read.append($0) }
            #expect(read.count > 5 && read == read.sorted() && read.last == 9_000_000)
            for device in [one, two] { try await device.settle() }
            for range in [nil, 1_000_000..<8_500_000] as [Range<UInt64>?] {
                let told = Mutex<[(UInt64, UInt64)]>([])
                let stream = try await two.container.streams.read("x", range: range) { done, total in
                    told.withLock { $0.append((done, total)) }
                }
                var count = 0
                for try await piece in stream { count += piece.count }
                let all = UInt64(range?.count ?? 9_000_000)
                #expect(count == Int(all))
                let done = told.withLock { $0.map(\.0) }
                #expect(done == done.sorted() && done.last == all && done.count >= 2)
                #expect(told.withLock { $0.allSatisfy { $0.1 == all } })
            }
        }
    }
}
