/// What the processes of one home have in common beside its database: a lock that one of them has, and a bell. On the
/// loop only.
package protocol HomeWay: AnyObject {
    /// Unlike that of any other process of the home, now and later.
    var name: String { get }
    /// Called when another process has rung.
    var onLook: () -> Void { get set }
    /// Takes the lock, which ends with this process, or reads the note of the process that has it.
    func lock() -> HomeLock
    /// Leaves a note for the processes that do not have the lock. Only the one that has it may.
    func renew(_ note: String)
    /// The other processes that live, with those that were killed since a process rang. Nil: they cannot be known now.
    var others: Set<String>? { get }
    /// Has all others look at the database.
    func ring()
    /// Gives the lock back, and tells the others that this process is gone.
    func leave()
}

package enum HomeLock: Equatable {
    case taken
    /// Another process has it, and has left this note; one of an earlier process, if it has just begun.
    case held(note: String)
    /// There cannot be a lock or a bell in this folder.
    case impossible
}

/// A process's part in its home.
enum HomeRole: Equatable {
    /// It speaks with the server for every process of the home.
    case leader
    /// The leader does that for it.
    case client
    /// It speaks with the server for itself: the leader does not answer, or is of another release, or there can be none.
    /// That is safe, since each step reads what it needs in the transaction that decides; it costs connections.
    case alone
}
