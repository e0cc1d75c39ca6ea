import Foundation
import NephosContent
import NephosCore
import NephosServiceKit
import NephosStorage
import Testing

@testable import NephosBackup

/// Documents and records have segments of the same partition and number, and each has its own.
@Suite struct EqualSegmentTests {
    /// With one segment of each service, which differ by their bytes alone.
    private static func house() throws -> (house: BackupHouse, segment: SegmentID) {
        let house = try BackupHouse()
        let own = try house.put("a", partition: 1)
        #expect(try house.put("b", partition: 1, of: .records) == own)
        return (house, own.segment)
    }

    @Test func eachIsCopiedToAPlaceOfItsOwn() throws {
        let (house, segment) = try Self.house()
        let first = try house.backup()
        #expect(first.copiedSegments == 2)
        #expect(
            first.manifest.segments.map(\.id) == [
                ServiceSegment(.documents, segment), ServiceSegment(.records, segment),
            ])
        for service in Deployment.contentServices {
            let copy = FileManager.default.contents(atPath: try house.copy(segment, of: service))
            #expect(copy == FileManager.default.contents(atPath: try house.file(segment, of: service)))
        }
        #expect(try house.verify() == [[]])
        #expect(try house.backup(at: 1).copiedSegments == 0)
        // One grows, and the other is as it was.
        try house.put("more", partition: 1, of: .records)
        let third = try house.backup(at: 2)
        #expect(third.copiedSegments == 1)
        #expect(third.manifest.segmentBytes(of: .documents) == first.manifest.segmentBytes(of: .documents))
        #expect(third.manifest.segmentBytes(of: .records) > first.manifest.segmentBytes(of: .records))
        #expect(try house.verify() == [[], [], []])
    }

    @Test(arguments: Deployment.contentServices) func damageIsThatOfOneServicesSegment(service: ServiceName) throws {
        let (house, segment) = try Self.house()
        let made = try house.backup()
        let copy = try house.copy(segment, of: service)
        try BackupTests.flip(copy, at: 100)
        #expect(try house.verify().map { $0.map { $0.details["file"] } } == [[copy]])
        #expect { try house.restore(to: house.elsewhere(), made.snapshot) } throws: {
            let error = $0 as? CloudError
            return error?.code == .storageFailure && error?.details["file"] == copy
        }
        // The next backup makes that one anew, and no other.
        #expect(try house.backup(at: 1).copiedSegments == 1)
        #expect(try house.verify() == [[], []])
        unlink(copy)
        #expect(try house.verify().map(\.count) == [1, 1])
        #expect(try house.backup(at: 2).copiedSegments == 1)
        #expect(try house.verify() == [[], [], []])
    }

    @Test(arguments: Deployment.contentServices) func aSegmentThatIsGoneIsThatOfItsService(service: ServiceName) throws
    {
        let (house, segment) = try Self.house()
        let own = try house.file(segment, of: service)
        // The only one that is gone: else its disk would be taken for not mounted.
        try house.put("c", partition: 2, of: service)
        #expect {
            try house.backup {
                guard $0 == "databases" else { return }
                try house.forgetContent(of: service)
                unlink(own)
            }
        } throws: { ($0 as? CloudError)?.details["file"] == own }
        #expect(try house.folder.snapshots().isEmpty)
    }

    @Test func eachIsRestoredToItsService() throws {
        let (house, _) = try Self.house()
        try house.put("c", partition: 2)
        try house.put("d", partition: 3, of: .records)
        try house.backup()
        let place = house.elsewhere()
        let plan = try Restore(from: house.folder, to: place, keys: .unknown).plan(nil) { _ in }
        #expect(plan.bytes == plan.manifest.databaseBytes + plan.manifest.segmentBytes)
        try house.restore(to: place)
        try house.requireContent(in: place)
        for (service, partitions) in [ServiceName.documents: ["0001", "0002"], .records: ["0001", "0003"]] {
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: place.contentFolder(of: service)).sorted()
                    == partitions)
        }
        // What a host has of either is not written over.
        for service in Deployment.contentServices {
            let other = house.elsewhere("other-\(service)")
            try FileManager.default.createDirectory(
                atPath: other.contentFolder(of: service), withIntermediateDirectories: true)
            #expect { try house.restore(to: other) } throws: {
                let error = $0 as? CloudError
                return error?.code == .alreadyExists && error?.details["services"] == service.rawValue
            }
        }
    }

    @Test(arguments: Deployment.contentServices) func whatOneServiceForgetsTheOtherKeeps(service: ServiceName) throws {
        let (house, segment) = try Self.house()
        let other: ServiceName = service == .documents ? .records : .documents
        let rule = Retention(daily: 1, weekly: 0, monthly: 0)
        try house.backup(keep: rule)
        try house.forgetContent(of: service)
        try house.backup(at: 1, keep: rule)
        #expect(FileCopy.byteCount(try house.copy(segment, of: service)) == nil)
        #expect(FileCopy.byteCount(try house.copy(segment, of: other)) != nil)
        #expect(try house.verify() == [[]])
        let place = house.elsewhere()
        try house.restore(to: place)
        try house.requireContent(in: place)
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.contentFolder(of: service)).isEmpty)
    }

    /// A disk of a size, at a folder; nil: this user cannot make one.
    private static func disk(_ folder: String, megabytes: Int) throws -> Bool {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        return mount("tmpfs", folder, "tmpfs", 0, "size=\(megabytes)m,mode=700") == 0
    }

    private static func putEightMegabytes(_ house: BackupHouse, of service: ServiceName) throws {
        for number in 0..<8 { try house.put("\(number)", bytes: 1_000_000, of: service) }
    }

    @Test func whereThereIsNoRoomForBothNoneIsCopied() throws {
        let house = try BackupHouse()
        guard try Self.disk(house.folder.path, megabytes: 30) else { return }
        defer { umount2(house.folder.path, Int32(MNT_DETACH)) }
        for service in Deployment.contentServices { try Self.putEightMegabytes(house, of: service) }
        #expect { try house.backup() } throws: {
            ($0 as? CloudError)?.details["needed_bytes"].flatMap { Int($0) } ?? 0 > 16_000_000
        }
        for service in Deployment.contentServices {
            #expect(try house.folder.segmentFiles(of: service).isEmpty, "\(service)")
        }
    }

    @Test func eachServicesDiskNeedsRoomForItsOwnContent() throws {
        let house = try BackupHouse()
        try Self.putEightMegabytes(house, of: .records)
        try house.backup()
        for service in Deployment.contentServices {
            let place = house.elsewhere("elsewhere-\(service)")
            let folder = place.folder(of: service)
            guard try Self.disk(folder, megabytes: 20) else { return }
            defer { umount2(folder, Int32(MNT_DETACH)) }
            if service == .records {
                #expect { try house.restore(to: place) } throws: {
                    ($0 as? CloudError)?.message.contains("not enough room") == true
                }
            } else {
                try house.restore(to: place)
            }
        }
    }
}
