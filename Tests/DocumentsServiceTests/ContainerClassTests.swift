import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What the operator says that a container is, and what follows from it.
@Suite struct ContainerClassTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse(streamBytesMax: 400_000)
        here = try house.device()
        there = try house.device(app: "T.other")
        here.container = "T.shared"
        there.container = "T.shared"
    }

    @Test func aContainerIsOneOfDocumentsUnlessItIsSaidOtherwise() throws {
        var info = try here.info()
        #expect(info.containerClass == .documents && info.nameRule == 1 && !info.readOnly && info.classBytesMax == 0)
        try house.define("T.shared", .backup, names: .folded)
        info = try here.info()
        #expect(info.containerClass == .backup && info.nameRule == 2)
    }

    /// Whoever has begun keeps what they have; who begins later has what is said by then.
    @Test func classAndNamesAreFixedByTheFirstChange() throws {
        try house.cloud.createAccount("second")
        let other = try house.device(account: "second")
        other.container = "T.shared"
        try house.define("T.shared", .documents, names: .folded)
        try here.makeFile("a", in: .top)
        try house.define("T.shared", .stream, names: .bytes)
        expect(.alreadyExists) { try here.makeFile("A", in: .top) }
        try other.makeFile("a", in: .top)
        try other.makeFile("A", in: .top)
        try house.define("T.shared", .documents)
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        let (mine, others) = try (here.info(), other.info())
        #expect(mine.containerClass == .documents && mine.nameRule == 2)
        #expect(others.containerClass == .stream && others.nameRule == 1 && others.classBytesMax == 400_000)
    }

    @Test func namesThatDifferInCapitalsAreTwo() throws {
        try here.makeFile("a")
        try here.makeFile("A")
        try here.makeFile("e\u{301}")
        try here.makeFile("\u{e9}")
        expect(.alreadyExists) { try here.makeFile("A") }
        #expect(try here.list().count == 4)
    }

    // MARK: Who changes it

    @Test func oneAppAloneMayChangeAContainerThatOthersRead() throws {
        let id = try here.makeFile("a", "1")
        try house.define("T.shared", .documents, writer: "T.other")
        expect(.permissionFailure) { try here.makeFile("b") }
        expect(.permissionFailure) { try here.apply([.trash(id)]) }
        expect(.permissionFailure) { _ = try here.open(upload: ContainerDevice.makeID().bytes, bytes: 1000) }
        #expect(try here.item(id).content.text == "1" && here.info().readOnly)
        try there.makeFile("b")
        #expect(try !there.info().readOnly)
        try house.define("T.shared", .documents)
        try here.makeFile("c")
    }

    // MARK: Backups

    @Test func aBackupKeepsTenVersionsAndNothingInDocuments() throws {
        try house.define("T.shared", .backup)
        expect(.constraintViolation) { try here.makeFile("a") }
        let folder = try here.makeFolder("folder", in: .top)
        let id = try here.makeFile("a", in: folder, "0")
        expect(.constraintViolation) { try here.apply([.place(id, "a", in: .documents)]) }
        var version = try here.item(id).content.version
        for number in 1...15 {
            let content = WireDocumentContent.inline("\(number)", base: version)
            try here.apply([.replace(id, content)])
            version = content.version
        }
        let kept = try here.versions(of: id).map(\.text)
        // Which of the former ones go is for how close they lie to each other.
        #expect(kept.count == 10 && kept.first == "15" && kept.dropFirst().first == "14", "\(kept)")
        #expect(try house.used() == kept.reduce(0) { $0 + $1.utf8.count })
        // What has lost its folder comes back to the top: there is no other place.
        try here.apply([.trash(id), .trash(folder), .restore(id)])
        #expect(try DocumentID(bytes: here.item(id).parent) == .top)
    }

    // MARK: Streams

    @Test func aStreamCountsOnItsOwnBoundAndNotOnThePlan() throws {
        try house.define("T.shared", .stream)
        try house.setPlan(bytes: 0)
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let id = ContainerDevice.makeID()
        let upload = try here.put(bytes, as: [.create(id, "a", bytes.content())])
        try here.closeUpload(upload)
        house.cloud.network.run(for: .seconds(5))
        let counted = UInt64(170_000 + bytes.nodes[0].count + 512 + 257 + 512)
        #expect(try house.counted() == 0 && house.beside("stream") == Int64(counted))
        #expect(try here.info().countedBytes == counted)
        expect(.quotaExceeded) { _ = try here.open(upload: ContainerDevice.makeID().bytes, bytes: 300_000) }
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.beside("stream") == 0 && house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
        _ = try here.open(upload: ContainerDevice.makeID().bytes, bytes: 300_000)
    }

    /// Else one would send on the bound of a stream what the plan has no room for.
    @Test func anUploadIsForWhatCountsAsItDoes() throws {
        try house.define("T.shared", .stream)
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let upload = try here.store(bytes)
        let documents = try house.device()
        expect(.invalidArguments) {
            try documents.apply([.create(ContainerDevice.makeID(), "a", bytes.content())], upload: upload)
        }
        let onPlan = ContainerDevice.makeID().bytes
        _ = try documents.open(upload: onPlan, bytes: 1000)
        expect(.invalidArguments) { _ = try here.open(upload: onPlan, bytes: 2000) }
        expect(.invalidArguments) {
            try here.apply([.create(ContainerDevice.makeID(), "a", bytes.content())], upload: onPlan)
        }
        try here.apply([.create(ContainerDevice.makeID(), "a", bytes.content())], upload: upload)
    }

    /// What a stream and a folder have alike counts for each: neither's end leaves the other more than it has room for.
    @Test func whatAStreamHasCountsOnThePlanTooOnceAnotherHasIt() throws {
        try house.define("T.shared", .stream)
        let bytes = TestContent(seed: 1, chunks: [100_000])
        let documents = try house.device()
        let (one, two) = (ContainerDevice.makeID(), ContainerDevice.makeID())
        for (device, id) in [(here, one), (documents, two)] {
            let upload = try device.put(bytes, as: [.create(id, "a", bytes.content())])
            try device.closeUpload(upload)
        }
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counted() == 100_769 && house.beside("stream") == 100_769)
        try here.apply([.trash(one), .remove(one)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counted() == 100_769 && house.beside("stream") == 0)
        #expect(try documents.fetch(bytes.ids[0]) == bytes.chunks[0])
        try documents.apply([.trash(two), .remove(two)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
    }

    @Test func aStreamTakesNoContentOfMoreThanFiftyMegabytes() throws {
        try house.define("T.shared", .stream)
        var content = WireDocumentContent.inline("x")
        content.inline = Data()
        content.root = Data(repeating: 1, count: 32)
        content.length = 50_000_001
        expect(.limitExceeded) { try here.apply([.create(ContainerDevice.makeID(), "a", content)]) }
        content.length = 50_000_000
        expect(.unknownItem) { try here.apply([.create(ContainerDevice.makeID(), "a", content)]) }
    }

    @Test func aStreamKeepsOneVersion() throws {
        try house.define("T.shared", .stream)
        let id = try here.makeFile("a", "1")
        try here.apply([.replace(id, .inline("2", base: try here.item(id).content.version))])
        #expect(try here.versions(of: id).map(\.text) == ["2"])
    }

    @Test func aStreamKeepsItsNewestThousandFiles() throws {
        let house = try ContainerHouse(streamBytesMax: 2_000_000)
        let here = try house.device()
        here.container = "T.shared"
        try house.define("T.shared", .stream)
        let folder = try here.makeFolder("folder")
        for batch in 0..<3 {
            try here.apply(
                (0..<340).map { .create(ContainerDevice.makeID(), "\(batch)-\($0)", in: folder, .inline("x")) })
            house.cloud.network.run(for: .milliseconds(10))
        }
        house.cloud.network.run(for: .seconds(5))
        let names = try here.list().values.map { String(decoding: $0.name, as: UTF8.self) }
        #expect(names.count == 1001 && names.contains("folder"))
        #expect(names.count { $0.hasPrefix("0-") } == 320 && names.count { $0.hasPrefix("2-") } == 340)
        #expect(try house.beside("stream") == house.countedByItems() + 1000)
        // Their names are free, and their folder has room for as many again.
        try here.apply(
            (0..<20).map { .create(ContainerDevice.makeID(), "0-\($0)", in: folder, .inline("x"), clash: .rename) })
    }

    /// Thirty days go by, and its clock is set back for whoever asks.
    @Test func whatIsInAStreamForThirtyDaysGoes() throws {
        try house.define("T.shared", .stream)
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        for (days, left) in [(29, 2), (31, 1)] {
            house.cloud.skip(.seconds(days * 24 * 3600), of: .documents)
            house.cloud.network.run(for: .seconds(90))
            house.cloud.setClockOffset(of: .documents, .zero)
            let device = try house.device()
            device.container = "T.shared"
            let items = try device.list()
            #expect(items.count == left && items[folder] != nil)
        }
        try here.makeFile("a", in: folder)
        expect(.unknownItem) { try here.apply([.create(file, "b", in: folder, .inline("x"))]) }
    }

    // MARK: Retention

    /// A stream's seven days, and what the operator says; what lies there already keeps its time.
    @Test(arguments: [(0, 7), (2, 2), (90, 90)] as [(UInt32, UInt32)])
    func whatLiesInTheTrashStaysForAsLongAsItsContainerSays(_ days: UInt32, _ trash: UInt32) throws {
        try house.define("T.shared", .stream, trashDays: days, versionDays: 3)
        #expect(try here.info().trashDays == trash && here.info().versionDays == 3)
        let folder = try here.makeFolder("folder")
        try here.apply([.trash(folder)])
        // What is said later is for what comes later.
        try house.define("T.shared", .stream, trashDays: 1)
        for (offset, isThere) in [(Int(trash) - 1, true), (Int(trash) + 1, false)] {
            house.cloud.skip(.seconds(offset * 24 * 3600), of: .documents)
            house.cloud.network.run(for: .seconds(90))
            house.cloud.setClockOffset(of: .documents, .zero)
            let device = try house.device()
            device.container = "T.shared"
            #expect(try device.list().keys.contains(folder) == isThere, "\(offset)")
        }
        #expect(try house.retention("T.shared") == [1, 0])
    }

    @Test func formerVersionsAreKeptForAsLongAsTheOperatorSays() throws {
        try house.define("T.shared", .documents, versionDays: 2)
        let file = try here.makeFile("a", "0")
        var left: [String] = []
        for (hours, text) in [(2, "1"), (24, "2"), (48, "3"), (72, "4")] {
            for service in [ServiceName.identity, .documents] { house.cloud.skip(.seconds(hours * 3600), of: service) }
            let device = try house.device()
            device.container = "T.shared"
            try device.apply([.replace(file, .inline(text, base: device.item(file).content.version))])
            left = try device.versions(of: file).map(\.text)
        }
        // What the newest was made from stays.
        #expect(left == ["4", "3"])
    }

    @Test func daysThatCannotBeMeantAreRefused() throws {
        expect(.invalidArguments) { try house.define("T.shared", .documents, trashDays: 3651) }
        expect(.invalidArguments) { try house.define("T.shared", .documents, versionDays: .max) }
        try house.define("T.shared", .documents, trashDays: 3650, versionDays: 3650)
        #expect(try here.info().trashDays == 3650 && here.info().versionDays == 3650)
    }

    // MARK: Libraries

    @Test func aLibraryCountsBesideThePlanAndIsKept() throws {
        try house.define("T.shared", .library)
        try here.makeFile("a", "12345")
        #expect(try house.counted() == 0 && house.beside("library") == 774)
        #expect(try here.info().classBytesMax == 50 << 30)
        house.cloud.skip(.seconds(400 * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(90))
        house.cloud.setClockOffset(of: .documents, .zero)
        #expect(try here.list().count == 1)
    }
}

extension ContainerHouse {
    /// What is said of trash and versions, in days.
    func retention(_ container: String) throws -> [UInt32] {
        let reply = try cloud.operate("ListContainers", WireListContainers(), as: WireListContainersReply.self)
        return reply.definitions.first { $0.containerID == container }.map { [$0.trashDays, $0.versionDays] } ?? []
    }

    /// Says what a container is, as the operator, and waits until documents has heard it.
    func define(
        _ container: String, _ containerClass: WireContainerClass, names: WireContainerNames = .bytes,
        writer: String = "", trashDays: UInt32 = 0, versionDays: UInt32 = 0
    ) throws {
        var request = WireSaveContainer()
        request.definition.containerID = container
        request.definition.containerClass = containerClass
        request.definition.names = names
        request.definition.writerApp = writer
        request.definition.trashDays = trashDays
        request.definition.versionDays = versionDays
        try cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
        cloud.network.run(for: .seconds(2))
    }

    /// What counts in a room beside the plan.
    func beside(_ room: String) throws -> Int64 {
        try cloud.storage(of: .documents).write {
            try $0.first(Self.selectRoom, [.text(room)]) { $0.integer(0) } ?? 0
        }
    }

    private static let selectRoom = SQL("SELECT COALESCE(SUM(used), 0) FROM storage_rooms WHERE room = ?1")
}

extension ContainerDevice {
    func open(upload: [UInt8], bytes: UInt64) throws -> WireOpenTransferReply {
        var request = WireOpenTransfer()
        request.transferID = Data(upload)
        request.uploadBytes = bytes
        request.container = container == ContainerHouse.container ? "" : container
        return try call("OpenTransfer", request, as: WireOpenTransferReply.self)
    }
}
