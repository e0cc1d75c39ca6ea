import Foundation
import NephosSimulation
import Synchronization

/// Ends a device at one of the named places of its own steps, as kill -9 does: its home is as it was in that moment, and
/// nothing that it goes on to do counts.
final class DeviceKiller: Sendable {
    /// Where a device can be ended: nobody holds its database there.
    static let places = ["save", "writer.flush", "download.keep"]

    private struct State {
        var place: String?
        var passes = 0
        /// Where the home was copied to.
        var remains: String?
        var struck: [String: Int] = [:]
    }

    private let state = Mutex(State())
    private let simulation: Simulation
    private let device: String

    init(of device: String, in simulation: Simulation) {
        self.device = device
        self.simulation = simulation
    }

    /// Ends the device when it comes to the place, after it has passed it so many times.
    func arm(_ place: String, after passes: Int) {
        state.withLock { ($0.place, $0.passes) = (place, passes) }
    }

    func disarm() { state.withLock { $0.place = nil } }

    /// Where the home lies as it was when the device was ended; nil: it was not. The device may begin anew there.
    func takeRemains() -> String? {
        state.withLock { state in
            defer { state.remains = nil }
            return state.remains
        }
    }

    var isDead: Bool { state.withLock { $0.remains != nil } }

    /// How often it was ended, by place.
    var struck: [String: Int] { state.withLock { $0.struck } }

    /// - Parameter home: The device's, as long as it lives.
    func reach(_ place: String, home: String) throws {
        let dies = try state.withLock { state -> Bool in
            if state.remains != nil { throw POSIXError(.EIO) }
            guard state.place == place else { return false }
            state.passes -= 1
            guard state.passes < 0 else { return false }
            state.place = nil
            state.remains = home + "+"
            state.struck[place, default: 0] += 1
            return true
        }
        guard dies else { return }
        // Alone: the device's loop writes to the home too.
        try simulation.use { cloud in
            try FileManager.default.copyItem(atPath: home, toPath: home + "+")
            // Its process has locks and mappings of its own.
            try? FileManager.default.removeItem(atPath: home + "+/device.sqlite-shm")
            for line in ["send", "receive"] { try cloud.faults.fail("device.\(line)", on: device, times: .max) }
        }
        throw POSIXError(.EIO)
    }
}
