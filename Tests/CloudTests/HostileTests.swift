import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosRecords
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Thousands of malformed, forged and stolen requests from a seeded generator:
/// none is accepted, none stops a service, and who belongs there is served meanwhile.
///
/// `NEPHOS_HOSTILE_REQUESTS=N` sets how many, `NEPHOS_SEED=S` the seed.
@Suite struct HostileTests {
    @Test func noneOfThousandsOfHostileRequestsIsAccepted() throws {
        let environment = ProcessInfo.processInfo.environment
        let count = Int(environment["NEPHOS_HOSTILE_REQUESTS"] ?? "") ?? 10_000
        let siege = try Siege(seed: UInt64(environment["NEPHOS_SEED"] ?? "") ?? 1)
        defer { siege.close() }
        try siege.run(count)
        for finding in siege.findings.prefix(10) { Issue.record("\(finding)") }
        #expect(siege.findings.isEmpty)
        // Each kind of attack was tried, and each was answered in its own way.
        #expect(siege.tried.count == Siege.Attack.allCases.count && siege.tried.values.allSatisfy { $0 > count / 50 })
        #expect(siege.refusals.keys.count > 10, "\(siege.refusals)")
        #expect(siege.served == count / 100)
    }
}

private final class Siege {
    enum Attack: CaseIterable {
        case noise, mutilated, unknownMethod, foreignBody, badToken, badDigest, guessedPassword, oddSignIn, badRefresh
        case notTheOperator, notAService, strangeTime, beyondOwnAccount, otherApp, oversized
        case forgedTransfer, othersContainer
    }

    private static let marker = "only-ann-may-read-this"
    private static let doors: [TestClient.Door] =
        ServiceName.all.map { .requests($0) } + [.subscriptions, .bulk(.documents)]

    private(set) var findings: [String] = []
    private(set) var tried: [Attack: Int] = [:]
    private(set) var refusals: [CloudError.Code: Int] = [:]
    private(set) var served = 0

    private let cloud: TestCloud
    private var generator: SplitMix64
    /// Nobody: a key that was never enrolled.
    private var stranger: RawClient
    /// Enrolled, with an account of its own, and hostile.
    private let mallory: RawClient
    private let malloryToken: String
    private let malloryRefresh: String
    private let annToken: String
    private let annRefresh: String
    private let annDevice: String
    /// At documents and records.
    private let anns: Belongings
    private let malloryTicket: BulkTicket
    private let folder: String

    init(seed: UInt64) throws {
        generator = SplitMix64(seed: seed)
        var budgets = BudgetConfiguration()
        // Each attack is to be answered in its own way.
        budgets.stranger.capacity = 0
        folder = NSTemporaryDirectory() + "hostile-tests-\(UUID().uuidString)"
        for service in ["documents", "records"] {
            try FileManager.default.createDirectory(
                atPath: folder + "/" + service, withIntermediateDirectories: true)
        }
        let cloud = try TestCloud(
            seed: seed, budgets: budgets,
            contentServices: [
                .records: .init(store: try SegmentStore(folder: folder + "/records", segmentBytesMax: 1 << 20)) {
                    RecordsService($0)
                }
            ],
            content: ContentOptions(store: try SegmentStore(folder: folder + "/documents", segmentBytesMax: 1 << 20)))
        self.cloud = cloud
        try cloud.createAccount("mallory")
        for (id, container) in [("T.other", "T.elsewhere"), (Belongings.app, Belongings.container)] {
            var app = WireApp()
            app.appID = id
            app.containerIds = [container]
            try cloud.createApp(app)
        }
        try cloud.addDevice()
        try cloud.devices[0].store?.set(.string(Self.marker), forKey: "diary")
        cloud.network.run(for: .seconds(2))

        func signIn(_ account: String, app: String = "") throws -> (TestClient, WireSignInReply) {
            let client = try cloud.makeClient()
            var request = WireSignIn()
            request.accountName = account
            request.password = TestCloud.password
            request.deviceName = account
            request.appID = app
            return (client, try client.call("SignIn", request, at: .requests(.identity)))
        }
        anns = try Belongings(in: cloud, text: Self.marker)
        let ann = try signIn(TestCloud.accountName).1
        annToken = ann.accessToken.token
        annRefresh = ann.refreshToken
        annDevice = ann.device.deviceID
        let (client, own) = try signIn("mallory", app: Belongings.app)
        mallory = try cloud.makeRawClient(client.keys)
        malloryToken = own.accessToken.token
        let opened: WireOpenTransferReply = try client.call(
            "OpenTransfer", WireOpenTransfer(), at: .requests(.documents), accessToken: malloryToken)
        malloryTicket = try #require([UInt8](opened.ticket).withUnsafeBytes { BulkTicket(bytes: $0) })
        malloryRefresh = own.refreshToken
        stranger = try cloud.makeRawClient()
    }

