import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Whoever has a link gets what was published, and nothing else, for as long as the link is good.
@Suite struct LinkTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let log = LogLines()

    init() throws {
        house = try ContainerHouse(linksMax: 5, log: log)
        here = try house.device()
    }

    private func wait(_ duration: Duration = .seconds(5)) { house.cloud.network.run(for: duration) }

    @Test func aLinkGivesTheContentOfItsVersion() throws {
        let file = try here.makeFile("a b.txt", "first")
        let link = try here.publish(file)
        #expect(link.url.hasPrefix("http://cloud.test/p/") && link.info.length == 5)
        let answer = try house.get(link)
        #expect(answer.isFound && answer.body == Array("first".utf8))
        #expect(answer.name == Data("a b.txt".utf8) && answer.version == link.info.version)
        // What it was, and not what it has become.
        try here.apply([.replace(file, .inline("second", base: link.info.version))])
        #expect(try house.get(link).body == Array("first".utf8))
        let second = try here.publish(file)
        #expect(try house.get(second).body == Array("second".utf8))
        let old = try here.publish(file, version: link.info.version)
        #expect(try house.get(old).body == Array("first".utf8))
        #expect(try here.links().map(\.link) == [old, second, link].map(\.info.link).sorted(by: here.newestFirst))
    }

    /// What lies compressed is read as it is, and counts on the plan so.
    @Test func aCompressedContentIsReadAsItIs() throws {
        let bytes = TestContent(seed: 2, chunks: [100_000, 70_000], of: 48...57)
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "long.bin", bytes.content())])
        let link = try here.publish(file)
        let all = bytes.chunks.flatMap { $0 }
        #expect(try house.get(link).body == all)
        #expect(try house.read(link, 99_990..<100_010).content == Data(all[99_990..<100_010]))
        #expect(try here.fetch(bytes.ids[1]) == bytes.chunks[1])
    }

    @Test func aLongContentComesInPartsToo() throws {
        let bytes = TestContent(seed: 2, chunks: [100_000] + Array(repeating: 3000, count: 600))
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "long.bin", bytes.content())])
        let link = try here.publish(file)
        let all = bytes.chunks.flatMap { $0 }
        #expect(try house.get(link).body == all)
        let pieces: [Range<UInt64>] = [
            0..<1, 99_999..<100_001, 1_500_000..<1_900_000, 1_899_999..<1_900_000, 104_000..<107_001,
        ]
        for range in pieces {
            let part = try house.read(link, range)
            #expect(part.content == Data(all[Int(range.lowerBound)..<Int(range.upperBound)]), "\(range)")
            #expect(part.length == 1_900_000)
        }
        #expect(try house.read(link, 1_900_000..<1_900_001).content.isEmpty)
        #expect(try house.read(link, 1_899_999..<UInt64.max).content == Data(all.suffix(1)))
        #expect(try house.read(link, UInt64.max..<UInt64.max).content.isEmpty)
        #expect(try house.read(link, 0..<UInt64.max).content == Data(all))
    }

    /// However much is asked for.
    @Test func aPieceIsBounded() throws {
        let bytes = TestContent(seed: 2, chunks: Array(repeating: 100_000, count: 30))
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "long.bin", bytes.content())])
        let link = try here.publish(file)
        #expect(try house.read(link, 0..<UInt64.max).content.count == 2 << 20)
        #expect(try house.get(link).body == bytes.chunks.flatMap { $0 })
    }

    /// The file may be gone for good: the link's content is there, and counts, until the link ends.
    @Test func whatBecomesOfTheFileDoesNotConcernItsLink() throws {
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let file = ContainerDevice.makeID()
        let upload = try here.put(bytes, as: [.create(file, "a", bytes.content())])
        try here.closeUpload(upload)
        let link = try here.publish(file)
        let used = try house.used()
        try here.apply([.trash(file), .remove(file)])
        wait(.seconds(70))
        #expect(try here.list().isEmpty)
        #expect(try house.counts() == Counts(chunks: 2, uses: 3, nodes: 1))
        #expect(try house.used() == used)
        #expect(try house.get(link).body == bytes.chunks.flatMap { $0 })
        #expect(try here.revoke(link))
        #expect(try !here.revoke(link))
        #expect(try house.get(link).isGone)
        wait()
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        #expect(try house.used() == 0)
    }

    @Test func anInlineContentCountsForItsLinkToo() throws {
        let file = try here.makeFile("a", "12345")
        let link = try here.publish(file)
        #expect(try house.used() == 10)
        try here.apply([.trash(file), .remove(file)])
        wait()
        #expect(try house.used() == 5)
        #expect(try house.get(link).body == Array("12345".utf8))
        try here.revoke(link)
        #expect(try house.used() == 0)
    }

    @Test func aLinkExpiresAndIsRemoved() throws {
        let link = try here.publish(here.makeFile("a"), seconds: 100)
        wait(.seconds(90))
        #expect(try house.get(link).isFound)
        wait(.seconds(15))
        #expect(try house.get(link).isGone)
        #expect(try here.links().isEmpty)
        wait(.seconds(330))
        #expect(try house.linkRows() == 0)
        #expect(try house.used() == 4)
    }

    /// What there never was, what has expired, and what was revoked are one answer.
    @Test func whatEndedIsAnsweredAsWhatNeverWas() throws {
        let file = try here.makeFile("a")
        let (expired, revoked) = (try here.publish(file, seconds: 1), try here.publish(file))
        try here.revoke(revoked)
        wait(.seconds(2))
        let never = try house.get(secret: LinkSecret.random().text)
        #expect(never.isGone)
        for link in [expired, revoked] { #expect(try house.get(link) == never) }
        for secret in ["", "a", "/", "\0", String(repeating: "a", count: 5000)] {
            #expect(try house.get(secret: secret) == never, "\(secret)")
        }
    }

    @Test func aRepeatIsTheSameLinkAndNobodyTakesAnothers() throws {
        let file = try here.makeFile("a")
        let link = try here.publish(file)
        let again = try here.publish(file, as: link)
        #expect(again.info == link.info)
        #expect(try here.links().count == 1)
        var other = link
        other.secret = .random()
        expect(.alreadyExists) { try here.publish(file, as: other) }
        other = link
        other.id = ContainerDevice.makeID()
        expect(.alreadyExists) { try here.publish(file, as: other) }
        #expect(try house.get(link).isFound)
    }

    @Test func linksAreBounded() throws {
        let file = try here.makeFile("a")
        for _ in 0..<5 { try here.publish(file) }
        expect(.limitExceeded) { try here.publish(file) }
        try here.revoke(Link(id: try #require(DocumentID(bytes: try here.links()[0].link))))
        try here.publish(file)
        expect(.limitExceeded) { try here.publish(file, seconds: 30 * 86_400 + 1) }
        expect(.limitExceeded) { try here.publish(file, seconds: .max) }
    }

    @Test func onlyFilesOfTheOwnContainersArePublished() throws {
        let folder = try here.makeFolder("folder")
        expect(.invalidArguments) { try here.publish(folder) }
        expect(.unknownItem) { try here.publish(ContainerDevice.makeID()) }
        let file = try here.makeFile("a")
        expect(.unknownItem) { try here.publish(file, version: Data(ContainerDevice.makeID().bytes)) }
        let link = try here.publish(file)
        try here.apply([.trash(file)])
        expect(.unknownItem) { try here.publish(file) }
        let other = try house.device(app: "T.other")
        other.container = ContainerHouse.container
        expect(.missingEntitlement) { try other.publish(file) }
        expect(.missingEntitlement) { _ = try other.links() }
        expect(.missingEntitlement) { try other.revoke(link) }
        // Not by a container of its own either.
        other.container = "T.shared"
        #expect(try !other.revoke(link))
        #expect(try house.get(link).isFound)
    }

    @Test func aDeploymentThatPublishesNothingSaysWhoCanChangeThat() throws {
        let house = try ContainerHouse()
        let here = try house.device()
        let file = try here.makeFile("a")
        do {
            try here.publish(file)
            Issue.record("It was published.")
        } catch let error as CloudError {
            #expect(error.code == .permissionFailure && error.details["key"] == "NEPHOS_WEB_PORT")
            #expect(error.message.contains("operator"))
        }
        expect(.permissionFailure) { _ = try house.read(secret: LinkSecret.random().text, 0..<0) }
    }

    @Test(arguments: [false, true]) func linksOfAnAccountThatIsLockedOrClosedEnd(isClosed: Bool) throws {
        let link = try here.publish(here.makeFile("a"))
        #expect(try house.get(link).isFound)
        if isClosed { try house.closeAccount() } else { try house.setLocked(true) }
        // As soon as documents has heard of it.
        wait(.seconds(1))
        #expect(try house.get(link).isGone)
        wait(.seconds(5))
        #expect(try house.linkRows() == 0)
        if !isClosed {
            try house.setLocked(false)
            wait(.seconds(5))
            #expect(try house.get(link).isGone)
        }
    }

    @Test func linksOfAnAppThatIsRemovedEnd() throws {
        let link = try here.publish(here.makeFile("a"))
        try house.removeApp()
        wait(.seconds(1))
        #expect(try house.get(link).isGone)
        wait(.seconds(5))
        #expect(try house.linkRows() == 0)
    }

    @Test func aLinkSurvivesTheServicesRestart() throws {
        let link = try here.publish(here.makeFile("a"))
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        wait(.seconds(1))
        #expect(try house.get(link).isFound)
    }

    /// What is on its way ends with its link: when that is revoked, and when it expires, before its row is removed.
    @Test(arguments: ["revoked", "expired"]) func whatIsBeingFetchedEndsWithItsLink(_ ending: String) throws {
        let bytes = TestContent(seed: 1, chunks: [50_000, 50_000, 50_000])
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "a", bytes.content())])
        let link = try here.publish(file, seconds: 3600)
        #expect(try house.read(link, 0..<50_000).content == Data(bytes.chunks[0]))
        if ending == "revoked" {
            try here.revoke(link)
        } else {
            house.cloud.setClockOffset(of: .documents, .seconds(3601))
            #expect(try house.linkRows() == 1)
        }
        expect(.unknownItem) { _ = try house.read(link, 50_000..<100_000) }
    }

    @Test func noSecretIsLogged() throws {
        let file = try here.makeFile("name-of-the-file.txt")
        let link = try here.publish(file)
        _ = try house.get(link)
        _ = try house.get(secret: LinkSecret.random().text)
        try here.revoke(link)
        _ = try house.get(link)
        #expect(!log.contains(link.secret.text) && !log.contains("name-of-the-file"))
        // It hears what is said.
        #expect(log.contains("documents"))
    }
}

