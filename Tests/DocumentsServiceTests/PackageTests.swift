import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// A package is a file to the service: it knows nothing of it but the kind.
@Suite struct PackageTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    private func package(_ id: DocumentID, _ name: String, _ content: WireDocumentContent?) -> WireDocumentChange {
        var change = WireDocumentChange.create(id, name, content)
        change.create.kind = .package
        return change
    }

    @Test func aPackageIsMadeReplacedAndCountedAsAFile() throws {
        let id = ContainerDevice.makeID()
        let bytes = TestContent(seed: 1, chunks: [100_000, 70_000])
        try here.put(bytes, as: [package(id, "a.bundle", bytes.content())])
        #expect(try here.item(id).kind == .package && here.item(id).content.length == 170_000)
        #expect(try house.used() == 170_000 + counted([bytes.nodes[0]]))
        // It keeps its kind, whatever its bytes are; and no file becomes one.
        try here.apply([.replace(id, .inline("short", base: try here.item(id).content.version))])
        let file = try here.makeFile("file")
        try here.apply([.replace(file, .inline("NEPHOSPK", base: try here.item(file).content.version))])
        #expect(try here.item(id).kind == .package && here.item(file).kind == .file)
        #expect(try here.versions(of: id).count == 2)
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 8 + 4 && house.counts() == Counts(chunks: 0, uses: 0, nodes: 0))
    }

    @Test func twoPackagesFromOneAreBothKept() throws {
        let id = ContainerDevice.makeID()
        try here.apply([package(id, "a.bundle", .inline("first"))])
        let base = try here.item(id).content.version
        try here.apply([.replace(id, .inline("here", base: base))])
        try there.apply([.replace(id, .inline("there", base: base))])
        let item = try there.item(id)
        #expect(item.content.text == "here" && item.conflicts.map(\.text) == ["there"])
        // Nothing of it is an item: nothing lies in it.
        expect(.unknownItem) { try here.apply([.create(ContainerDevice.makeID(), "x", in: id, .inline("x"))]) }
        expect(.invalidArguments) { try here.apply([package(ContainerDevice.makeID(), "b", nil)]) }
    }
}
