internal import Foundation
public import NephosBus
internal import NephosContent
internal import NephosCore

extension Transfers {
    /// With segment files in the folder `content` of a service's data.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`: the folder cannot be made; `.storageFailure`: another process
    ///   has it open.
    public static func make(in dataDirectory: String, on transport: any Transport) throws -> Transfers {
        let folder = dataDirectory + "/content"
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw CloudError(
                .configurationInvalid, "The folder for content cannot be made. Check its path and owner.",
                details: ["folder": folder])
        }
        return Transfers(store: try SegmentStore(folder: folder), transport: transport)
    }
}
