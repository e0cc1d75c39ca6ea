import Foundation
import NephosKit

/// The photos of the account: a folder of its container, the same on all devices.
struct Album: Sendable {
    private static let path = "Photos"
    let container: UbiquityContainer

    /// Puts the files of a local folder as they appear or change. Looks once a second.
    func upload(from folder: URL) async throws {
        var uploaded: [URL: Date] = [:]
        while true {
            for (file, modified) in try Self.files(in: folder) where uploaded[file] != modified {
                // A file that is still being written is put when it is complete.
                if await put(file) { uploaded[file] = modified }
            }
            try await Task.sleep(for: .seconds(1))
        }
    }

    private static func files(in folder: URL) throws -> [URL: Date] {
        let files = try FileManager.default.contentsOfDirectory(
            at: folder, includingPropertiesForKeys: nil, options: .skipsHiddenFiles)
        return try files.reduce(into: [:]) { dates, file in
            let values = try file.resourceValues(forKeys: [.isRegularFileKey, .contentModificationDateKey])
            if values.isRegularFile == true { dates[file] = values.contentModificationDate }
        }
    }

    /// Returns once the file is on this device's disk. The session uploads it in the background.
    private func put(_ file: URL) async -> Bool {
        await report(file.lastPathComponent) { () throws(CloudError) in
            try await container.localFiles.put(file, at: "\(Self.path)/\(file.lastPathComponent)", makesFolders: true)
        }
    }

    /// Prints how much of each photo the server has.
    func showUploads() async throws {
        for try await event in try container.query("kind == 'file'", scope: .folder(Self.path)) {
            guard case .updated(let update) = event else { continue }
            for photo in update.added + update.changed {
                switch photo.state {
                case .waiting, .uploading: print("\(photo.name): \(photo.percent) %")
                case .current: print("\(photo.name): uploaded")
                case .refused: print("\(photo.name): rejected by the server, see `nephos why`")
                default: break
                }
            }
        }
    }

    /// Downloads all photos into a local folder, then each new one as it comes.
    func download(to folder: URL) async throws {
        var downloaded: [DocumentID: DocumentID] = [:]
        for try await event in try container.query("kind == 'file'", scope: .folder(Self.path)) {
            let photos: [DocumentEntry] =
                switch event {
                case .gathered(let photos): photos
                case .updated(let update): update.added + update.changed
                case .finishedGathering: []
                }
            for photo in photos where downloaded[photo.id] != photo.version {
                if await get(photo, to: folder) { downloaded[photo.id] = photo.version }
            }
        }
    }

    private func get(_ photo: DocumentEntry, to folder: URL) async -> Bool {
        await report(photo.name) { () throws(CloudError) in
            try await container.localFiles.get(photo.id, to: folder.appendingPathComponent(photo.name))
            print("\(photo.name): downloaded")
        }
    }

    /// One photo that fails does not stop the others.
    private func report(_ name: String, _ transfer: () async throws(CloudError) -> Void) async -> Bool {
        do throws(CloudError) {
            try await transfer()
            return true
        } catch {
            print("\(name): \(error.message)")
            return false
        }
    }
}
