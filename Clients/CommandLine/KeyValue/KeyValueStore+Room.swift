import NephosCore
import NephosKit

extension KeyValueStore {
    /// Writes. Where this device's copy has no room the server is asked first: another device may have made some.
    ///
    /// - Throws: What the write throws; where the server does not answer in time, what it threw by the copy.
    func writeWhereThereIsRoom(
        _ network: KeyValueCommand.NetworkOptions, _ write: () throws -> Void
    ) async throws {
        do { try write() } catch let refusal as CloudError where refusal.code == .quotaExceeded && !network.offline {
            do { try await waitUntilCurrent(timeout: network.duration, isImpatient: true) } catch { throw refusal }
            try write()
        }
    }
}
