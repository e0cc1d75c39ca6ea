import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// One home, two accounts, and a process that ends between any two things that it saves.
@Suite struct SwitchTests {
    /// Ends what is being done at the step of this name.
    private final class Crash: Sendable {
        private struct Ended: Error {}
        private let point = Mutex<String?>(nil)
        let happened = Mutex(false)

        func arm(_ name: String) { point.withLock { $0 = name } }

        func reach(_ name: String) throws {
            guard point.withLock({ $0 == name }) else { return }
            point.withLock { $0 = nil }
            happened.withLock { $0 = true }
            throw Ended()
        }
    }

    private static let signInSteps = ["switch.secrets", "switch.session", "sign-in.commit", "switch.clear"]
    private static let signOutSteps = ["switch.secrets", "switch.session", "sign-out.commit", "switch.clear"]

    @Test func whatWasRefusedIsNotGivenUpBecauseAnotherSignsIn() throws {
        let cloud = try TestCloud(seed: 6)
        defer { cloud.close() }
        for name in ["anna", "bert"] { try cloud.createAccount(name) }
        let (device, other) = (try cloud.addDevice(to: "anna"), try cloud.addDevice(to: "anna"))
        #expect(cloud.settle())
        device.setOffline(true)
        let large = PropertyValue.string(String(repeating: "x", count: 600_000))
        try device.store?.set(large, forKey: "a")
        try other.store?.set(large, forKey: "b")
        cloud.network.run(for: .seconds(2))
        device.setOffline(false)
        #expect(cloud.network.run(within: .seconds(60)) { (try? device.store?.status().refused.count) == 1 })
        try device.signOut()
        let refusal = #expect(throws: CloudError.self) { try device.signIn(as: "bert") }
        #expect(refusal?.code == .constraintViolation && refusal?.details["refused"] == "1")
        try device.signIn(as: "anna")
        #expect(try device.store?.status().refused.map(\.value) == [large])
        try device.signIn(as: "bert", discardsUnsent: true)
        #expect(device.session?.accountName == "bert")
    }

    @Test(arguments: signInSteps)
    func aCrashAtAnyStepOfASwitchLeavesTheHomeWholeWithOneAccount(_ step: String) throws {
        let cloud = try TestCloud(seed: 5)
        defer { cloud.close() }
        try cloud.createAccount("anna")
        try cloud.createAccount("bert")
        let crash = Crash()
        let device = try cloud.addDevice(to: "anna", fault: crash.reach)
        let anna = try cloud.addDevice(to: "anna")
        let bert = try cloud.addDevice(to: "bert")
        #expect(cloud.settle())

        // What anna wrote waits, while bert signs in.
        cloud.crash(.keyValue)
        try device.store?.set("of anna", forKey: "k")
        crash.arm(step)
        do { try device.signIn(as: "bert", discardsUnsent: true) } catch {}
        #expect(crash.happened.withLock { $0 })
        device.stop()
        try device.start()
        try cloud.start(.keyValue)
        #expect(cloud.settle(within: .seconds(120)))

        let name = try #require(device.session?.accountName)
        #expect(name == (step == "switch.clear" ? "bert" : "anna"))
        #expect(bert.values.isEmpty)
        #expect(anna.values == (name == "anna" ? ["k": "of anna"] : [:]))
        #expect(device.values == (name == "anna" ? ["k": "of anna"] : [:]))
        // It works on, as who it is.
        try device.store?.set("later", forKey: "l")
        #expect(cloud.settle(within: .seconds(120)))
        #expect(anna.values["l"] == (name == "anna" ? "later" : nil))
        #expect(bert.values["l"] == (name == "bert" ? "later" : nil))
        #expect(device.secretNames == 1)
    }

    @Test(arguments: signOutSteps)
    func aCrashAtAnyStepOfASignOutLeavesTheHomeSignedInOrOut(_ step: String) throws {
        let cloud = try TestCloud(seed: 6)
        defer { cloud.close() }
        let crash = Crash()
        let device = try cloud.addDevice(fault: crash.reach)
        #expect(cloud.settle())
        // The server does not hear of it: else it has ended the sign-in, whatever the device saved.
        cloud.crash(.identity)
        crash.arm(step)
        do { try device.signOut() } catch {}
        #expect(crash.happened.withLock { $0 })
        device.stop()
        try device.start()
        try cloud.start(.identity)
        if step == "switch.clear" {
            #expect(device.session?.signedIn == false)
            #expect(!device.holdsTokens)
        } else {
            #expect(device.session?.signedIn == true)
            try device.store?.set(1, forKey: "k")
            #expect(cloud.settle(within: .seconds(60)))
        }
        #expect(device.secretNames == 1)
    }

    /// Between a process's switch and its clearing up another process of the home may have made a switch of its own.
    @Test func whatAnotherProcessHasJustSavedIsNotClearedAway() throws {
        let cloud = try TestCloud(seed: 8)
        defer { cloud.close() }
        for name in ["anna", "bert", "carl"] { try cloud.createAccount(name) }
        let meanwhile = Unshared(Meanwhile())
        let first = try cloud.addDevice(to: "anna", isShared: true, fault: { meanwhile.value.reach($0) })
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        var failure: (any Error)?
        meanwhile.value.body = { do { try second.signIn(as: "bert") } catch { failure = error } }
        try first.signIn(as: "carl")
        #expect(failure == nil && meanwhile.value.body == nil)
        #expect(second.session?.accountName == "bert")
        #expect(second.holdsTokens && second.secretNames == 1)
        cloud.network.run(for: .seconds(2))
        // The home is bert's, for both of them.
        #expect(first.session?.accountName == "bert")
        let bert = try cloud.addDevice(to: "bert")
        try second.store?.set("of second", forKey: "k")
        #expect(cloud.settle(within: .seconds(120)))
        #expect(bert.values == ["k": "of second"])
    }

    /// What happens once, at the step between the switch and the clearing up.
    private final class Meanwhile {
        var body: (() -> Void)?

        func reach(_ step: String) {
            guard step == "switch.clear", let body else { return }
            self.body = nil
            body()
        }
    }

    @Test func signOutIsRefusedWhileChangesWereNeverSentUnlessTheyAreKept() throws {
        let cloud = try TestCloud(seed: 7)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        try device.store?.set("unsent", forKey: "k")
        let refused = #expect(throws: CloudError.self) { try device.signOut() }
        #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "1")
        #expect(device.session?.signedIn == true)
        try device.signOut(keepsUnsent: true)
        #expect(device.session?.signedIn == false)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(60))
        #expect(other.values.isEmpty)
        try device.signIn(as: TestCloud.accountName)
        #expect(cloud.settle(within: .seconds(60)))
        #expect(other.values == ["k": "unsent"])
    }
}
