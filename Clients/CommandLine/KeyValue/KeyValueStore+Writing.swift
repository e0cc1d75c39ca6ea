import NephosCore
import NephosKit

extension ReadResult {
    /// Whether the key has this value; nil: none.
    func holds(_ value: PropertyValue?) -> Bool { self.value?.canonicalBytes == value?.canonicalBytes }
}

extension KeyValueStore {
    /// Writes over what the server has, as far as it answers within a second: what other devices wrote before counts as
    /// older then, whatever this device's clock says. If this device's copy has no room, the server is asked for as long as
    /// the command may wait: another device may have made some.
    ///
    /// - Throws: What the write throws; where the server does not answer in time, what it threw by the copy.
    func write(
        _ session: Session, _ network: KeyValueCommand.NetworkOptions, _ write: () throws -> Void
    ) async throws {
        if try session.account != nil { try await network.refresh.bring(scope) }
        do { try write() } catch let refusal as CloudError where refusal.code == .quotaExceeded && !network.offline {
            do { try await waitUntilCurrent(timeout: network.duration, isImpatient: true) } catch { throw refusal }
            try write()
        }
    }
}