    func close() {
        cloud.close()
        try? FileManager.default.removeItem(atPath: folder)
    }

    func run(_ count: Int) throws {
        for number in 1...count {
            guard let attack = Attack.allCases.randomElement(using: &generator) else { return }
            tried[attack, default: 0] += 1
            // Now and then under a fresh key.
            if number % 50 == 0 { stranger = try cloud.makeRawClient() }
            try strike(attack)
            cloud.network.run(for: .milliseconds(8))
            review(attack)
            if number % 100 == 0 { try serve(number) }
        }
        checkThatNothingChanged()
    }

    /// Whoever belongs here is served within a second.
    private func serve(_ number: Int) throws {
        let device = cloud.devices[0]
        try device.store?.set(.integer(Int64(number)), forKey: "counter")
        guard cloud.network.run(within: .seconds(1), until: { device.isSettled }) else {
            findings.append("after \(number) requests a device was not served")
            return
        }
        let faults = try anns.faults()
        findings += faults.map { "after \(number) requests: \($0)" }
        if faults.isEmpty { served += 1 }
    }

    private func checkThatNothingChanged() {
        let device = cloud.devices[0]
        cloud.network.run(for: .seconds(30))
        if device.values["diary"] != .string(Self.marker) || device.values.count != 2 {
            findings.append("content has changed: \(device.values.keys.sorted())")
        }
        for service in ServiceName.all {
            var health: WireCheckHealthReply?
            do {
                health = try cloud.makeClient().call("CheckHealth", WireCheckHealth(), at: .requests(service))
            } catch { findings.append("\(service) does not answer: \(error)") }
            if health?.counters["failures.internalError"] != nil { findings.append("\(service) had internal errors") }
        }
    }

    // MARK: What comes back

    /// Whether nothing was granted: the service that would say so is not there.
    private func isOpen(_ body: Frame) -> Bool {
        guard let heads = try? body.decode(WireSubscribeReply.self).heads, !heads.isEmpty else { return false }
        return heads.allSatisfy { $0.unknown && $0.token == WireChangeToken(.zero) && $0.digest.isEmpty }
    }

    private func review(_ attack: Attack) {
        for client in [stranger, mallory] {
            for reply in client.replies {
                switch reply.result {
                case .failure(let error):
                    refusals[error.code, default: 0] += 1
                    if error.code == .internalError { findings.append("\(attack): \(error)") }
                case .success(let body):
                    // Without an id it is a greeting.
                    if reply.id != nil, !isOpen(body) { findings.append("\(attack) was accepted") }
                    if body.bytes.contains(Array(Self.marker.utf8)) { findings.append("\(attack) read the diary") }
                }
            }
            for frame in client.frames {
                switch try? frame.kind(contentBytesMax: BulkLimits.chunkBytesMax) {
                case .refused:
                    refusals[frame.failure.code, default: 0] += 1
                    if frame.failure.code == .internalError { findings.append("\(attack): \(frame.failure)") }
                case let kind: findings.append("\(attack) was answered with \(kind.map { "\($0)" } ?? "noise")")
                }
            }
            client.clear()
        }
    }

    // MARK: What is sent

