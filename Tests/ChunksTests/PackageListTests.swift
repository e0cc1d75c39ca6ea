import NephosCore
import Testing

@testable import NephosChunks

/// The list that a package begins with: as the protocol has it, and what somebody could send in its place.
@Suite struct PackageListTests {
    typealias Member = PackageList.Member

    private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    private static func file(_ path: String, length: UInt64 = 0) -> Member {
        Member(.file, bytes(path), length: length)
    }

    private static func folder(_ path: String) -> Member { Member(.folder, bytes(path)) }

    /// The example of the protocol's pages.
    private static let example = [
        Member(
            .file, bytes("Info.txt"), attributes: [PackageList.Attribute(name: bytes("user.mark"), value: [1, 2])],
            modified: 1_700_000_000_000_000_000, length: 13),
        folder("bin"), Member(.file, bytes("bin/run"), isExecutable: true, modified: -1, length: 10),
        file("bin.txt"), Member(.link, bytes("current"), target: bytes("bin/run")),
    ]

    private func read(_ bytes: [UInt8], contentLength: UInt64? = nil) throws -> PackageList {
        try bytes.withUnsafeBytes { try PackageList(decoding: $0, contentLength: contentLength ?? UInt64($0.count)) }
    }

    private func refusal(_ members: [Member]) -> CloudError.Code? { code { _ = try PackageList(members) } }

    // MARK: The form

