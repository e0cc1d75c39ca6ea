import Foundation
import GRDB
package import NephosCore
import NephosWire
import SwiftProtobuf

/// A home with a container of so many items, as if somebody had signed in and downloaded it. No server knows of it: for
/// measurements of what a device does by itself.
package enum SampleContainer {
    package static let app = AppID("LOAD.sample")
    package static let name = "LOAD.sample.documents"
    /// Items of a folder.
    private static let folderItems = 100
    /// Items that are written at once.
    private static let batch = 10_000

    /// Fills a home that nobody has open.
    ///
    /// - Parameters:
    ///   - count: Items: one of a hundred is a folder, one of ten files a PDF.
    ///   - onProgress: Gets how many there are.
    /// - Throws: ``CloudError`` `.storageFailure`.
    package static func fill(
        home: String, count: Int, onProgress: (Int) -> Void = { _ in }
    ) throws(CloudError) {
        let local = try LocalStore(path: home + "/device.sqlite")
        try local.prepare(DocumentsModel.migrations)
        let session = session
        let scope = DocumentsModel.place(of: name, in: session)
        try local.write { try Facts($0).setSession(session) }
        var generator = SplitMix64(seed: 1)
        var folder = DocumentID.documents
        var folders: [DocumentID] = [.documents]
        for start in stride(from: 0, to: count, by: batch) {
            try local.write { database in
                let documents = DocumentTransaction(ScopeTransaction(database, scope))
                var state = try documents.rows.state()
                state.synced = true
                for number in start..<min(count, start + batch) {
                    let id = DocumentID.random(using: &generator)
                    let isFolder = number % folderItems == 0
                    // Folders lie in those before them, so that the tree is some levels deep.
                    let parent = isFolder ? folders[folders.count / 8] : folder
                    let item = item(number, isFolder: isFolder, in: parent, &generator)
                    if isFolder {
                        folder = id
                        folders.append(id)
                    }
                    let row = DocumentTransaction.Synced(
                        name: id.name, sequence: UInt64(number + 1), body: try item.serializedData())
                    try documents.put(row, replacing: nil, &state)
                }
                try documents.rows.save(state)
            }
            onProgress(min(count, start + batch))
        }
        local.checkpoint()
    }

    private static func item(
        _ number: Int, isFolder: Bool, in parent: DocumentID, _ generator: inout SplitMix64
    ) -> WireDocumentItem {
        var item = WireDocumentItem()
        item.kind = isFolder ? .folder : .file
        item.parent = parent.wire
        item.name = Data(
            "\(isFolder ? "Folder" : "Report of the year") \(number)\(isFolder ? "" : ending(number))".utf8)
        item.placeVersion = DocumentID.random(using: &generator).wire
        item.attributes.created = 1_700_000_000_000_000_000 + Int64(number) * 1_000_000_000
        guard !isFolder else { return item }
        item.content.version = DocumentID.random(using: &generator).wire
        item.content.length = .random(in: 5000..<5_000_000, using: &generator)
        item.content.root = Data((0..<32).map { _ in UInt8.random(in: 0...255, using: &generator) })
        item.content.modified = item.attributes.created + .random(in: 0..<1 << 50, using: &generator)
        item.content.deviceID = "sample"
        item.content.appID = app.rawValue
        item.content.committed = item.content.modified
        return item
    }

    private static func ending(_ number: Int) -> String {
        number % 10 == 0 ? ".pdf" : [".txt", ".jpg", ".odt"][number % 3]
    }

    private static var session: SessionRecord {
        // Nobody listens there.
        let identity = SessionRecord.Service(
            service: ServiceName.identity.rawValue, publicKey: "", requests: ["tcp://127.0.0.1:9"], subscriptions: [])
        return SessionRecord(
            accountID: AccountID("sample"), accountName: "sample", deviceID: DeviceID("sample"), deviceName: "sample",
            identityToken: "sample", signedIn: true, defaultApp: app, storeIDs: [app.rawValue: app.rawValue],
            containerIDs: [app.rawValue: [name]], services: [], identity: identity, revoked: false)
    }
}
