import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Former versions that are removed before their time.
@Suite struct RemovedVersionTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    /// A file with these contents, one after the other. Its versions, the oldest first.
    private func makeFile(
        _ texts: [String], by device: ContainerDevice? = nil
    ) throws -> (id: DocumentID, versions: [Data]) {
        let here = device ?? here
        let id = try here.makeFile("a", texts[0])
        var versions = [try here.item(id).content.version]
        for text in texts.dropFirst() {
            let content = WireDocumentContent.inline(text, base: versions[versions.count - 1])
            try here.apply([.replace(id, content)])
            versions.append(content.version)
        }
        return (id, versions)
    }

    @Test func versionsThatAreNamedGoAndTheOthersStay() throws {
        let (id, versions) = try makeFile(["1", "2", "3", "4"])
        let before = try here.item(id)
        let head = try here.apply([.removeVersions(id, [versions[0], versions[2]])]).token
        #expect(try there.versions(of: id).map(\.text) == ["4", "2"])
        // The item is as it was, and whoever follows hears that something has become of it.
        #expect(try there.item(id) == before)
        // Said again, also under another id, it does nothing.
        let again = try here.apply([.removeVersions(id, [versions[0], versions[2], Data(count: 16)])])
        #expect(again.token.sequence == head.sequence && again.items.count == 1)
        #expect(try here.versions(of: id).count == 2)
    }

    @Test func allBeforeOneGoAndNoneThatComesLater() throws {
        let (id, versions) = try makeFile(["1", "2", "3"])
        let newer = WireDocumentContent.inline("4", base: versions[2])
        try there.apply([.replace(id, newer)])
        try here.apply([.removeVersions(id, before: versions[2])])
        #expect(try there.versions(of: id).map(\.text) == ["4", "3"])
        // One that is not there says nothing.
        try here.apply([.removeVersions(id, before: versions[0])])
        #expect(try there.versions(of: id).count == 2)
        try here.apply([.removeVersions(id, before: newer.version)])
        #expect(try there.versions(of: id).map(\.text) == ["4"])
    }

    /// Who asks for it with a version that has lost has not seen what it has lost to, nor what came before that.
    @Test func whatCameBesideAVersionThatHasLostStays() throws {
        let (id, versions) = try makeFile(["1", "2"])
        var base = versions[1]
        for text in ["a", "b"] {
            let content = WireDocumentContent.inline(text, base: base)
            try there.apply([.replace(id, content)])
            base = content.version
        }
        let lost = WireDocumentContent.inline("3", base: versions[1])
        let last = WireDocumentContent.inline("4", base: lost.version)
        try here.apply([.replace(id, lost)])
        try here.apply([.replace(id, last), .removeVersions(id, before: last.version)])
        #expect(try here.versions(of: id).map(\.text) == ["4", "b", "a"])
        // Nor where somebody has decided meanwhile.
        let others = try here.versions(of: id).map(\.version)
        try there.apply([.resolve(id, [last.version])])
        try here.apply([.removeVersions(id, before: last.version)])
        #expect(try here.versions(of: id).map(\.version) == others)
        // With the current one all go.
        try here.apply([.removeVersions(id, before: base)])
        #expect(try here.versions(of: id).map(\.text) == ["4", "b"])
    }

    @Test func whatIsCurrentOrInConflictStays() throws {
        let (id, versions) = try makeFile(["1", "2"])
        let lost = WireDocumentContent.inline("lost", base: versions[0])
        try there.apply([.replace(id, lost)])
        for version in [versions[1], lost.version] {
            expect(.constraintViolation) {
                try here.apply([.attributes(id) { $0.favouriteRank = 1 }, .removeVersions(id, [versions[0], version])])
            }
        }
        #expect(try here.versions(of: id).count == 3 && !here.item(id).hasAttributes)
        // One that comes after them names none of the two.
        let last = WireDocumentContent.inline("3", base: versions[1])
        try here.apply([.replace(id, last)])
        try here.apply([.removeVersions(id, before: last.version)])
        #expect(try here.versions(of: id).map(\.text) == ["3", "lost"])
        // Resolved, it is a former one.
        try here.apply([.resolve(id, [lost.version]), .removeVersions(id, [lost.version])])
        #expect(try here.versions(of: id).map(\.text) == ["3"])
    }

    @Test func aBatchMayRemoveWhatItHasBrought() throws {
        let (id, versions) = try makeFile(["1"])
        let (two, three) = (
            WireDocumentContent.inline("22", base: versions[0]), WireDocumentContent.inline("333")
        )
        var last = three
        last.base = two.version
        try here.apply([.replace(id, two), .replace(id, last), .removeVersions(id, before: last.version)])
        #expect(try here.versions(of: id).map(\.text) == ["333"])
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counted() == 0)
    }

    /// Chunks and all that counted for them, exactly.
    @Test func whatTheyTookIsGivenBack() throws {
        let id = ContainerDevice.makeID()
        let (one, two) = (
            TestContent(seed: 1, chunks: [90_000, 70_000]), TestContent(seed: 2, chunks: [80_000, 70_000])
        )
        let former = one.content()
        try here.put(one, as: [.create(id, "a", former)])
        let alone = try house.counted()
        var next = two.content()
        next.base = former.version
        try here.put(two, as: [.replace(id, next)])
        let both = try house.counted()
        try there.apply([.removeVersions(id, [former.version])])
        house.cloud.network.run(for: .seconds(5))
        let left = try house.counted()
        #expect(left < both && left == alone - 10_000)
        #expect(try house.sum() == left && house.counts().chunks == 2)
    }

    @Test func itMakesRoomOnAPlanThatIsFull() throws {
        let (id, versions) = try makeFile([String(repeating: "1", count: 4000), String(repeating: "2", count: 4000)])
        try house.setPlan(bytes: 1000)
        expect(.quotaExceeded) { try here.makeFile("b") }
        try here.apply([.removeVersions(id, [versions[0]])])
        #expect(try here.versions(of: id).count == 1)
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func itMakesRoomOnADiskThatIsFull() throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/documents.sqlite")
        let house = try ContainerHouse(engine: engine)
        let here = try house.device()
        let (id, versions) = try makeFile(["1", "2"], by: here)
        try disk.fill()
        let text = String(repeating: "x", count: 4000)
        for batch in 0..<1000 where !engine.isShortOfRoom {
            do {
                try here.apply((0..<100).map { .create(ContainerDevice.makeID(), "\(batch)-\($0)", .inline(text)) })
            } catch let error as CloudError where error.code == .storageFailure { break }
        }
        #expect(engine.isShortOfRoom)
        expect(.storageFailure) { try here.apply([.attributes(id) { $0.favouriteRank = 1 }]) }
        try here.apply([.removeVersions(id, before: versions[1])])
        #expect(try here.versions(of: id).map(\.text) == ["2"])
    }

    @Test func whatIsNoVersionOfAFileIsRefused() throws {
        let (id, _) = try makeFile(["1"])
        let folder = try here.makeFolder("folder")
        expect(.invalidArguments) { try here.apply([.removeVersions(folder, [Data(count: 16)])]) }
        expect(.invalidArguments) { try here.apply([.removeVersions(id, [Data(count: 15)])]) }
        expect(.invalidArguments) { try here.apply([.removeVersions(id, before: Data(count: 3))]) }
        expect(.unknownItem) { try here.apply([.removeVersions(ContainerDevice.makeID(), [Data(count: 16)])]) }
        expect(.limitExceeded) {
            try here.apply([.removeVersions(id, (0...100).map { _ in Data(ContainerDevice.makeID().bytes) })])
        }
        // Those that are not there are looked for too.
        let many = (0..<11).map { _ in
            WireDocumentChange.removeVersions(id, (0..<100).map { _ in Data(ContainerDevice.makeID().bytes) })
        }
        expect(.limitExceeded) { try here.apply(many) }
        try here.apply(Array(many.dropLast()))
    }
}

extension WireDocumentChange {
    static func removeVersions(_ id: DocumentID, _ versions: [Data] = [], before: Data = Data()) -> Self {
        var change = WireDocumentChange()
        change.item = Data(id.bytes)
        change.versions.versions = versions
        change.versions.before = before
        return change
    }
}
