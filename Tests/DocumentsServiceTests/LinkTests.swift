import Foundation
import NephosBus
import NephosCore
import NephosHTTP
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
        #expect(answer.status == 200 && answer.body == Array("first".utf8))
        #expect(answer.header("Content-Type") == "text/plain; charset=utf-8")
        #expect(
            answer.header("Content-Disposition") == "inline; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt")
        #expect(answer.header("ETag") == "\"\(try #require(DocumentID(bytes: link.info.version)))\"")
        // What it was, and not what it has become.
        try here.apply([.replace(file, .inline("second", base: link.info.version))])
        #expect(try house.get(link).body == Array("first".utf8))
        let second = try here.publish(file)
        #expect(try house.get(second).body == Array("second".utf8))
        let old = try here.publish(file, version: link.info.version)
        #expect(try house.get(old).body == Array("first".utf8))
        #expect(try here.links().map(\.link) == [old, second, link].map(\.info.link).sorted(by: here.newestFirst))
        #expect(try house.head(link).header("Content-Length") == nil)
        #expect(try house.head(link).status == 200)
    }

    /// What lies compressed is read as it is, and counts on the plan so.
    @Test func aCompressedContentIsReadAsItIs() throws {
        let bytes = TestContent(seed: 2, chunks: [100_000, 70_000], of: 48...57)
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "long.bin", bytes.content())])
        let link = try here.publish(file)
        let all = bytes.chunks.flatMap { $0 }
        #expect(try house.get(link).body == all)
        #expect(try house.get(link, ["Range": "bytes=99990-100009"]).body == Array(all[99_990..<100_010]))
        #expect(try here.fetch(bytes.ids[1]) == bytes.chunks[1])
    }

    @Test func aLongContentComesInPartsToo() throws {
        let bytes = TestContent(seed: 2, chunks: [100_000] + Array(repeating: 3000, count: 600))
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "long.bin", bytes.content())])
        let link = try here.publish(file)
        let all = bytes.chunks.flatMap { $0 }
        let whole = try house.get(link)
        #expect(whole.status == 200 && whole.body == all)
        #expect(whole.header("Content-Type") == "application/octet-stream")
        for (header, range) in [
            ("bytes=0-0", 0..<1), ("bytes=99999-100000", 99_999..<100_001), ("bytes=1500000-", 1_500_000..<1_900_000),
            ("bytes=-1", 1_899_999..<1_900_000), ("bytes=104000-107000", 104_000..<107_001),
        ] {
            let part = try house.get(link, ["Range": header])
            #expect(part.status == 206 && part.body == Array(all[range]), "\(header)")
            #expect(
                part.header("Content-Range") == "bytes \(range.lowerBound)-\(range.upperBound - 1)/1900000", "\(header)"
            )
        }
        let none = try house.get(link, ["Range": "bytes=1900000-"])
        #expect(none.status == 416 && none.header("Content-Range") == "bytes */1900000")
        #expect(try house.get(link, ["Range": "bytes=0-1,5-6"]).body.count == 1_900_000)
        let tag = try #require(whole.header("ETag"))
        #expect(try house.get(link, ["Range": "bytes=0-0", "If-Range": tag]).status == 206)
        #expect(try house.get(link, ["Range": "bytes=0-0", "If-Range": "\"other\""]).status == 200)
        #expect(try house.get(link, ["Range": "bytes=0-0", "If-Range": "W/\(tag)"]).status == 200)
        // Of two that are said nobody knows which was meant.
        let twice = try house.begin(link.path, .get, [("Range", "bytes=0-0"), ("If-Range", tag), ("If-Range", tag)])
        #expect(twice.status == 200)
        let same = try house.get(link, ["If-None-Match": "\"x\", \(tag)"])
        #expect(same.status == 304 && same.body.isEmpty)
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
        #expect(try house.get(link).status == 404)
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
        #expect(try house.get(link).status == 200)
        wait(.seconds(15))
        #expect(try house.get(link).status == 404)
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
        let never = try house.get("/p/\(LinkSecret.random().text)/a")
        #expect(never.status == 404)
        for link in [expired, revoked] { #expect(try house.get(link) == never) }
        for path in ["/", "/p/", "/p", "/p/a", "/p//a", "/p/%00", "/p/\(String(repeating: "a", count: 5000))", "/x"] {
            #expect(try house.get(path) == never, "\(path)")
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
        #expect(try house.get(link).status == 200)
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
        #expect(try house.get(link).status == 200)
    }

    @Test func aDeploymentThatPublishesNothingSaysWhoCanChangeThat() throws {
        let house = try ContainerHouse()
        let here = try house.device()
        let file = try here.makeFile("a")
        do {
            try here.publish(file)
            Issue.record("It was published.")
        } catch let error as CloudError {
            #expect(error.code == .permissionFailure && error.details["key"] == "NEPHOS_DOCUMENTS_PUBLISH_PORT")
            #expect(error.message.contains("operator"))
        }
        #expect(house.cloud.publishedContents == nil)
    }

    @Test(arguments: [false, true]) func linksOfAnAccountThatIsLockedOrClosedEnd(isClosed: Bool) throws {
        let link = try here.publish(here.makeFile("a"))
        #expect(try house.get(link).status == 200)
        if isClosed { try house.closeAccount() } else { try house.setLocked(true) }
        // As soon as documents has heard of it.
        wait(.seconds(1))
        #expect(try house.get(link).status == 404)
        wait(.seconds(5))
        #expect(try house.linkRows() == 0)
        if !isClosed {
            try house.setLocked(false)
            wait(.seconds(5))
            #expect(try house.get(link).status == 404)
        }
    }

    @Test func linksOfAnAppThatIsRemovedEnd() throws {
        let link = try here.publish(here.makeFile("a"))
        try house.removeApp()
        wait(.seconds(1))
        #expect(try house.get(link).status == 404)
        wait(.seconds(5))
        #expect(try house.linkRows() == 0)
    }

    @Test func aLinkSurvivesTheServicesRestart() throws {
        let link = try here.publish(here.makeFile("a"))
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        wait(.seconds(1))
        #expect(try house.get(link).status == 200)
    }

    /// What is on its way ends with its link: when that is revoked, and when it expires, before its row is removed.
    @Test(arguments: ["revoked", "expired"]) func whatIsBeingFetchedEndsWithItsLink(_ ending: String) throws {
        let bytes = TestContent(seed: 1, chunks: [50_000, 50_000, 50_000])
        let file = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(file, "a", bytes.content())])
        let link = try here.publish(file, seconds: 3600)
        let answer = try house.begin(link.path)
        guard case .source(let body, let length) = answer.body else {
            Issue.record("A long content comes in pieces.")
            return
        }
        #expect(length == 150_000)
        #expect(try house.next(of: body) == bytes.chunks[0])
        if ending == "revoked" {
            try here.revoke(link)
        } else {
            house.cloud.setClockOffset(of: .documents, .seconds(3601))
            #expect(try house.linkRows() == 1)
        }
        let error = #expect(throws: CloudError.self) { try house.next(of: body) }
        #expect(error?.code == .unknownItem)
    }

    @Test func noSecretIsLogged() throws {
        let file = try here.makeFile("name-of-the-file.txt")
        let link = try here.publish(file)
        _ = try house.get(link)
        _ = try house.get("/p/\(LinkSecret.random().text)/x")
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
    var path: String { "/p/\(secret.text)/name" }
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
    /// An answer over HTTP.
    struct Answer: Equatable {
        var status: Int
        var headers: [String: String]
        var body: [UInt8]

        func header(_ name: String) -> String? { headers[name] }
    }

    private static let selectLinks = SQL("SELECT COUNT(*) FROM document_links")

    func linkRows() throws -> Int {
        try cloud.storage(of: .documents).write { try $0.first(Self.selectLinks) { Int($0.integer(0)) } ?? 0 }
    }

    private final class Held<Value> { var value: Value? }

    /// What the service says to a request, before its body.
    func begin(
        _ path: String, _ method: HTTPRequest.Method = .get, _ headers: [(String, String)] = []
    ) throws -> HTTPResponse {
        let answering = try #require(cloud.publishedContents)
        let held = Unshared(Held<HTTPResponse>())
        answering(HTTPRequest(method, path, headers: headers.map { (name: $0.0, value: $0.1) })) {
            held.value.value = $0
        }
        _ = cloud.network.run(within: .seconds(60)) { held.value.value != nil }
        return try #require(held.value.value)
    }

    func next(of body: any HTTPBodySource) throws -> [UInt8] {
        let held = Unshared(Held<Result<[UInt8], any Error>>())
        body.next { held.value.value = $0 }
        _ = cloud.network.run(within: .seconds(60)) { held.value.value != nil }
        return try #require(held.value.value).get()
    }

    func get(_ path: String, _ headers: [String: String] = [:], _ method: HTTPRequest.Method = .get) throws -> Answer {
        let response = try begin(path, method, headers.map { ($0.key, $0.value) })
        var body: [UInt8] = []
        switch response.body {
        case .bytes(let bytes): body = bytes
        case .source(let source, let length):
            while body.count < Int(length) {
                let piece = try next(of: source)
                try #require(!piece.isEmpty)
                body += piece
            }
            #expect(body.count == Int(length))
        case .stream: Issue.record("A link's content has a length.")
        }
        return Answer(
            status: response.status, headers: Dictionary(response.headers.map { ($0.name, $0.value) }) { $1 },
            body: body)
    }

    func get(_ link: Link, _ headers: [String: String] = [:]) throws -> Answer { try get(link.path, headers) }
    func head(_ link: Link) throws -> Answer { try get(link.path, [:], .head) }

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
