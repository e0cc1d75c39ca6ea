import Foundation
import NephosBus
import NephosCore
import NephosZeroMQ
import Synchronization
import Testing

@Suite struct OffloadTests {
    private let transport = ZeroMQTransport()

    private func priority() -> Int32 { getpriority(.init(PRIO_PROCESS.rawValue), 0) }

    @Test func longWorkGivesWayToTheLoop() throws {
        let log = Log<Int32>()
        let handle = try transport.startLoop(named: "offload") { loop in
            log.add(priority())
            for pool in WorkPool.allCases {
                loop.offload(to: pool, { self.priority() }) { log.add((try? $0.get()) ?? 0) }
            }
        }
        defer { handle.stop() }
        try eventually { log.all.count == WorkPool.allCases.count + 1 }
        #expect(log.all.dropFirst().allSatisfy { $0 > log.all[0] })
    }

    @Test func whatMovesContentGivesWayToWhatAnswersRequests() throws {
        let log = Log<Int32>()
        let own = priority()
        for work in [LoopWork.requests, .content] {
            let handle = try transport.startLoop(named: "turns", for: work) { loop in
                log.add(priority())
                loop.offload(to: .content, { self.priority() }) { log.add((try? $0.get()) ?? 0) }
            }
            try eventually { log.all.count == (work == .requests ? 2 : 4) }
            handle.stop()
        }
        #expect(log.all == [own, min(19, own + 10), min(19, own + 5), min(19, own + 10)])
    }

    @Test func libzmqsThreadsTakeAfterTheirLoops() throws {
        let handle = try transport.startLoop(named: "turns", for: .content) { loop in
            _ = try loop.makeReplySocket(
                ReplySocketOptions(endpoint: "tcp://127.0.0.1:*", keys: try ZeroMQTransport().makeKeyPair())
            ) { _ in }
        }
        defer { handle.stop() }
        let own = priority()
        // Each of them names itself when it begins.
        try eventually {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").compactMap { UInt32($0) }.contains {
                (try? String(contentsOfFile: "/proc/self/task/\($0)/comm", encoding: .utf8))?.hasPrefix("ZMQbg/IO")
                    == true
                    && getpriority(.init(PRIO_PROCESS.rawValue), $0) == min(19, own + 5)
            }
        }
    }

    @Test func whatIsAcceptedIsDoneByAFewThreadsAndWhatStillWaitsAtTheEndToo() throws {
        let running = Mutex((now: 0, most: 0, done: 0))
        let handle = try transport.startLoop(named: "offload") { loop in
            for _ in 0..<60 {
                loop.offload(
                    to: .computing,
                    {
                        running.withLock {
                            $0.now += 1
                            $0.most = max($0.most, $0.now)
                        }
                        usleep(2000)
                        running.withLock {
                            $0.now -= 1
                            $0.done += 1
                        }
                    }, then: { _ in })
            }
        }
        handle.stop()
        try eventually { running.withLock { $0.done } == 60 }
        #expect((1...2).contains(running.withLock { $0.most }))
    }
}
