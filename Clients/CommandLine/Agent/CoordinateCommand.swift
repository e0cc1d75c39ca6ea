import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

extension AgentCommand {
    struct Coordinate: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Run a command while the agent leaves a file or folder alone.",
            discussion: """
                Until the command has ended, the agent sends nothing of the path, and other devices' changes of it wait. So \
                other devices get what a program has written as a whole. It waits for what the agent does there in \
                this moment. Its exit code is the command's; 128 and the signal, if that ended it.
                """)

        @Argument(help: "The file or folder, which may be missing yet.", completion: .file()) var path: String
        @Argument(parsing: .postTerminator, help: "The command and its arguments, after --.") var command: [String]
        @OptionGroup var wait: WaitOptions
        @OptionGroup var agent: AgentOptionGroup

        func run() async throws {
            let status = try await agent.withStore { store, control, _ in
                let (folder, names) = try ContentOptions.place(of: path, store)
                let full =
                    names.isEmpty
                    ? folder.path
                    : folder.path + "/" + names.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "/")
                let lease = try PathLease(full, control)
                defer { lease.end() }
                let end = ContinuousClock.now + wait.duration
                // A folder that stands still needs nothing.
                while control.isRunning, try store.pauseEnd(of: folder) == nil,
                    try store.report(of: folder)?.state != .stopped, !lease.isRespected
                {
                    guard .now < end else {
                        throw CloudError(
                            .deadlineExceeded,
                            "The agent does not answer, so the command was not run. See: nephos agent status",
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
            var arguments: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) } + [nil]
            defer { for argument in arguments { free(argument) } }
            // A signal of the terminal goes to the command too, and ends it. This program goes on until then.
            Interrupt.hold()
            defer { Interrupt.release() }
            var pid: pid_t = 0
            let failure = posix_spawnp(&pid, command[0], nil, nil, &arguments, environ)
            guard failure == 0 else {
                Standard.error("nephos: \(inLine(command[0])): \(String(cString: strerror(failure))).")
                return failure == ENOENT ? 127 : 126
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
