package import FoundationEssentials

/// How the processes of one home reach each other. On the loop only.
///
/// One of them holds the home, by a lock that ends with its process; the others connect to it.
package protocol HomeWay: AnyObject {
    var onEvent: (HomeEvent) -> Void { get set }
    /// Takes the lock, or connects to whoever has it.
    func join() -> HomeJoin
    /// Sends a packet, or nothing: a peer that does not read, or is gone, is dropped, which is told as
    /// ``HomeEvent/left(_:)``.
    func send(_ packet: Data, to peer: Int)
    /// Ends the connection, which is not told.
    func drop(_ peer: Int)
    /// Lets the lock and all connections go.
    func leave()
}

package enum HomeJoin: Equatable {
    /// The lock is this process's.
    case holds
    /// Another one has it, and this is the connection to it.
    case connected(Int)
    /// Another one has it, and cannot be reached now.
    case nobody
    /// There cannot be a lock in this folder.
    case impossible
}

package enum HomeEvent {
    case packet(Data, from: Int)
    case left(Int)
}