/// A link as its device has it.
struct Link {
    var id = ContainerDevice.makeID()
    var secret = LinkSecret.random()
    var info = WirePublishedLink()
    var url = ""
}

extension ContainerDevice {
    @discardableResult
    func publish(
        _ item: DocumentID, version: Data = Data(), seconds: UInt64 = 0, as link: Link = Link()
    ) throws -> Link {
        var request = WirePublishItem()
        request.container = container
        request.link = Data(link.id.bytes)
        request.secretHash = Data(link.secret.hash)
        request.item = Data(item.bytes)
        request.version = version
        request.lifetimeSeconds = seconds
        let reply = try call("PublishItem", request, as: WirePublishItemReply.self)
        var made = link
        made.info = reply.link
        made.url = reply.urlPrefix + link.secret.text
        return made
    }

    func links() throws -> [WirePublishedLink] {
        var request = WireListLinks()
        request.container = container
        return try call("ListLinks", request, as: WireListLinksReply.self).links
    }

    /// As links are listed that were made in one millisecond.
    func newestFirst(_ left: Data, _ right: Data) -> Bool {
        let links = (try? links()) ?? []
        return links.firstIndex { $0.link == left } ?? 0 < links.firstIndex { $0.link == right } ?? 0
    }

    @discardableResult
    func revoke(_ link: Link) throws -> Bool {
        var request = WireRevokeLink()
        request.container = container
        request.link = Data(link.id.bytes)
        return try call("RevokeLink", request, as: WireRevokeLinkReply.self).wasThere
    }
}

