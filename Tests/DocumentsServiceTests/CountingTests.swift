import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// An item counts for what its rows take, from the moment it is made until it is gone for good.
@Suite struct CountingTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func anItemCountsForItsRowsItsNameAndItsAttributes() throws {
        try here.makeFolder("folder")
        #expect(try house.counted() == 262)
        let file = try here.makeFile("abc", "12345")
        #expect(try house.counted() == 526 + 512)
        try there.apply([.attributes(file) { $0.extended = [.named("x", Array(repeating: 7, count: 30_000))] }])
        let counted = try house.counted()
        #expect((31_039..<31_072).contains(counted))
        try there.apply([.place(file, "a longer name", in: .documents)])
        #expect(try house.counted() == counted + 10)
        try there.apply([.attributes(file) { $0.extended = [.named("x", [])] }])
        let rest = try house.counted()
        #expect((1048...1052).contains(rest))
        // Whoever has made it, for them it counts.
        let usage = try house.usage()
        #expect(usage == [here.mover.device.rawValue: rest])
    }

    /// Each row that somebody can make counts, exactly as long as it is there.
    @Test func versionsFurtherContentsAndAnnouncementsCountForTheirRows() throws {
        let file = try here.makeFile("a", "1")
        let alone = try house.counted()
        #expect(alone == 256 + 1 + 512 + 1)
        let first = try here.item(file).content.version
        var base = first
        for number in 0..<99 {
            let content = WireDocumentContent.inline("\(number % 10)", base: base)
            try there.apply([.replace(file, content)])
            base = content.version
        }
        #expect(try house.counted() == alone + 99 * 513)
        // Each for whoever has made it.
        #expect(try house.usage()[there.mover.device.rawValue] == 99 * 513)
        try here.apply([.announce(file, Data(ContainerDevice.makeID().bytes), length: 5_000_000)])
        #expect(try house.counted() == alone + 99 * 513 + 512)
        var rendition = WireDocumentChange()
        rendition.item = Data(file.bytes)
        rendition.rendition.name = Data("small".utf8)
        rendition.rendition.content = .inline("12")
        rendition.rendition.ofVersion = first
        try here.apply([rendition])
        #expect(try house.counted() == alone + 99 * 513 + 512 + 512 + 5 + 2)
        // The announcement ends by itself.
        house.cloud.skip(.seconds(25 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(120))
        house.cloud.setClockOffset(of: .documents, .zero)
        #expect(try house.counted() == alone + 99 * 513 + 512 + 5 + 2)
        #expect(try house.sum() == house.counted())
        try house.device().apply([.trash(file), .remove(file)])
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == 0 && house.sum() == 0 && house.usage().isEmpty)
    }

    /// So that what a disk has lost can be sent again on a plan that is full, and nobody makes rows that do not count.
    @Test func theSameBytesAgainTakeThePlaceOfTheVersionThatHadThem() throws {
        let file = try here.makeFile("a", "")
        try house.setPlan(bytes: 0)
        var base = try here.item(file).content.version
        for _ in 0..<3 {
            let same = WireDocumentContent.inline("", base: base)
            try there.apply([.replace(file, same)])
            base = same.version
            #expect(try here.versions(of: file).map(\.version) == [base])
        }
        #expect(try house.counted() == 769 && house.sum() == 769)
        #expect(try house.usage() == [here.mover.device.rawValue: 257, there.mover.device.rawValue: 512])
        try here.apply([.trash(file), .remove(file)])
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == 0 && house.sum() == 0 && house.usage().isEmpty)
    }

    /// So it is of bytes that go with their item.
    @Test func theSameBytesAgainNeedNoRoomWhereTheyGoWithTheItem() throws {
        let text = String(repeating: "x", count: 4000)
        let file = try here.makeFile("a", text)
        try house.setPlan(bytes: 0)
        let same = WireDocumentContent.inline(text, base: try here.item(file).content.version)
        try there.apply([.replace(file, same)])
        #expect(try here.versions(of: file).map(\.version) == [same.version])
        #expect(try house.counted() == 4769 && house.sum() == 4769)
        #expect(try house.usage() == [here.mover.device.rawValue: 257, there.mover.device.rawValue: 4512])
        try here.apply([.trash(file), .remove(file)])
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == 0 && house.sum() == 0 && house.usage().isEmpty)
    }

    /// Whoever was away has made something from the version that is gone: nobody has changed anything beside it.
    @Test func whatIsMadeFromAVersionWhosePlaceTheSameBytesTookIsNoConflict() throws {
        let file = try here.makeFile("a", "1")
        let first = try here.item(file).content.version
        var base = first
        for _ in 0..<3 {
            let same = WireDocumentContent.inline("1", base: base)
            try there.apply([.replace(file, same)])
            base = same.version
        }
        let mine = WireDocumentContent.inline("2", base: first)
        try here.apply([.replace(file, mine)])
        let item = try here.item(file)
        #expect(item.conflicts.isEmpty && item.content.version == mine.version && item.content.base == base)
        #expect(try here.versions(of: file).map(\.version) == [mine.version, base])
        // Nobody says so of a version of their own.
        var claimed = WireDocumentContent.inline("3", base: mine.version)
        claimed.sameAs = [first]
        try there.apply([.replace(file, claimed)])
        #expect(try here.item(file).content.sameAs.isEmpty)
    }

    /// The two are merged by what they were made from.
    @Test func whatAConflictWasMadeFromStaysThoughTheSameBytesCome() throws {
        let file = try here.makeFile("a", "1")
        let first = try here.item(file).content.version
        let lost = WireDocumentContent.inline("2", base: first)
        // As a device offers it that had it beside what the service has.
        var offered = WireDocumentChange.replace(file, lost)
        offered.replace.over = Data(ContainerDevice.makeID().bytes)
        offered.offered = true
        try there.apply([offered])
        #expect(try here.item(file).conflicts.map(\.base) == [first])
        let same = WireDocumentContent.inline("1", base: first)
        try here.apply([.replace(file, same)])
        #expect(try here.item(file).content.version == same.version)
        #expect(try Set(here.versions(of: file).map(\.version)) == [first, lost.version, same.version])
        try here.apply([.trash(file), .remove(file)])
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == 0 && house.sum() == 0 && house.usage().isEmpty)
    }

    /// Versions are called as devices like, and two items may have one of the same name.
    @Test func whatTakesAVersionsPlaceIsOfThatItemAlone() throws {
        let file = try here.makeFile("a", "")
        let former = try here.item(file).content.version
        let same = WireDocumentContent.inline("", base: former)
        // Others that come under the name of the heir, and one that goes under that of the former one.
        var twin = WireDocumentContent.inline("")
        twin.version = former
        let other = ContainerDevice.makeID()
        try here.apply([.create(other, "b", twin), .replace(other, .inline("1", base: former))])
        let known = try house.counted()
        var heir = same
        heir.base = Data()
        let others = (0..<9).map { _ in ContainerDevice.makeID() }
        var changes: [WireDocumentChange] = [.replace(file, same), .removeVersions(other, [former])]
        for (number, id) in others.enumerated() { changes.append(.create(id, "c\(number)", heir)) }
        try here.apply(changes)
        let more = Int64(9 * (256 + 2 + 512) - 512)
        #expect(try house.counted() == known + more)
        #expect(try house.sum() == house.counted())
        let all = [file, other] + others
        for id in all { try here.apply([.trash(id), .remove(id)]) }
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == 0 && house.sum() == 0 && house.usage().isEmpty)
    }

    @Test func whatIsRemovedIsGivenBackWithAllThatIsInIt() throws {
        let folder = try here.makeFolder("folder")
        for number in 0..<70 { try there.makeFile("\(number)", in: folder, "") }
        let counted = try house.counted()
        #expect(counted > 71 * 256)
        try here.apply([.trash(folder)])
        #expect(try house.counted() == counted)
        try here.apply([.remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counted() == 0 && house.usage().isEmpty && house.sum() == 0)
    }

    /// What is given back is what was charged: nobody can read it off the item any more.
    @Test func whatIsDamagedIsGivenBackToo() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder, "")
        try here.apply([.attributes(file) { $0.tags.tags = ["red"] }])
        let damage = SQL("UPDATE feed_items SET body = x'00' WHERE name = ?1")
        try house.cloud.storage(of: .documents).write { _ = try $0.execute(damage, [.text(file.name.rawValue)]) }
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counted() == 0)
    }

    /// What a version's row counts lies beside what is sealed; with its item, or by itself.
    @Test(arguments: [true, false]) func aDamagedVersionGivesBackItsRow(isRemovedByItself: Bool) throws {
        let file = try here.makeFile("a", "1")
        let first = try here.item(file).content.version
        let second = WireDocumentContent.inline("2", base: first)
        try there.apply([.replace(file, second)])
        let counted = try house.counted()
        let damage = SQL("UPDATE document_versions SET sealed = x'00' WHERE version = ?1")
        for version in isRemovedByItself ? [first] : [first, second.version] {
            try house.cloud.storage(of: .documents).write { _ = try $0.execute(damage, [.blob([UInt8](version))]) }
        }
        if isRemovedByItself {
            try here.apply([.removeVersions(file, [first])])
            // Of its bytes nobody knows any more how many they were.
            #expect(try house.counted() == counted - 512 && house.sum() == house.counted())
            #expect(try house.usage() == [here.mover.device.rawValue: 258, there.mover.device.rawValue: 513])
        }
        try here.apply([.trash(file), .remove(file)])
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.counted() == (isRemovedByItself ? 1 : 2))
    }

    @Test func aFullPlanTakesNoMoreItemsAndLetsThemGo() throws {
        let file = try here.makeFile("a", "")
        try house.setPlan(bytes: 1700)
        try here.makeFile("b", "")
        expect(.quotaExceeded) { try here.makeFolder("folder") }
        expect(.quotaExceeded) {
            try here.apply([.attributes(file) { $0.extended = [.named("x", Array(repeating: 7, count: 500))] }])
        }
        #expect(try house.counted() == 1538)
        // What makes room, and what needs none, goes on.
        try here.apply([.place(file, "c", in: .documents), .trash(file)])
        try here.apply([.restore(file), .trash(file), .remove(file)])
        #expect(try house.counted() == 769)
        try here.makeFolder("folder")
    }

    /// In one batch what goes makes room for what comes.
    @Test func whatABatchRemovesMakesRoomForWhatItMakes() throws {
        let file = try here.makeFile("a", "")
        try here.apply([.trash(file)])
        try house.setPlan(bytes: 300)
        try there.apply([.remove(file), .create(ContainerDevice.makeID(), "b")])
        #expect(try house.counted() == 257)
        #expect(try house.usage() == [there.mover.device.rawValue: 257])
    }

    /// The container's own sum is what is counted of it, and is told to whoever reads it.
    @Test func aContainerSaysWhatItCounts() throws {
        try here.makeFile("a", "12345")
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        let id = ContainerDevice.makeID()
        try here.put(bytes, as: [.create(id, "b", bytes.content())])
        #expect(try Int64(there.info().countedBytes) == house.sum())
        let expected = Int64(171_543 + bytes.nodes[0].count + DocumentLimits.rowBytes)
        #expect(try house.sum() == expected)
        #expect(try house.sum() == house.counted())
        there.container = "T.shared"
        #expect(try there.info().countedBytes == 0)
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.sum() == 774)
    }
}

