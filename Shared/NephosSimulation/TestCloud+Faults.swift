internal import Foundation
internal import NephosBus
internal import NephosContent
package import NephosCore
internal import NephosKit
package import NephosServiceKit
internal import NephosStorage

// Where the names of ``FaultPoint`` lead to.
extension TestCloud {
    /// How long a service is away that was ended half-way.
    private static let restartPause: Duration = .seconds(1)

    func makeDisk(_ engine: SQLiteEngine, of service: ServiceName) -> Disk {
        Disk(
            engine, of: service, faults: faults,
            stall: { [weak self] in self?.network.stall(service.rawValue, for: $0) },
            kill: { [weak self] in self?.restartByItself(service) })
    }

    /// The same, of the disk that contents lie on.
    func makeStore(over store: any BlobStore, of service: ServiceName) -> any BlobStore {
        FaultyStore(
            store,
            reach: { [weak self] place in
                guard let self, disks[service]?.isInUse == true else { return .proceed }
                return faults.reach("\(service).\(place)")
            },
            stall: { [weak self] in self?.network.stall("\(service) bulk", for: $0) },
            kill: { [weak self] in self?.restartByItself(service) })
    }

    /// What runs a service now.
    package func host(of service: ServiceName) -> ServiceHost? { hosts[service] }

    private func restartByItself(_ service: ServiceName) {
        crash(service)
        startLater(service)
    }

    /// As whoever supervises services does: again and again until it runs.
    private func startLater(_ service: ServiceName) {
        network.later(Self.restartPause) { [weak self] in
            guard let self, !running.contains(service) else { return }
            do { try start(service) } catch { startLater(service) }
        }
    }

    /// What becomes of a message that a loop sends, publishes or receives.
    func fate(at loop: String, _ passage: Passage) -> Fate {
        guard faults.isArmed, let owner = owner(of: loop) else { return .passes }
        return switch faults.reach("\(owner.name).\(passage)", on: owner.device) {
        case .proceed: .passes
        case .fail: .lost
        case .halfDone: .breaks
        case .slow(let delay): .late(delay)
        }
    }

    private func owner(of loop: String) -> (name: String, device: String?)? {
        let service = ServiceName(loop.split(separator: " ").first.map(String.init) ?? loop)
        if disks[service] != nil { return (service.rawValue, nil) }
        let isDevice = devices.contains { $0.name == loop } || guests.contains { $0.name == loop }
        return isDevice ? ("device", loop) : nil
    }

    /// What a device calls where it reads and saves.
    ///
    /// - Parameter wait: Lets time pass for whoever is not on the device's loop.
    package func makeFault(
        of device: String, wait: (@Sendable (Duration) -> Bool)? = nil
    ) -> @Sendable (String) throws -> Void {
        let (faults, network) = (faults, network)
        return { name in
            switch faults.reach("device.\(name)", on: device) {
            case .proceed: break
            case .fail: throw POSIXError(name == "read" ? .EIO : .ENOSPC)
            case .halfDone: throw HalfDone()
            case .slow(let delay): if wait?(delay) != true { network.stall(device, for: delay) }
            }
        }
    }
}
