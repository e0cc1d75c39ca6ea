import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

@Suite struct ReadyTests {
    @Test func aStoreIsReadyOnceItWasDownloadedAndFromThenOnAlsoOffline() async throws {
        try await withSessionCloud { house in
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            try await house.wait { try await store.ready() }
            #expect(try store.read("a") == .absent)
            house.cloud.network.setOffline("device-0", true)
            house.run(for: .seconds(60))
            try await house.wait { try await store.ready(timeout: .zero) }
        }
    }

    @Test func whoIsNotSignedInHasNothingToWaitFor() async throws {
        try await withSessionCloud { house in
            let session = try await house.open()
            let store = try session.keyValueStore(app: AppID("app.one"))
            let before = house.cloud.network.now
            let error = await #expect(throws: CloudError.self) { try await house.wait { try await store.ready() } }
            #expect(error?.code == .notSignedIn)
            #expect(house.cloud.network.now - before < .seconds(5))
        }
    }

    @Test func aStoreThatDoesNotComeIsGivenUpInTimeAndComesLater() async throws {
        try await withSessionCloud { house in
            house.cloud.crash(.keyValue)
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            let before = house.cloud.network.now
            let error = await #expect(throws: CloudError.self) {
                try await house.wait { try await store.ready(timeout: .seconds(20)) }
            }
            #expect(error?.code == .deadlineExceeded && error?.details["reason"] != nil)
            #expect(house.cloud.network.now - before >= .seconds(20))
            #expect(house.cloud.network.now - before < .seconds(25))
            try house.cloud.start(.keyValue)
            try await house.wait { try await store.ready() }
            // Longer than any clock can tell.
            try await house.wait { try await store.ready(timeout: .seconds(Int64.max)) }
            #expect(try store.read("a") == .absent)
        }
    }

    @Test func whoeverIsCancelledWaitsNoMore() async throws {
        try await withSessionCloud { house in
            house.cloud.crash(.keyValue)
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            let waiting = Task { try await store.ready(timeout: .seconds(300)) }
            try await house.letBegin()
            waiting.cancel()
            let before = house.cloud.network.now
            let error = await #expect(throws: CloudError.self) { try await house.wait { try await waiting.value } }
            #expect(error?.code == .operationCancelled)
            #expect(house.cloud.network.now - before < .seconds(60))
            // And one that was cancelled before it began.
            let late = Task {
                while !Task.isCancelled { await Task.yield() }
                try await store.ready(timeout: .seconds(300))
            }
            late.cancel()
            let lateError = await #expect(throws: CloudError.self) { try await house.wait { try await late.value } }
            #expect(lateError?.code == .operationCancelled)
        }
    }

    @Test func aDeviceThatWasRevokedIsTold() async throws {
        try await withSessionCloud { house in
            house.cloud.crash(.keyValue)
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            let waiting = Task { try await store.ready(timeout: .seconds(300)) }
            try await house.letBegin()
            var revoke = WireRevokeDevice()
            revoke.accountName = TestCloud.accountName
            revoke.deviceID = try #require(try session.account?.deviceID.rawValue)
            try house.cloud.operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
            let before = house.cloud.network.now
            let error = await #expect(throws: CloudError.self) { try await house.wait { try await waiting.value } }
            #expect(error?.code == .deviceRevoked)
            #expect(house.cloud.network.now - before < .seconds(120))
        }
    }

    @Test func whoeverWaitsIsToldWhenSomebodySignsOut() async throws {
        try await withSessionCloud { house in
            house.cloud.crash(.keyValue)
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            let waiting = Task { try await store.ready(timeout: .seconds(300)) }
            try await house.letBegin()
            try await house.wait { try await session.signOut() }
            let error = await #expect(throws: CloudError.self) { try await house.wait { try await waiting.value } }
            #expect(error?.code == .notSignedIn)
        }
    }

    @Test func aSignOutEndsTheWaitingAlsoWhenNothingElseHappens() throws {
        let device = try Device()
        device.cloud.overrides["ReadChanges"] = { _ in .failure(CloudError(.serviceBusy, "Later.")) }
        try device.signIn()
        device.network.run(for: .seconds(5))
        var result: Result<Void, CloudError>?
        device.store.driver.wait(for: .downloaded, timeout: .seconds(300)) { result = $0 }
        device.network.run(for: .seconds(5))
        #expect(result == nil)
        device.engine.signOut { _ in }
        device.network.run(for: .seconds(5))
        #expect(throws: CloudError(.notSignedIn, "This home has no account signed in. Sign in.")) {
            try #require(result).get()
        }
    }
}

@Suite struct ConnectionTextTests {
    @Test func aTextThatIsNoConnectionStringIsRefusedBeforeAnythingIsAsked() async throws {
        try await withSessionCloud { house in
            let session = try await house.open()
            let good = try house.cloud.connection.description
            let texts = [
                "", "nephos://", "https://example.org", "nephos://host:70000/x", good + "x", "\u{0}",
                "nephos://h:1",
            ]
            for text in texts {
                let error = await #expect(throws: CloudError.self) {
                    try await session.signIn(connection: text, account: "demo", password: "x")
                }
                #expect(error?.code == .invalidArguments)
            }
            #expect(try session.account == nil)
        }
    }

    @Test func aDeviceSignsInByATextAndIsCalledAsItsHost() async throws {
        try await withSessionCloud { house in
            let session = try await house.open()
            let text = "  " + (try house.cloud.connection.description) + "\n"
            let record = try await house.wait {
                try await session.signIn(
                    connection: text, account: TestCloud.accountName, password: TestCloud.password)
            }
            #expect(record.deviceName == ProcessInfo.processInfo.hostName)
            let named = try await house.wait {
                try await session.signIn(
                    connection: text, account: TestCloud.accountName, password: TestCloud.password, deviceName: "mine")
            }
            #expect(named.deviceName == "mine")
            let wrong = await #expect(throws: CloudError.self) {
                try await house.wait {
                    try await session.signIn(connection: text, account: TestCloud.accountName, password: "wrong")
                }
            }
            #expect(wrong?.code == .wrongCredentials)
        }
    }
}
