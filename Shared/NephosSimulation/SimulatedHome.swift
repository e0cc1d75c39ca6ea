import NephosBus
import NephosKit

/// A home that several simulated processes share: who has its lock, and how they ring each other.
final class SimulatedHome {
    /// How long a look takes from one process to another.
    private static let latency: Duration = .microseconds(100)
    private var leader: Process?
    private var note = ""
    private var processes: [Process] = []
    private var count = 0

    /// A way into the home for the process on this loop.
    func way(_ loop: any BusLoop) -> any HomeWay {
        count += 1
        return Process(self, loop, name: "process-\(count)")
    }

    /// What the kernel does for a process: its lock and its socket end with it.
    private final class Process: HomeWay {
        let name: String
        var onLook: () -> Void = {}
        private let home: SimulatedHome
        private let loop: any BusLoop

        init(_ home: SimulatedHome, _ loop: any BusLoop, name: String) {
            self.home = home
            self.loop = loop
            self.name = name
        }

        func lock() -> HomeLock {
            if !home.processes.contains(where: { $0 === self }) { home.processes.append(self) }
            if home.leader == nil { home.leader = self }
            return home.leader === self ? .taken : .held(note: home.note)
        }

        func renew(_ note: String) { home.note = note }

        var others: Set<String>? { Set(home.processes.map(\.name)).subtracting([name]) }

        func ring() {
            for other in home.processes where other !== self {
                other.loop.schedule(after: SimulatedHome.latency) { [weak other] in other?.onLook() }
            }
        }

        func leave() {
            if home.leader === self { home.leader = nil }
            home.processes.removeAll { $0 === self }
            ring()
        }
    }
}