    @Test func thePackageOfTheProtocolIsReadAndWritten() throws {
        let list = try PackageList(Self.example)
        let content = list.encoded() + Self.bytes("hello, nephos#!/bin/sh\n")
        #expect(
            hexadecimal(content) == """
                4e4550484f53504b01000000ae000000010008000000010000002a36fe9c97170d00000000000000496e666f2e747874\
                09000200757365722e6d61726b010202000300000000000000000000000000000000000000000062696e010007000000\
                00000000000000000000000000000000000062696e2e7478740101070000000000ffffffffffffffff0a000000000000\
                0062696e2f72756e03000700070000000000000000000000000000000000000063757272656e7462696e2f72756e6865\
                6c6c6f2c206e6570686f7323212f62696e2f73680a
                """)
        #expect(
            content.withUnsafeBytes { hexadecimal(ChunkID(hashing: $0).bytes) }
                == "36921628a302cb8085599591edf827d36e962202a4ccb9d580323f7cd56819f3")
        let length = try content.withUnsafeBytes {
            try PackageList.byteCount(ofHeader: $0, contentLength: UInt64(content.count))
        }
        #expect(length == list.byteCount && length == 190)
        let again = try read(Array(content[..<length]), contentLength: UInt64(content.count))
        #expect(again == list && again.contentLength == UInt64(content.count))
    }

    @Test func whatIsTheSameHasTheSameBytes() throws {
        let pairs = [("b", 1), ("a", 2)].map { PackageList.Attribute(name: Self.bytes($0), value: [$1]) }
        func list(_ order: [Int], _ attributes: [PackageList.Attribute]) throws -> [UInt8] {
            let members = [Self.folder("x"), Self.file("x/y"), Member(.file, Self.bytes("x."), attributes: attributes)]
            return try PackageList(order.map { members[$0] }).encoded()
        }
        #expect(try list([0, 1, 2], pairs) == list([2, 1, 0], pairs.reversed()))
        // Nothing but the header.
        #expect(try PackageList([]).encoded().count == 16 && read(PackageList([]).encoded()).members.isEmpty)
    }

    @Test func aMemberIsFoundByItsPathAndByAByteOfIt() throws {
        let list = try PackageList([
            Self.file("a"), Self.file("b", length: 5), Self.folder("c"), Self.file("c/d", length: 3), Self.file("e"),
        ])
        let start = UInt64(list.byteCount)
        #expect(list.index(of: Self.bytes("c/d")) == 3 && list.index(of: Self.bytes("c/")) == nil)
        #expect(list.index(of: Self.bytes("")) == nil && list.index(of: Self.bytes("f")) == nil)
        #expect(list.offsets == [start, start, start + 5, start + 5, start + 8])
        let found = (start - 1...start + 8).map { list.index(ofByte: $0) }
        #expect(found == [nil, 1, 1, 1, 1, 1, 3, 3, 3, nil])
    }

    // MARK: What is refused

    @Test func whatLeadsOutOfThePackageIsRefused() {
        for path in ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b", "/"] {
            #expect(refusal([Self.folder("a"), Self.file(path)]) == .invalidArguments, "\(path)")
        }
        #expect(refusal([Member(.file, Array(repeating: 0x61, count: 256))]) == .invalidArguments)
        #expect(refusal([Member(.file, Array(repeating: 0x61, count: 255))]) == nil)
        // Any other bytes are a name.
        #expect(refusal([Member(.file, [0xff, 0x01]), Self.file("e\u{301}"), Self.file("\u{e9}")]) == nil)
    }

    @Test func whatLiesInNoFolderOfTheListIsRefused() {
        #expect(refusal([Self.file("a"), Self.file("a")]) == .invalidArguments)
        #expect(refusal([Self.folder("a"), Self.file("a")]) == .invalidArguments)
        #expect(refusal([Self.file("a/b")]) == .invalidArguments)
        #expect(refusal([Self.file("a"), Self.file("a/b")]) == .invalidArguments)
        let link = Member(.link, Self.bytes("a"), target: Self.bytes("/etc"))
        #expect(refusal([link, Self.file("a/b")]) == .invalidArguments)
        #expect(refusal([Self.folder("a"), Self.file("a/b")]) == nil)
    }

    @Test func whatOnlyAFileHasNothingElseHas() {
        func refusal(_ kind: Member.Kind, _ change: (inout Member) -> Void) -> CloudError.Code? {
            var member = Member(kind, Self.bytes("a"), target: kind == .link ? [0x2e] : [])
            change(&member)
            return self.refusal([member])
        }
        for kind in [Member.Kind.folder, .link] {
            #expect(refusal(kind) { _ in } == nil)
            #expect(refusal(kind) { $0.isExecutable = true } == .invalidArguments)
            #expect(refusal(kind) { $0.modified = 1 } == .invalidArguments)
            #expect(refusal(kind) { $0.length = 1 } == .invalidArguments)
        }
        #expect(refusal(.file) { $0.target = [0x2e] } == .invalidArguments)
        #expect(refusal(.link) { $0.target = [] } == .invalidArguments)
        #expect(refusal(.link) { $0.target = [0x61, 0] } == .invalidArguments)
        #expect(refusal(.link) { $0.target = Array(repeating: 0x61, count: 4096) } == .invalidArguments)
        let twice = PackageList.Attribute(name: [0x61], value: [])
        #expect(refusal(.file) { $0.attributes = [twice, twice] } == .invalidArguments)
        #expect(refusal(.file) { $0.attributes = [PackageList.Attribute(name: [], value: [])] } == .invalidArguments)
        let large = PackageList.Attribute(name: [0x61], value: Array(repeating: 0, count: 32 << 10))
        #expect(refusal(.file) { $0.attributes = [large] } == .limitExceeded)
    }

    @Test func theBoundsOfAPackageAreChecked() {
        let deep = (0..<129).map { depth in Self.folder(Array(repeating: "d", count: depth + 1).joined(separator: "/"))
        }
        #expect(refusal(deep) == .limitExceeded && refusal(Array(deep.dropLast())) == nil)
        // 16 names of 255 bytes, and the slashes between them.
        let long = (1...17).map {
            Self.folder(Array(repeating: String(repeating: "n", count: 255), count: $0).joined(separator: "/"))
        }
        #expect(refusal(Array(long[..<16])) == nil && refusal(long) == .limitExceeded)
        let many = (0..<DocumentLimits.packageMembersMax + 1).map { Self.file("\($0)") }
        #expect(refusal(many) == .limitExceeded && refusal(Array(many.dropLast())) == nil)
        let attribute = PackageList.Attribute(name: [0x61], value: Array(repeating: 0, count: 32_000))
        let wide = (0..<524).map { Member(.file, Self.bytes("\($0)"), attributes: [attribute]) }
        #expect(refusal(wide) == .limitExceeded && refusal(Array(wide[..<500])) == nil)
        #expect(refusal([Self.file("a", length: 1 << 44)]) == .limitExceeded)
        #expect(refusal([Self.file("a", length: .max)]) == .invalidArguments)
        #expect(refusal([Self.file("a", length: 1 << 43), Self.file("b", length: 1 << 43)]) == .limitExceeded)
    }

    @Test func eachRuleOfTheBytesIsChecked() throws {
        let good = try PackageList(Self.example).encoded()
        let length = UInt64(good.count + 23)
        func refusal(_ length: UInt64 = length, _ change: (inout [UInt8]) -> Void) -> CloudError.Code? {
            var bytes = good
            change(&bytes)
            return code { _ = try read(bytes, contentLength: length) }
        }
        #expect(refusal { _ in } == nil)
        #expect(refusal(length + 1) { _ in } == .invalidArguments)
        #expect(refusal(length - 1) { _ in } == .invalidArguments)
        #expect(refusal(15) { _ in } == .invalidArguments)
        #expect(refusal { $0[0] = 0 } == .invalidArguments)
        #expect(refusal { $0[8] = 2 } == .incompatibleVersion)
        #expect(refusal { $0[8] = 0 } == .incompatibleVersion)
        #expect(refusal { $0[15] = 0xff } == .limitExceeded)
        #expect(refusal { $0[12] += 1 } == .invalidArguments)
        #expect(refusal { $0[12] -= 1 } == .invalidArguments)
        #expect(refusal { $0.append(0) } == .invalidArguments)
        #expect(refusal { $0.removeLast() } == .invalidArguments)
        #expect(refusal { $0[16] = 0 } == .invalidArguments)
        #expect(refusal { $0[16] = 4 } == .invalidArguments)
        #expect(refusal { $0[17] = 2 } == .invalidArguments)
        // The first path is longer than the list.
        #expect(refusal { $0[19] = 0xff } == .invalidArguments)
        #expect(refusal { $0[22] = 65 } == .invalidArguments)
        // The second member stands before the first.
        #expect(refusal { $0[40] = UInt8(ascii: "z") } == .invalidArguments)
        for count in 0..<good.count { #expect(refusal { $0 = Array($0[..<count]) } != nil, "\(count)") }
    }

    /// Whatever comes is read or refused, and what is read is written as it was.
    @Test func hostileBytesAreRefusedAndEndNothing() throws {
        let good = try PackageList(Self.example).encoded()
        var random = SplitMix64(seed: 7)
        for _ in 0..<20_000 {
            var bytes = good
            for _ in 0...Int(random.next() % 4) {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            guard let list = try? read(bytes, contentLength: UInt64(bytes.count + 23)) else { continue }
            #expect(list.encoded() == bytes)
        }
    }
}