    private func strike(_ attack: Attack) throws {
        switch attack {
        case .noise:
            let frames = (0..<Int.random(in: 0...3, using: &generator)).map { _ in Frame(bytes(0...300)) }
            try stranger.send(frames.isEmpty ? [Frame([])] : frames, to: door())
        case .mutilated:
            // Stolen from the wire, if that were possible, and changed on the way.
            var raw = request("ReadChanges", pull(), token: annToken).encoded()[0].bytes
            for _ in 0...Int.random(in: 0...8, using: &generator) {
                guard !raw.isEmpty else { break }
                let place = Int.random(in: raw.indices, using: &generator)
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: raw[place] = .random(in: 0...255, using: &generator)
                case 1: raw.removeSubrange(place...)
                case 2: raw.insert(contentsOf: bytes(1...20), at: place)
                default: raw[place] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
                }
            }
            try stranger.send([Frame(raw)], to: door())
        case .unknownMethod:
            try send(stranger, text(0...200), WireWhoAmI(), token: annToken)
        case .foreignBody:
            // Any method with any bytes for a body.
            var envelope = request(methods.randomElement(using: &generator) ?? "", pull(), token: badToken())
            envelope.body = Frame(bytes(0...400))
            try stranger.send(envelope.encoded(), to: door())
        case .badToken:
            try send(stranger, "ReadChanges", pull(), token: badToken(), to: .requests(.keyValue))
        case .badDigest:
            // Of a token that others' connections have carried.
            var envelope = request("ReadChanges", pull(), token: "")
            envelope.accessTokenDigest = TokenDigest(
                of: [annToken, malloryToken, badToken()].randomElement(using: &generator) ?? "")
            try stranger.send(envelope.encoded(), to: .requests(.keyValue))
        case .guessedPassword:
            try send(stranger, "SignIn", signIn(TestCloud.accountName, text(0...40)), to: .requests(.identity))
        case .oddSignIn:
            let names = [
                "", "demo' OR 1=1 --", "demo\0", "DEMO ", "dem\u{200B}o", "../demo", text(0...500), "démo",
                "demo@demo@demo",
            ]
            let name = names.randomElement(using: &generator) ?? ""
            let password = Bool.random(using: &generator) ? TestCloud.password : text(0...3000)
            try send(stranger, "SignIn", signIn(name, password), to: .requests(.identity))
        case .badRefresh:
            var refresh = WireRefreshToken()
            // Another device's, whole or changed; never one's own.
            refresh.refreshToken =
                [annRefresh, malloryRefresh, changed(annRefresh), text(0...100), ""]
                .randomElement(using: &generator) ?? ""
            try send(stranger, "RefreshToken", refresh, to: .requests(.identity))
        case .notTheOperator:
            var account = WireCreateAccount()
            account.accountName = "intruder"
            account.password = TestCloud.password
            var lock = WireLockAccount()
            lock.accountName = TestCloud.accountName
            lock.locked = true
            var close = WireCloseAccount()
            close.accountName = TestCloud.accountName
            close.password = text(8...20)
            let client = Bool.random(using: &generator) ? stranger : mallory
            switch Int.random(in: 0..<5, using: &generator) {
            case 0: try send(client, "CreateAccount", account, token: malloryToken, to: .requests(.identity))
            case 1: try send(client, "LockAccount", lock, token: malloryToken, to: .requests(.identity))
            case 2: try send(client, "CloseAccount", close, token: malloryToken, to: .requests(.identity))
            case 3: try send(client, "ListAccounts", WireListAccounts(), to: .requests(.identity))
            default: try send(client, "RotateSigningKey", WireRotateSigningKey(), to: .requests(.identity))
            }
        case .notAService:
            var settle = WireSettleAllotment()
            settle.ownerID = "acct_x"
            settle.wantedBytes = .max
            var events = WireReadChanges()
            events.partition = .random(in: 0...100, using: &generator)
            switch Int.random(in: 0..<3, using: &generator) {
            case 0: try send(mallory, "SettleAllotment", settle, token: malloryToken, to: .requests(.identity))
            case 1:
                try send(mallory, "ReportClosure", WireReportClosure(), token: malloryToken, to: .requests(.identity))
            default: try send(mallory, "ReadChanges", events, token: malloryToken)
            }
        case .strangeTime:
            // A write whose id is of another age.
            var push = WirePushKeys()
            push.storeID = Belongings.app
            let time = Bool.random(using: &generator) ? Timestamp(milliseconds: 0) : Timestamp(milliseconds: 1 << 47)
            let envelope = RequestEnvelope(
                method: "PushKeys", id: OperationID(at: time, using: &generator), accessToken: malloryToken,
                body: Frame(encoding: push))
            try mallory.send(envelope.encoded(), to: .requests(.keyValue))
        case .beyondOwnAccount:
            var revoke = WireRevokeDevice()
            revoke.deviceID = annDevice
            var rename = WireRenameDevice()
            rename.deviceID = annDevice
            rename.name = "mine"
            var audit = WireListAudit()
            audit.accountName = TestCloud.accountName
            var read = WireReadStorage()
            read.accountName = TestCloud.accountName
            switch Int.random(in: 0..<4, using: &generator) {
            case 0: try send(mallory, "RevokeDevice", revoke, token: malloryToken, to: .requests(.identity))
            case 1: try send(mallory, "RenameDevice", rename, token: malloryToken, to: .requests(.identity))
            case 2: try send(mallory, "ListAudit", audit, token: malloryToken, to: .requests(.identity))
            default: try send(mallory, "ReadStorage", read, token: malloryToken, to: .requests(.identity))
            }
        case .otherApp:
            var pull = pull()
            pull.scope =
                ["T.other", "T.*", "*", "", "../default", text(1...50)].randomElement(using: &generator) ?? ""
            var scope = WireSubscribedScope()
            scope.service = ["keyvalue", "documents", "records", "identity", ""].randomElement(using: &generator) ?? ""
            scope.scope = ["T.other", "directory", "*", text(1...50)].randomElement(using: &generator) ?? ""
            var subscribe = WireSubscribe()
            subscribe.scopes = [scope]
            if Bool.random(using: &generator) {
                try send(mallory, "ReadChanges", pull, token: malloryToken, to: .requests(.keyValue))
            } else {
                try send(mallory, "Subscribe", subscribe, token: malloryToken, to: .subscriptions)
            }
        case .oversized:
            var envelope = request("SignIn", signIn(text(1...20), ""), token: "")
            envelope.body = Frame([UInt8](repeating: 0x41, count: Int.random(in: 65_537...300_000, using: &generator)))
            if Bool.random(using: &generator) { envelope.accessToken = String(repeating: "a", count: 100_000) }
            try stranger.send(envelope.encoded(), to: door())
        case .forgedTransfer:
            // A ticket that was seen on the wire, or guessed; and with one's own: what is another's, or is not what it
            // is said to be.
            let client = Bool.random(using: &generator) ? stranger : mallory
            let ticket = Bool.random(using: &generator) ? anns.ticket : BulkTicket(using: &generator)
            let frame =
                switch Int.random(in: 0..<6, using: &generator) {
                case 0: BulkFrame.control(.get, ticket, number: 1, chunk: anns.chunk)
                case 1: BulkFrame.control(.get, malloryTicket, number: 1, chunk: anns.chunk)
                case 2: Belongings.frame(ticket, bytes(1...300), as: anns.chunk)
                case 3: Belongings.frame(malloryTicket, bytes(1...300), as: anns.chunk)
                case 4: BulkFrame.control(.credit, ticket, number: generator.next())
                default: BulkFrame.control(.stored, ticket, number: 1, chunk: anns.chunk)
                }
            guard Bool.random(using: &generator) else {
                try client.send([frame], to: .bulk(.documents))
                break
            }
            var raw = frame.bytes
            raw[Int.random(in: raw.indices, using: &generator)] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
            if Bool.random(using: &generator) { raw.removeLast(Int.random(in: 0...raw.count, using: &generator)) }
            try client.send([Frame(raw)], to: .bulk(.documents))
        case .othersContainer:
            // Another account's, as its owner; and another app's.
            let foreign = ["T.elsewhere", "T.other", "*", "", text(1...50)].randomElement(using: &generator) ?? ""
            let service = Bool.random(using: &generator) ? ServiceName.documents : .records
            var read = WireReadChanges()
            read.scope =
                service == .records ? "\(Belongings.container)/\(RecordLimits.defaultZone)" : Belongings.container
            read.owner = Owner(anns.account).rawValue
            var fetch = WireFetchRecords()
            fetch.container = foreign
            fetch.zoneID = RecordLimits.defaultZone
            fetch.records = ["mine"]
            var query = WireQueryRecords()
            query.container = foreign
            query.zoneID = RecordLimits.defaultZone
            query.type = "Note"
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: try send(mallory, "ReadChanges", read, token: malloryToken, to: .requests(service))
            case 1:
                (read.scope, read.owner) = (foreign, "")
                try send(mallory, "ReadChanges", read, token: malloryToken, to: .requests(service))
            case 2: try send(mallory, "FetchRecords", fetch, token: malloryToken, to: .requests(.records))
            case 3: try send(mallory, "QueryRecords", query, token: malloryToken, to: .requests(.records))
            case 4:
                let save = Belongings.save("mine", in: foreign, text: text(0...20))
                try send(mallory, "ModifyRecords", save, token: malloryToken, to: .requests(.records))
            default:
                let change = Belongings.change("mine", in: foreign, text: text(0...20))
                try send(mallory, "ApplyChanges", change, token: malloryToken, to: .requests(.documents))
            }
        }
    }

    private var methods: [String] {
        [
            "PushKeys", "ReadChanges", "ListKeyHistory", "WhoAmI", "ListDevices", "RefreshToken", "SignIn", "Subscribe",
            "ApplyChanges", "FindMissing", "ReadNodes", "ListVersions", "OpenTransfer", "ModifyZones", "ModifyRecords",
            "FetchRecords", "QueryRecords", "ListRecordHistory",
        ]
    }

    private func door() -> TestClient.Door { Self.doors.randomElement(using: &generator) ?? .subscriptions }

    private func send(
        _ client: RawClient, _ method: String, _ body: some SwiftProtobuf.Message, token: String = "",
        to door: TestClient.Door? = nil
    ) throws {
        try client.send(request(method, body, token: token).encoded(), to: door ?? self.door())
    }

    private func request(_ method: String, _ body: some SwiftProtobuf.Message, token: String) -> RequestEnvelope {
        RequestEnvelope(
            method: method,
            id: OperationID(at: SimulatedNetwork.epoch.advanced(by: cloud.network.now), using: &generator),
            accessToken: token, body: Frame(encoding: body))
    }

    private func pull() -> WireReadChanges {
        var pull = WireReadChanges()
        pull.scope = "default"
        return pull
    }

    private func signIn(_ name: String, _ password: String) -> WireSignIn {
        var request = WireSignIn()
        request.accountName = name
        request.password = password
        request.deviceName = text(0...30)
        return request
    }

    /// Whatever may be tried as a token: another's, a changed one, one that signs itself.
    private func badToken() -> String {
        let parts = malloryToken.split(separator: ".").map(String.init)
        let ann = annToken.split(separator: ".").map(String.init)
        func encoded(_ text: String) -> String {
            Data(text.utf8).base64EncodedString().replacing("=", with: "").replacing("+", with: "-").replacing(
                "/", with: "_")
        }
        return [
            "", annToken, malloryToken, changed(annToken), "\(parts[0]).\(ann[1]).\(parts[2])",
            encoded(#"{"alg":"none","kid":"x"}"#) + ".\(ann[1]).",
            "\(encoded(#"{"alg":"HS256","kid":"x"}"#)).\(ann[1]).\(ann[2])",
            "\(ann[0]).\(ann[1]).", ".\(ann[1]).\(ann[2])", annToken + annToken, text(0...500), "...", annToken + "\0",
        ].randomElement(using: &generator) ?? ""
    }

    private func changed(_ text: String) -> String {
        var characters = Array(text)
        guard !characters.isEmpty else { return "x" }
        // Not the last one: its lowest bits may mean nothing.
        let place = Int.random(in: 0..<characters.count - 1, using: &generator)
        characters[place] = characters[place] == "A" ? "B" : "A"
        return String(characters)
    }

    private func bytes(_ count: ClosedRange<Int>) -> [UInt8] {
        (0..<Int.random(in: count, using: &generator)).map { _ in .random(in: 0...255, using: &generator) }
    }

    private func text(_ count: ClosedRange<Int>) -> String { String(decoding: bytes(count), as: UTF8.self) }
}