extension ContainerHouse {
    /// The answer to a client without an account.
    struct Answer: Equatable {
        var error: CloudError?
        var version = Data()
        var name = Data()
        var body: [UInt8] = []

        var isFound: Bool { error == nil }
        var isGone: Bool { error?.code == .unknownItem }
    }

    private static let selectLinks = SQL("SELECT COUNT(*) FROM document_links")

    func linkRows() throws -> Int {
        try cloud.storage(of: .documents).write { try $0.first(Self.selectLinks) { Int($0.integer(0)) } ?? 0 }
    }

    /// Begins to read as `nephos-web` does, without an account.
    func begin(
        _ secret: String, _ range: Range<UInt64>, by reader: TestClient
    ) throws -> TestClient.Answer {
        var request = WireReadLink()
        (request.secret, request.offset, request.length) = (
            secret, range.lowerBound, range.upperBound - range.lowerBound
        )
        return try reader.begin("ReadLink", request, at: .requests(.documents))
    }

    func read(secret: String, _ range: Range<UInt64>) throws -> WireReadLinkReply {
        let reader = try cloud.makeClient()
        let pending = try begin(secret, range, by: reader)
        _ = cloud.network.run(within: .seconds(60)) { pending.result != nil }
        return try withExtendedLifetime(reader) {
            try #require(pending.result).get().decode(WireReadLinkReply.self)
        }
    }

    func read(_ link: Link, _ range: Range<UInt64>) throws -> WireReadLinkReply {
        try read(secret: link.secret.text, range)
    }

    /// Reads the whole content, piece by piece.
    func get(secret: String) throws -> Answer {
        do {
            let about = try read(secret: secret, 0..<0)
            var answer = Answer(version: about.version, name: about.name)
            while answer.body.count < Int(about.length) {
                let piece = try read(secret: secret, UInt64(answer.body.count)..<about.length)
                try #require(!piece.content.isEmpty)
                answer.body += piece.content
            }
            return answer
        } catch let error as CloudError { return Answer(error: error) }
    }

    func get(_ link: Link) throws -> Answer { try get(secret: link.secret.text) }

    func setLocked(_ isLocked: Bool) throws {
        var request = WireLockAccount()
        request.accountName = TestCloud.accountName
        request.locked = isLocked
        try cloud.operate("LockAccount", request, as: WireLockAccountReply.self)
    }

    func closeAccount() throws {
        var request = WireCloseAccount()
        request.accountName = TestCloud.accountName
        try cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
    }

    func removeApp() throws {
        var request = WireRemoveApp()
        request.appID = Self.app
        try cloud.operate("RemoveApp", request, as: WireRemoveAppReply.self)
    }
}
