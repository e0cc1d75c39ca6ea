import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

extension AgentCommand {
    struct Coordinate: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Run a command while the agent leaves a folder alone.",
            discussion: """
                Until the command has ended, the agent sends nothing of the folder, and other devices' changes of it wait. \
                So other devices get what a program has written as a whole. The command begins once the agent is done \
                with what it does there in this moment. The exit code is the command's; 128 and the signal, if one ended \
                it.
                """)

        @Argument(help: "A folder of the agent, or a path in it.", completion: .file()) var path: String
        @Argument(parsing: .postTerminator, help: "The command and its arguments, after --.") var command: [String]
        @OptionGroup var wait: WaitOptions
        @OptionGroup var agent: AgentOptionGroup

        func run() async throws {
            let status = try await agent.withStore { store, control, _ in
                let (folder, _) = try ContentOptions.place(of: path, store)
                let lease = try FolderLease(folder, control)
                defer { lease.end() }
                let end = ContinuousClock.now + wait.duration
                // Nothing is under way in a folder that is stopped.
                while control.isRunning, !lease.isRespected, try store.report(of: folder)?.state != .stopped {
                    guard .now < end else {
                        throw CloudError(
                            .deadlineExceeded,
                            "The agent is at work in the folder, so the command was not run. Wait longer with --timeout.",
                            details: ["folder": folder.path])
                    }
                    try await Task.sleep(for: .milliseconds(5))
                }
                return try await Self.run(command)
            }
            // Any number, not one of this program's own exit codes.
            if status != 0 { Foundation.exit(status) }
        }

        /// Runs a program with this one's input and output.
        ///
        /// - Returns: Its exit code; 127: there is no such program.
        private static func run(_ command: [String]) async throws -> Int32 {
            // A signal of the terminal goes to the command too, and ends it. This program goes on until then.
            Interrupt.hold()
            defer { Interrupt.release() }
            let pid: pid_t
            do throws(Spawn.Failure) { pid = try Spawn.attached(command) } catch {
                Standard.error("nephos: \(inLine(command[0])): \(error.reason).")
                return error.number == ENOENT ? 127 : 126
            }
            var isToldToEnd = false
            while true {
                var status: Int32 = 0
                let ended = waitpid(pid, &status, WNOHANG)
                if ended == pid { return status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f) }
                if ended < 0, errno != EINTR { return 1 }
                if Interrupt.isPending, Interrupt.isMeantForThisProcess, !isToldToEnd {
                    isToldToEnd = true
                    kill(pid, SIGTERM)
                }
                try? await Task.sleep(for: .milliseconds(10))
            }
        }

        func validate() throws {
            guard !command.isEmpty else {
                throw ValidationError("Give the command after --: nephos agent coordinate FOLDER -- make")
            }
        }
    }
}
