internal import NephosBus
internal import NephosCore
internal import NephosKit
internal import NephosServiceKit
internal import NephosStorage

extension TestCloud {
    /// On a slow line there is always some heartbeat on its way. What is said because of what was heard, and so on, for
    /// as many times, is waited for; what is said then, while nothing is left to do, is said every now and then.
    private static let roundsMax = 4

    /// Lets time pass until nothing is left to send or to hear: see ``unsettled(takesRefusals:)``.
    ///
    /// Brings nothing back: what is crashed or cut off stays so.
    ///
    /// - Returns: Whether that happened within the virtual time.
    package func settle(within limit: Duration = .seconds(600)) -> Bool { notSettled(within: limit).isEmpty }

    /// The same.
    ///
    /// - Parameter meanwhile: Called every now and then.
    /// - Returns: What was still left at the end.
    package func notSettled(
        within limit: Duration, takesRefusals: Bool = false, _ meanwhile: () -> Void = {}
    ) -> [String] {
        let start = network.now
        /// What had been said when everything seemed to be done, and how often all of that has been heard since.
        var (said, rounds) = (network.begun, 0)
        // Asked now and then, the longer it takes the less often: each time every device reads its database.
        while true {
            var left = unsettled(takesRefusals: takesRefusals)
            if !left.isEmpty {
                (said, rounds) = (network.begun, 0)
            } else if network.unfinished > 0 {
                if network.isFinished(upTo: said) { (said, rounds) = (network.begun, rounds + 1) }
                if rounds < Self.roundsMax { left = ["\(network.unfinished) messages are on their way"] }
            }
            let passed = network.now - start
            guard !left.isEmpty, passed < limit else { return left }
            network.run(for: min(max(.milliseconds(20), passed / 50), limit - passed))
            meanwhile()
        }
    }

    /// What is left to send or to hear, one sentence each: of every device each scope that it keeps in step; whether
    /// that is where the service has it; whether the services have heard what the others published.
    ///
    /// - Parameter takesRefusals: Whether a write that was refused, and told, is done with.
    package func unsettled(takesRefusals: Bool = false) -> [String] {
        var left: [String] = []
        var places: [Place: (head: ChangeToken, digest: SetDigest, device: String)] = [:]
        for device in devices where device.engine == nil { left.append("\(device.name) is switched off") }
        for device in devices where device.store == nil && device.engine != nil {
            left.append("\(device.name) was never signed in")
        }
        let engines =
            devices.map { ($0.name, $0.engine) }
            // Who is signed out, or was turned away, sends nothing and hears nothing until somebody signs in.
            + guests.map { ($0.name, $0.engine.value) }.filter { _, engine in
                engine?.stopped == false && engine?.session?.signedIn == true && engine?.session?.revoked == false
            }
        for (name, engine) in engines {
            guard let engine else { continue }
            if engine.isTurningAway { left.append("\(name) was turned away, and looks whether somebody signed out") }
            do throws(CloudError) {
                for standing in try engine.standings() {
                    left += Self.unsettled(standing.status, takesRefusals).map {
                        "\(name): \(standing.service) of \(standing.app): \($0)"
                    }
                    guard let scope = standing.scope else { continue }
                    let place = Place(service: standing.service, scope: scope)
                    let (head, digest) = (standing.status.head, standing.status.digest)
                    if let other = places[place], !Self.agree((other.head, other.digest), (head, digest)) {
                        left.append("\(name) and \(other.device) differ in \(standing.service) of \(standing.app)")
                    }
                    places[place] = (head, digest, name)
                }
            } catch { left.append("\(name): \(error.message)") }
        }
        // What the services have is read last: it takes time.
        if left.isEmpty {
            left += places.filter { !isCurrent($0.value.head, at: $0.key) }.map { behind($0.key, $0.value.device) }
        }
        if left.isEmpty { left += unheard() }
        left += disks.filter(\.value.isUnderWay).map { "\($0.key) is storing something" }
        left += network.stalled.map { "\($0) is held up by a slow disk" }
        return left.sorted()
    }

    private struct Place: Hashable {
        var service: ServiceName
        var scope: ScopeName
    }

    /// Of a scope in which nothing was ever written nobody is told that another epoch has begun.
    private static func agree(
        _ one: (head: ChangeToken, digest: SetDigest), _ other: (head: ChangeToken, digest: SetDigest)
    ) -> Bool {
        one.digest == other.digest && one.head.sequence == other.head.sequence
            && (one.head.epoch == other.head.epoch || one.head.sequence == 0)
    }

    private static func unsettled(_ status: StoreStatus, _ takesRefusals: Bool) -> [String] {
        var left: [String] = []
        if let problem = status.problem { left.append(problem.message) }
        if !status.initialSyncFinished { left.append("it was not downloaded yet") }
        left += status.pending.map { "\($0.keys) waits to be sent: \($0.reason)" }
        if !takesRefusals { left += status.refused.map { "\($0.key) was refused: \($0.error.message)" } }
        if left.isEmpty, !status.agrees { left.append("its content was not compared with the service's yet") }
        return left
    }

    private func behind(_ place: Place, _ device: String) -> String {
        let theirs = head(of: place).map { "\($0)" } ?? "nowhere"
        return "\(device) has not heard of everything in \(place.service), which has \(place.scope) at \(theirs)"
    }

    private func head(of place: Place) -> ChangeToken? {
        guard let disk = disks[place.service] else { return nil }
        return try? disk.engine.write { try Feed(over: $0).head(place.scope).token }
    }

    /// Whether the service's disk has the scope where the device has it.
    private func isCurrent(_ head: ChangeToken, at place: Place) -> Bool {
        guard disks[place.service] != nil else { return true }
        return self.head(of: place).map {
            $0.sequence == head.sequence && ($0.epoch == head.epoch || head.sequence == 0)
        } ?? false
    }

    /// What services have published and others, which run, have not taken in.
    private func unheard() -> [String] {
        var left: [String] = []
        for follower in running.sorted() {
            for (service, cursors) in hosts[follower]?.cursors ?? [:] where running.contains(service) {
                guard let disk = disks[service],
                    let positions = try? disk.engine.write({ try Feed(over: $0).positions() })
                else { continue }
                let isBehind = positions.contains { partition, token in
                    guard let cursor = cursors[partition] else { return true }
                    return cursor.epoch != token.epoch || cursor.sequence < token.sequence
                }
                if isBehind { left.append("\(follower) has not heard of everything in \(service)") }
            }
        }
        return left
    }
}
