import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

extension RecordCloud {
    func publicDatabase(of device: Device) async throws -> RecordDatabase {
        try await device.session.recordContainer(app: Self.app).publicDatabase
    }

    func setSlow(_ time: Duration?) { simulation.use { $0.network.offloadTime = time } }

    /// Lets time pass until so many bytes of assets are sent.
    func upload(_ bytes: Int, _ device: Device) async throws -> Int {
        for _ in 0..<10_000 {
            let progress = try await device.database.uploadProgress(zone: RecordZone.defaultName)
            if progress.done >= bytes { return progress.done }
            simulation.pass(.milliseconds(20))
        }
        throw CloudError(.deadlineExceeded, "It was not sent.")
    }

    /// What has to be sent, once that is known.
    func uploadTotal(_ device: Device) async throws -> Int {
        for _ in 0..<10_000 {
            let progress = try await device.database.uploadProgress(zone: RecordZone.defaultName)
            if progress.total > 0 { return progress.total }
            simulation.pass(.milliseconds(5))
        }
        return 0
    }

    /// Uploads of which the service keeps something.
    func uploadCount() throws -> Int64 {
        simulation.pass(.seconds(5))
        return try simulation.use {
            try $0.storage(of: .records).write { try $0.first(Self.countUploads, []) { $0.integer(0) } ?? -1 }
        }
    }

    private static let countUploads = SQL("SELECT COUNT(*) FROM storage_reservations")
}
