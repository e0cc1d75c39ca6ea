import Foundation
import NephosCore
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// The items of docs/protocol/documents.md, and their digests.
@Suite struct DigestVectorTests {
    private static func bytes(from first: UInt8, count: Int = 16) -> Data { Data(first..<first + UInt8(count)) }

    private static func hexadecimal(_ data: Data) -> String {
        data.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static let folder = {
        var item = WireDocumentItem()
        item.kind = .folder
        item.parent = Data(count: 15) + [1]
        item.name = Data("Letters".utf8)
        item.placeVersion = bytes(from: 0x30)
        item.attributes.created = 1_700_000_000_000_000_000
        return item
    }()

    private static let file = {
        var item = WireDocumentItem()
        item.kind = .file
        item.parent = bytes(from: 0x10)
        item.name = Data("note.txt".utf8)
        item.placeVersion = bytes(from: 0x40)
        item.content.version = bytes(from: 0x50)
        item.content.length = 13
        item.content.inline = Data("hello, nephos".utf8)
        item.content.modified = 1_700_000_000_500_000_000
        item.content.deviceID = "dev_one"
        item.content.appID = "T.files"
        item.content.committed = 1_700_000_001_000_000_000
        item.attributes.created = 1_700_000_000_500_000_000
        item.attributes.executable = true
        var mark = WireExtendedAttribute()
        (mark.name, mark.value) = (Data("user.mark".utf8), Data([1, 2]))
        item.attributes.extended = [mark]
        item.attributes.tags = ["red"]
        item.attributes.favouriteRank = 3
        return item
    }()

    @Test func theItemsOfTheProtocolHaveItsBytesAndItsDigests() throws {
        let key = [UInt8](Self.bytes(from: 0, count: 32))
        let bodies: [Data] = [try Self.folder.serializedBytes(), try Self.file.serializedBytes()]
        #expect(
            bodies.map(Self.hexadecimal) == [
                """
                08021210000000000000000000000000000000011a074c6574746572732210303132333435363738393a3b3c3d3e3f32\
                0a088080d0e2c6bfce972f
                """,
                """
                08011210101112131415161718191a1b1c1d1e1f1a086e6f74652e7478742210404142434445464748494a4b4c4d4e4f\
                2a490a10505152535455565758595a5b5c5d5e5f180d220d68656c6c6f2c206e6570686f73388094bbbfcabfce972f42\
                076465765f6f6e654a07542e66696c65735080a8a69ccebfce972f3224088094bbbfcabfce972f10011a0f0a09757365\
                722e6d61726b1202010222037265642806
                """,
            ])
        let shares = zip([0x10, 0x20] as [UInt8], bodies).map { first, body in
            SetDigest(ofItem: ItemName(Self.hexadecimal(Self.bytes(from: first))), body: body, key: key)
        }
        #expect(
            shares.map(\.description) == [
                "9bbcd8490e922a2e2a5da783c8385b80f1c42f210b439751b400555fcd5fde8e",
                "a1126c00055a76120b16d2144509f07f732571b945ef9885f49b9eeb78131a20",
            ])
        var both = shares[0]
        both.add(shares[1])
        #expect(both.description == "3ccf444a13eca040357379980d424b0064eaa0da503230d7a89cf34a4673f8ae")
    }

    private struct FolderVector: Decodable {
        struct Item: Decodable {
            var name: String
            var body: String
        }
        var key: String
        var items: [Item]
        var folders: [String: String]
    }

    private struct Vectors: Decodable {
        enum CodingKeys: String, CodingKey { case folderDigests = "folder_digests" }
        var folderDigests: [FolderVector]
    }

    private static func bytes(_ hexadecimal: String) -> Data {
        let digits = Array(hexadecimal)
        return Data(stride(from: 0, to: digits.count, by: 2).map { UInt8(String(digits[$0...$0 + 1]), radix: 16) ?? 0 })
    }

    /// `docs/vectors.json`.
    @Test func theFoldersOfTheVectorsHaveTheirDigests() throws {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "docs/vectors.json")
        let vectors = try JSONDecoder().decode(Vectors.self, from: Data(contentsOf: page)).folderDigests
        #expect(!vectors.isEmpty)
        for vector in vectors {
            let local = try LocalStore()
            try local.prepare(DocumentTransaction.migrations)
            let (key, scope) = (
                [UInt8](Self.bytes(vector.key)), LocalScope(account: AccountID("a"), service: .documents, path: "c")
            )
            let digests = try local.write { database in
                let documents = DocumentTransaction(ScopeTransaction(database, scope))
                var state = ScopeState()
                state.digestKey = key
                for item in vector.items {
                    let synced = DocumentTransaction.Synced(
                        name: ItemName(item.name), sequence: 1, body: Self.bytes(item.body))
                    try documents.put(synced, replacing: nil, &state)
                }
                let all = try documents.computedDigest(key: key)
                #expect(try all == documents.folderDigest(of: .top, key: key) && all == state.digest)
                return try vector.folders.keys.map { folder in
                    (folder, try documents.folderDigest(of: DocumentID(folder) ?? .top, key: key).description)
                }
            }
            #expect(Dictionary(digests) { $1 } == vector.folders)
        }
    }
}
