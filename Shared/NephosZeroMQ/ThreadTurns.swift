internal import Foundation
internal import NephosBus

/// How a thread takes turns with others of the machine where there are more of them than processors: what moves content
/// or reads much gives way to whoever has a small message.
///
/// Of the calling thread, and of the threads that it starts.
enum ThreadTurns {
    // The kernel's scale of niceness: with ten more a thread gets about a tenth of the time of one that it competes with,
    // with five a third.
    private static let nicenessOfContent: Int32 = 5
    private static let nicenessBesideLoop: Int32 = 10

    /// Of a loop's thread.
    static func begin(for work: LoopWork) {
        if work == .content { giveWay(nicenessOfContent) }
    }

    /// Of a thread that a loop has started for what takes long: it takes after the loop's until here.
    static func beginBesideLoop(of work: LoopWork) {
        giveWay(work == .content ? nicenessBesideLoop - nicenessOfContent : nicenessBesideLoop)
    }

    /// For ever: anybody may raise a thread's niceness, and root alone may lower it.
    private static func giveWay(_ niceness: Int32) { _ = nice(niceness) }
}