extension ContainerHouse {
    /// Gives the account a plan of its own.
    func setPlan(bytes: UInt64, account: String = TestCloud.accountName) throws {
        try cloud.savePlan("small", bytes: bytes)
        var request = WireSetPlan()
        request.accountName = account
        request.planID = "small"
        try cloud.operate("SetPlan", request, as: WireSetPlanReply.self)
        cloud.network.run(for: .seconds(10))
    }

    /// What counts on the plan, by device.
    func usage() throws -> [String: Int64] {
        try cloud.storage(of: .documents).write { transaction in
            Dictionary(try transaction.all(Self.selectUsage, []) { ($0.text(0), $0.integer(1)) }) { $0 + $1 }
        }
    }

    /// What all containers count.
    func sum() throws -> Int64 {
        try cloud.storage(of: .documents).write { try $0.first(Self.selectSum) { $0.integer(0) } ?? 0 }
    }

    private static let selectUsage = SQL("SELECT device, used FROM storage_usage WHERE used > 0")
    private static let selectSum = SQL("SELECT COALESCE(SUM(bytes), 0) FROM content_sums")
}

extension ContainerDevice {
    /// What the service says of the container.
    func info() throws -> WireContainerInfo {
        var request = WireReadChanges()
        request.scope = container
        return try WireContainerInfo(
            serializedBytes: call("ReadChanges", request, as: WireReadChangesReply.self).info)
    }
}
