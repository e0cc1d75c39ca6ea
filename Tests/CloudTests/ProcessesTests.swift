import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// Several processes of one home.
@Suite struct ProcessesTests {
    /// What a process was told, in order: keys with their values.
    private func told(_ device: TestDevice) -> [[ItemName: PropertyValue?]] {
        device.changes.filter { $0.reason == .serverChange }.map { change in
            Dictionary(change.items.map { ($0.key, $0.value) }) { $1 }
        }
    }

    /// `NEPHOS_SEEDS=N` sets how many histories are tried.
    @Test(arguments: 1...max(1, UInt64(ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] ?? "") ?? 10))
    func everyProcessOfAHomeIsToldEveryChangeOnce(_ seed: UInt64) throws {
        let cloud = try TestCloud(seed: seed)
        defer { cloud.close() }
        var random = SplitMix64(seed: seed)
        let other = try cloud.addDevice()
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        // Both have heard of the first download.
        cloud.network.run(for: .seconds(1))
        cloud.network.faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: 0.05, duplication: 0.05, reordering: 0.1)
        let marks = [first, second].map { $0.changes.count }
        var model: [[ItemName: PropertyValue]] = []
        for step in 1...60 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                let key: ItemName = "k\(Int.random(in: 0..<4, using: &random))"
                let value: PropertyValue? = Bool.random(using: &random) ? .integer(Int64(step)) : nil
                try other.store?.set(value, forKey: key)
            case 5: try first.store?.set(.integer(Int64(step)), forKey: "mine")
            case 6: try second.store?.set(.integer(Int64(step)), forKey: "mine too")
            case 7: [first, second].randomElement(using: &random)?.setOffline(true)
            default: for process in [first, second] { process.setOffline(false) }
            }
            cloud.network.run(for: .milliseconds(Int64.random(in: 0...400, using: &random)))
        }
        cloud.network.faults = .none
        for process in [first, second] { process.setOffline(false) }
        #expect(cloud.settle())
        cloud.network.run(for: .seconds(1))
        #expect(told(first) == told(second))
        for (process, mark) in zip([first, second], marks) {
            var replayed: [ItemName: PropertyValue] = [:]
            for change in process.changes.dropFirst(mark) {
                #expect(change.reason == .serverChange && !change.items.isEmpty)
                for item in change.items { replayed[item.key] = item.value }
            }
            model.append(replayed)
            #expect(replayed == process.values.filter { $0.key.rawValue.hasPrefix("k") })
        }
    }

    @Test func everyProcessIsToldOfARefusedWrite() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let other = try cloud.addDevice()
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        first.setOffline(true)
        second.setOffline(true)
        let large = PropertyValue.string(String(repeating: "x", count: 600_000))
        try first.store?.set(large, forKey: "a")
        try other.store?.set(large, forKey: "b")
        cloud.network.run(for: .seconds(2))
        first.setOffline(false)
        second.setOffline(false)
        #expect(cloud.passes(within: .seconds(120)) { (try? first.store?.status().refused.count) == 1 })
        cloud.network.run(for: .seconds(1))
        for process in [first, second] {
            #expect(process.changes.filter { $0.reason == .quotaViolationChange }.map(\.changedKeys) == [["a"]])
            #expect(try process.store?.status().isInSync == false)
        }
    }

    // Nobody misses the older value, and to set it again by what is listed would undo the newer one.
    @Test func aRefusedWriteWhoseKeyWasWrittenAgainSinceIsNotListed() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        let (first, other) = (try cloud.addDevice(), try cloud.addDevice())
        #expect(cloud.settle())
        first.setOffline(true)
        let large = PropertyValue.string(String(repeating: "x", count: 600_000))
        try first.store?.write([LocalWrite(key: "a", value: large), LocalWrite(key: "c", value: .integer(1))])
        try first.store?.set(.integer(2), forKey: "a")
        try other.store?.set(large, forKey: "b")
        cloud.network.run(for: .seconds(2))
        first.setOffline(false)
        #expect(cloud.passes(within: .seconds(120)) { (try? first.store?.status().pending.isEmpty) == true })
        cloud.network.run(for: .seconds(2))
        #expect(other.values["a"] == .integer(2))
        #expect(try first.store?.status().refused.map(\.key) == ["c"])
    }

    // What was written while nobody was signed in is queued last, and is older: it does not stand for what was refused.
    @Test func aRefusedWriteIsListedThoughAnOlderOneOfItsKeyStillWaits() throws {
        let cloud = try TestCloud(seed: 5)
        defer { cloud.close() }
        let (first, other) = (try cloud.addDevice(), try cloud.addDevice())
        #expect(cloud.settle())
        try first.signOut()
        try first.store?.set("old", forKey: "a")
        try first.signIn(as: TestCloud.accountName)
        #expect(cloud.settle())
        first.setOffline(true)
        let large = PropertyValue.string(String(repeating: "x", count: 600_000))
        try first.store?.set(large, forKey: "a")
        #expect(try first.store?.adoptSignedOutContent() == ["a"])
        try other.store?.set(large, forKey: "b")
        cloud.network.run(for: .seconds(2))
        first.setOffline(false)
        #expect(cloud.passes(within: .seconds(120)) { (try? first.store?.status().pending.isEmpty) == true })
        cloud.network.run(for: .seconds(2))
        #expect(other.values["a"] == "old")
        #expect(try first.store?.status().refused.map(\.value) == [large])
    }

    // Also not for what is not sent yet, nor where both are refused, nor when it is adopted once more.
    @Test func whatIsAdoptedLaterIsOlder() throws {
        let cloud = try TestCloud(seed: 6)
        defer { cloud.close() }
        let (first, other) = (try cloud.addDevice(), try cloud.addDevice())
        #expect(cloud.settle())
        func large(_ letter: String) -> PropertyValue { .string(String(repeating: letter, count: 600_000)) }
        try first.signOut()
        try first.store?.set(large("o"), forKey: "a")
        try first.signIn(as: TestCloud.accountName)
        #expect(cloud.settle())
        first.setOffline(true)
        try first.store?.set(large("n"), forKey: "a")
        #expect(try first.store?.adoptSignedOutContent() == ["a"])
        #expect(first.values == ["a": large("n")])
        try other.store?.set(large("b"), forKey: "b")
        cloud.network.run(for: .seconds(2))
        func sendAndBeRefused() throws {
            first.setOffline(false)
            #expect(cloud.passes(within: .seconds(120)) { (try? first.store?.status().pending.isEmpty) == true })
            cloud.network.run(for: .seconds(2))
            #expect(try first.store?.status().refused.map(\.value) == [large("n")])
        }
        try sendAndBeRefused()
        #expect(try first.store?.adoptSignedOutContent() == ["a"])
        #expect(try first.store?.status().refused.map(\.value) == [large("n")])
        try sendAndBeRefused()
        // What is written now is newer than all of them.
        try first.store?.set(1, forKey: "a")
        #expect(try first.store?.status().refused.isEmpty == true)
        #expect(cloud.settle())
        #expect(other.values["a"] == 1)
    }

    // The server ends the other's subscription for it, before the one that signs out has saved that.
    @Test(arguments: 1...6) func aSignOutInOneProcessIsNoRevocationInAnother(_ seed: UInt64) throws {
        let cloud = try TestCloud(seed: seed)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(80)))
        let engine = try #require(first.engine)
        engine.signOut { _ in }
        for _ in 0..<300 {
            cloud.network.run(for: .milliseconds(10))
            #expect(second.session?.revoked == false)
            let problem = try second.store?.status().problem
            #expect(problem == nil || problem?.code == .notSignedIn)
        }
        #expect(second.session?.signedIn == false)
    }

    @Test func everyProcessOfARevokedHomeSaysSo() throws {
        let cloud = try TestCloud(seed: 7)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        try cloud.revoke(first)
        cloud.network.run(for: .seconds(3))
        for process in [first, second] {
            #expect(process.session?.revoked == true)
            #expect(try process.store?.status().problem?.code == .deviceRevoked)
        }
    }

    @Test func whoCallsAgainWhenTheAccountChangesIsAnswered() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let first = try cloud.addDevice(isShared: true)
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        let engine = try #require(second.engine)
        let app = try #require(second.session?.defaultApp)
        var failure: CloudError?
        var listed: Result<WireListKeyHistoryReply, CloudError>?
        func list(_ completion: @escaping (Result<WireListKeyHistoryReply, CloudError>, Budget?) -> Void) {
            var request = WireListKeyHistory()
            request.storeID = engine.session?.storeIDs[app.rawValue] ?? ""
            engine.call(
                .keyValue, request, as: WireListKeyHistoryReply.self, app: app, timeout: .seconds(60),
                completion)
        }
        list { result, _ in
            if case .failure(let error) = result { failure = error }
            list { result, _ in listed = result }
        }
        // The call waits for the service that is away when the home passes to another account.
        cloud.network.run(for: .seconds(1))
        try first.signIn(as: "other")
        #expect(cloud.network.run(within: .seconds(2)) { failure != nil })
        #expect(failure?.code == .networkFailure)
        try cloud.start(.keyValue)
        #expect(cloud.network.run(within: .seconds(90)) { listed != nil })
        #expect(throws: Never.self) { try listed?.get() }
        #expect(cloud.settle())
    }
}
