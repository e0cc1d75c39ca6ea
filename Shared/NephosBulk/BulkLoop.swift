internal import NephosBus
internal import NephosCore
private import Synchronization

/// The loop of content, as the service's own loop reaches it.
final class BulkLoop {
    private let handle: any LoopHandle
    private let door: LoopBound<BulkDoor>

    /// Starts the loop, which waits until its socket is bound.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for an address that cannot be bound.
    init(
        on transport: any Transport, named name: String, endpoint: String, keys: KeyPair, work: ChunkWork,
        roomBytes: Int, commit: @escaping Receiving.Commit, found: @escaping Sending.Found
    ) throws {
        let made = Made()
        handle = try transport.startLoop(named: name, for: .content) { loop in
            let door = try BulkDoor(
                loop: loop, endpoint: endpoint, keys: keys, work: work,
                room: Room(perKeyMax: BulkLimits.creditBytes, max: roomBytes), commit: commit, found: found)
            let bound = LoopBound(door, to: loop)
            made.door.withLock { $0 = bound }
        }
        guard let door = made.door.withLock({ $0 }) else {
            throw CloudError(.internalError, "The loop of content made no socket.")
        }
        self.door = door
    }

    private final class Made: Sendable {
        let door = Mutex<LoopBound<BulkDoor>?>(nil)
    }

    func add(_ ticket: Ticket, _ standing: Upload.Standing?, _ writing: Writing?) {
        handle.execute { [door] loop in door.withValue(on: loop) { $0.add(ticket, standing, writing) } }
    }

    func endTickets(because error: CloudError, where isOver: @escaping @Sendable (Ticket) -> Bool) {
        handle.execute { [door] loop in
            door.withValue(on: loop) { $0.endTickets(because: error, where: isOver) }
        }
    }

    /// - Parameter done: Called on the loop of content, with numbers for the table of metrics.
    func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) {
        handle.execute { [door] loop in done(door.withValue(on: loop) { $0.figures }) }
    }

    /// Closes the socket. What was stored and not answered yet is answered when it is sent again.
    func stop() {
        handle.execute { [door] loop in door.withValue(on: loop) { $0.close() } }
        handle.stop()
    }
}
