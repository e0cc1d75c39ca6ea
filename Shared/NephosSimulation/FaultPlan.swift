public import NephosCore
private import Synchronization

/// What is to go wrong next, by the names of the places (``FaultPoint``). Safe to use from any task.
public final class FaultPlan: Sendable {
    /// One thing that was asked for.
    private struct Rule {
        var kind: FaultPoint.Kind
        var delay: Duration
        /// Nil: whichever does it first.
        var device: String?
        var left: Int
    }

    private struct State {
        var rules: [String: [Rule]] = [:]
        var struck: [String: Int] = [:]
        var isRecording = false
        var reached: Set<String> = []
    }

    /// What is to happen at a place now.
    enum Order: Hashable, Sendable {
        case proceed, fail, halfDone
        case slow(Duration)
    }

    private let state = Mutex(State())
    /// Whether anybody asks for anything. The places look at nothing else as long as nobody does.
    private let armed = Atomic<Bool>(false)

    init() {}

    // MARK: What tests ask for

    /// Makes what is done at a place fail.
    ///
    /// - Parameters:
    ///   - name: One of ``FaultPoint/all``.
    ///   - device: Only on this device; nil: on whichever comes first. For the places of devices.
    ///   - times: How often, from now on. `.max`: until ``clear(_:)``.
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that is not in the list, or a place that has none of it.
    public func fail(_ name: String, on device: String? = nil, times: Int = 1) throws(CloudError) {
        try add(.fails, to: name, device, times)
    }

    /// Makes what is done at a place take this long, by the test's clock.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, as ``fail(_:on:times:)`` does, and for a time that is negative.
    public func slow(
        _ name: String, by delay: Duration, on device: String? = nil, times: Int = 1
    ) throws(CloudError) {
        guard delay >= .zero else { throw CloudError(.invalidArguments, "Nothing takes less than no time.") }
        try add(.slow, to: name, device, times, delay)
    }

    /// Makes what is done at a place end half-way: see ``FaultPoint/Kind/halfDone``.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, as ``fail(_:on:times:)`` does.
    public func leaveHalfDone(_ name: String, on device: String? = nil, times: Int = 1) throws(CloudError) {
        try add(.halfDone, to: name, device, times)
    }

    /// Lets what is done at a place succeed again; nil: everywhere.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that is not in the list.
    public func clear(_ name: String? = nil) throws(CloudError) {
        let point: FaultPoint? = if let name { try FaultPoint(named: name) } else { nil }
        state.withLock { state in
            if let point { state.rules[point.name] = nil } else { state.rules = [:] }
            arm(state)
        }
    }

    /// How often something went wrong at a place.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that is not in the list.
    public func count(_ name: String) throws(CloudError) -> Int {
        let point = try FaultPoint(named: name)
        return state.withLock { $0.struck[point.name] ?? 0 }
    }

    private func add(
        _ kind: FaultPoint.Kind, to name: String, _ device: String?, _ times: Int, _ delay: Duration = .zero
    ) throws(CloudError) {
        let point = try FaultPoint(named: name)
        guard point.kinds.contains(kind) else {
            throw CloudError(
                .invalidArguments, "This cannot go wrong at this place.",
                details: ["name": name, "kinds": point.kinds.map(\.rawValue).sorted().joined(separator: ", ")])
        }
        guard device == nil || point.isOfDevice else {
            throw CloudError(.invalidArguments, "This is no device's place.", details: ["name": name])
        }
        guard times > 0 else { throw CloudError(.invalidArguments, "It happens once at least.") }
        state.withLock { state in
            state.rules[name, default: []].append(Rule(kind: kind, delay: delay, device: device, left: times))
            arm(state)
        }
    }

    private func arm(_ state: State) {
        armed.store(state.isRecording || !state.rules.isEmpty, ordering: .releasing)
    }

    // MARK: What the places ask

    var isArmed: Bool { armed.load(ordering: .acquiring) }

    /// Notes from now on which places are reached.
    package func record() {
        state.withLock { state in
            state.isRecording = true
            arm(state)
        }
    }

    /// The names of the places that were reached since ``record()``.
    package var reached: Set<String> { state.withLock { $0.reached } }

    /// Says what is to happen at a place that was reached.
    func reach(_ name: String, on device: String? = nil) -> Order {
        guard isArmed else { return .proceed }
        return state.withLock { state in
            if state.isRecording { state.reached.insert(name) }
            guard let index = state.rules[name]?.firstIndex(where: { $0.device == nil || $0.device == device }),
                let rule = state.rules[name]?[index]
            else { return .proceed }
            if rule.left > 1 {
                if rule.left < .max { state.rules[name]?[index].left -= 1 }
            } else {
                state.rules[name]?.remove(at: index)
                if state.rules[name]?.isEmpty == true { state.rules[name] = nil }
                arm(state)
            }
            state.struck[name, default: 0] += 1
            return switch rule.kind {
            case .fails: .fail
            case .halfDone: .halfDone
            case .slow: .slow(rule.delay)
            }
        }
    }
}
