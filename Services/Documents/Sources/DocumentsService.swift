internal import Foundation
public import NephosBulk
public import NephosBus
internal import NephosContent
public import NephosCore
public import NephosServiceKit
public import NephosStorage

/// Files and folders of ubiquity containers. So far it moves content: chunks that devices send and fetch, which belong
/// to their uploads until there are documents.
public final class DocumentsService: CloudService {
    public let name = ServiceName.documents
    public let migrations = Transfers.migrations

    private let transfers: Transfers

    public init(_ transfers: Transfers) { self.transfers = transfers }

    public func register(on router: inout Router) { transfers.register(on: &router) }
    public func start(_ host: any ServiceRuntime) throws { try transfers.start(host, as: name) }
    public func stop() { transfers.stop() }
    public func learned(_ fact: DirectoryFact) { transfers.learned(fact) }

    public func drop(partition: Int) { transfers.drop(partition: partition) }

    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        try transfers.removeRemains(of: account, in: transaction)
    }

    /// The service as it runs by itself: with segment files in the folder `content` of its data.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`: the folder cannot be made; `.storageFailure`: another process
    ///   has it open.
    public static func make(_ config: ServiceRuntimeConfig, on transport: any Transport) throws -> DocumentsService {
        let folder = config.dataDirectory + "/content"
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw CloudError(
                .configurationInvalid, "The folder for content cannot be made. Check its path and owner.",
                details: ["folder": folder])
        }
        return DocumentsService(Transfers(store: try SegmentStore(folder: folder), transport: transport))
    }
}
