import Foundation
import NephosContent
import NephosCore
import NephosServiceKit
import NephosStorage
import Testing

@testable import NephosBackup

/// Links that somebody else has put where root reads and writes.
@Suite struct PlantedLinkTests {
    private static func isLinkRefusal(_ error: any Error) -> Bool {
        (error as? CloudError)?.message.contains("A link lies") == true
    }

    /// A folder and a file that nobody may touch, and how they are.
    private final class Victim {
        let folder: String
        var file: String { folder + "/file" }
        let content = Data("as it was".utf8)

        init(_ house: BackupHouse) throws {
            folder = house.root + "/victim"
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            try content.write(to: URL(fileURLWithPath: file))
        }

        func requireUntouched(_ what: String) throws {
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["file"], "\(what)")
            #expect(FileManager.default.contents(atPath: file) == content, "\(what)")
            var information = stat()
            #expect(stat(file, &information) == 0 && information.st_uid == geteuid(), "\(what)")
        }
    }

    @Test(arguments: Deployment.contentServices) func aRestoreFollowsNoLinkInAServicesFolder(
        service: ServiceName
    ) throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 1, of: .records)
        try house.backup()
        let victim = try Victim(house)
        for (index, name) in [
            "\(service).sqlite.lock", ".restoring", "restore.unfinished", "content", "\(service).sqlite",
        ].enumerated() {
            for target in [victim.folder, victim.file, "/dev/zero"] {
                let place = house.elsewhere("elsewhere-\(index)-\(target.utf8.count)")
                let folder = place.folder(of: service)
                try FileManager.default.createDirectory(
                    atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
                // As root it is a service's user's.
                chown(folder, 12345, 12345)
                symlink(target, folder + "/" + name)
                do {
                    let outcome = try house.restore(to: place, inPlace: true)
                    try house.requireContent(in: place)
                    // What was there is aside, as the link that it was.
                    if name == "content" || name == "\(service).sqlite" {
                        #expect(FileCopy.isLink(try #require(outcome.aside.first) + "/" + name), "\(name)")
                    }
                    #expect(name != "\(service).sqlite.lock")
                } catch {
                    #expect(
                        name == "\(service).sqlite.lock" && Self.isLinkRefusal(error), "\(name) \(target): \(error)")
                }
                try victim.requireUntouched("\(name) to \(target)")
            }
        }
    }

    @Test(arguments: Deployment.contentServices) func aLinkThatComesWhileItRestoresLeadsNowhere(
        service: ServiceName
    ) throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1, of: service)
        try house.put("b", partition: 2, of: service)
        try house.backup()
        let victim = try Victim(house)
        let place = house.elsewhere()
        let folder = place.folder(of: service)
        // Whoever owns the folder exchanges what root is writing into.
        #expect(throws: (any Error).self) {
            try house.restore(to: place) { point in
                guard point == "segment", !FileCopy.isLink(folder + "/.restoring") else { return }
                rename(folder + "/.restoring", folder + "/taken")
                symlink(victim.folder, folder + "/.restoring")
            }
        }
        try victim.requireUntouched("while it copies")
        #expect(throws: (any Error).self) {
            try house.restore(to: place, inPlace: true) { point in
                guard point == "marked" else { return }
                rename(folder + "/.restoring", folder + "/taken-too")
                symlink(victim.folder, folder + "/.restoring")
            }
        }
        try victim.requireUntouched("while it moves")
    }

    @Test func whatRootHasRestoredIsTheServices() throws {
        guard geteuid() == 0 else { return }
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 1, of: .records)
        try house.backup()
        let place = house.elsewhere()
        for service in ServiceName.all {
            let folder = place.folder(of: service)
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            try Data("before".utf8).write(to: URL(fileURLWithPath: place.database(of: service)))
            chown(folder, 12345, 12346)
        }
        let outcome = try house.restore(to: place, inPlace: true)
        for service in ServiceName.all {
            let folder = place.folder(of: service)
            for case let name as String in FileManager.default.enumerator(atPath: folder) ?? .init() {
                guard !name.hasPrefix("before-restore-") || !name.contains("/") else { continue }
                var information = stat()
                #expect(stat(folder + "/" + name, &information) == 0)
                #expect(information.st_uid == 12345 && information.st_gid == 12346, "\(name)")
                #expect(information.st_mode & 0o077 == 0, "\(name)")
            }
        }
        #expect(outcome.aside.count == 5)
    }

    @Test func aBackupReadsThroughNoLink() throws {
        let house = try BackupHouse()
        let segments = try Deployment.contentServices.map {
            try house.file(house.put("a", partition: 1, of: $0).segment, of: $0)
        }
        let victim = try Victim(house)
        for path in segments + [house.place.database(of: .keyValue)] {
            rename(path, path + ".own")
            for target in [victim.file, path + ".own"] {
                symlink(target, path)
                #expect { try house.backup() } throws: { Self.isLinkRefusal($0) }
                unlink(path)
            }
            rename(path + ".own", path)
        }
        _ = try house.backup()
        try victim.requireUntouched("backup")
    }

    @Test func aBackupWritesAndRemovesThroughNoLink() throws {
        let house = try BackupHouse()
        let segment = try #require(try house.put("a", partition: 1).segment.filePath)
        try house.put("a", partition: 1, of: .records)
        try house.backup()
        let victim = try Victim(house)
        let folder = house.folder
        let services = Deployment.contentServices.map(folder.segmentsPath(of:))
        for service in Deployment.contentServices { try house.put("b", partition: 2, of: service) }
        for path in services + services.map({ $0 + "/0002" })
            + [folder.segmentsPath, folder.snapshotsPath, folder.path + "/.lock"]
        {
            rename(path, path + ".own")
            symlink(path.hasSuffix(".lock") ? victim.file : victim.folder, path)
            #expect { try house.backup(at: 1) } throws: { Self.isLinkRefusal($0) }
            try victim.requireUntouched(path)
            unlink(path)
            rename(path + ".own", path)
        }
        // What lies behind a link is not thinned out.
        let elsewhere = victim.folder + "/0001"
        try FileManager.default.createDirectory(atPath: elsewhere, withIntermediateDirectories: true)
        let file = elsewhere + "/" + (segment as NSString).lastPathComponent
        try victim.content.write(to: URL(fileURLWithPath: file))
        for service in services { symlink(elsewhere, service + "/0009") }
        _ = try house.backup(at: 1, keep: Retention("last=1,daily=1"))
        #expect(FileManager.default.contents(atPath: file) == victim.content)
    }

    /// The operator's own links, above the services' folders, are followed.
    @Test func theOperatorsLinksAreFollowed() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let data = house.place.dataFolder
        rename(data, house.root + "/data")
        symlink(house.root + "/data", data)
        rename(data + "/documents", house.root + "/documents")
        symlink(house.root + "/documents", data + "/documents")
        try house.backup()
        #expect(try house.verify() == [[]])
        house.close()
        try house.restore(to: house.place, inPlace: true)
        #expect(FileManager.default.fileExists(atPath: house.place.files.rosterPath))
        #expect(FileManager.default.fileExists(atPath: house.root + "/documents/documents.sqlite"))
        // But for the deployment's own folder, where no service would start.
        symlink(house.root + "/one", house.root + "/link")
        #expect { try house.restore(to: house.elsewhere("link")) } throws: {
            ($0 as? CloudError)?.message.contains("folder is a link") == true
        }
        #expect(FileCopy.isLink(data) && FileCopy.isLink(data + "/documents"))
    }
}
