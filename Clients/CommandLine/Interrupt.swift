import Foundation
import NephosCore
import Synchronization

/// Ctrl-C, a terminal that was closed, and SIGTERM, for commands that must not
/// end in the middle. All others end at once, which is safe at any instant:
/// every change is one transaction on disk.
enum Interrupt {
    // Set by the handler, which may do nothing else.
    private static let signal = Atomic<Int32>(0)
    private static let numbers = [SIGINT, SIGTERM, SIGHUP]
    /// What signals did before each ``hold()`` that is not over.
    private static let held = Mutex<[[(number: Int32, action: sigaction)]]>([])

    /// From here on a signal only sets ``isPending``; system calls that wait end with it. What nobody wants to be ended by
    /// stays so, as nohup has it.
    static func hold() {
        // What is made at its first use is made now: a handler that came in the middle of that would wait for it, and
        // with it for itself.
        _ = isPending
        var actions: [(number: Int32, action: sigaction)] = []
        for number in numbers {
            guard let before = heeded(number) else { continue }
            actions.append((number, before))
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { Interrupt.signal.store($0, ordering: .relaxed) }
            sigaction(number, &action, nil)
        }
        let taken = actions
        held.withLock { $0.append(taken) }
    }

    /// Back to what signals did before the last ``hold()``.
    static func release() {
        for before in held.withLock({ $0.popLast() }) ?? [] {
            var action = before.action
            sigaction(before.number, &action, nil)
        }
    }

    /// Whether nobody wants to be ended by the signal.
    static func ignores(_ number: Int32) -> Bool { heeded(number) == nil }

    /// What the signal does; nil: it is ignored.
    private static func heeded(_ number: Int32) -> sigaction? {
        var action = sigaction()
        return sigaction(number, nil, &action) == 0 && !action.isIgnored ? action : nil
    }

    static var isPending: Bool { signal.load(ordering: .relaxed) != 0 }

    /// Whether the signal that came is one that a terminal does not send to all of its programs.
    static var isMeantForThisProcess: Bool { signal.load(ordering: .relaxed) == SIGTERM }

    /// - Throws: ``CloudError`` `.operationCancelled` once a signal has come.
    static func check() throws(CloudError) {
        if isPending { throw CloudError(.operationCancelled, "Interrupted.") }
    }

    /// Whoever ends a command that waits for the server may take what it has done for undone.
    static func sayThatItIsKept() {
        first {
            ProgressLine("sending", isShown: true).clear()
            Standard.error("nephos: It is kept on this device. nephos status sends it once it reaches the server.")
        }
    }

    // MARK: What is done at the end

    /// Where the handler writes that a signal has come; it may do little else.
    private static let cleanup = Atomic<Int32>(-1)

    /// From here on a signal first does this, on a thread of its own, and then what it does by itself. Once in a process.
    static func first(_ body: @escaping @Sendable () -> Void) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { return }
        let (reading, writing) = (ends[0], ends[1])
        cleanup.store(writing, ordering: .relaxed)
        Thread.detachNewThread {
            var number: UInt8 = 0
            while read(reading, &number, 1) < 0, errno == EINTR {}
            body()
            Foundation.signal(Int32(number), SIG_DFL)
            kill(getpid(), Int32(number))
        }
        for number in numbers where !ignores(number) {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { number in
                let saved = errno
                var byte = UInt8(truncatingIfNeeded: number)
                _ = write(Interrupt.cleanup.load(ordering: .relaxed), &byte, 1)
                errno = saved
            }
            action.sa_flags = SA_RESTART
            sigaction(number, &action, nil)
        }
    }
}

extension sigaction {
    fileprivate var isIgnored: Bool {
        unsafeBitCast(__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
    }
}
