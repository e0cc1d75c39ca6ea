import ArgumentParser
import Foundation
import NephosCore

/// Completion of commands and options by the Tab key.
struct CompletionsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "completions", abstract: "Print or install completion of commands for your shell.",
        discussion: """
            --install writes the script to the folder that the shell reads. It takes effect in a new shell. Without \
            --install the script is printed.
            """)

    enum Shell: String, CaseIterable, ExpressibleByArgument {
        case bash, zsh, fish

        /// The shell of `$SHELL`; nil: another one.
        static var own: Shell? {
            ProcessInfo.processInfo.environment["SHELL"].flatMap { Shell(rawValue: ($0 as NSString).lastPathComponent) }
        }

        fileprivate var script: String {
            let shell: CompletionShell =
                switch self {
                case .bash: .bash
                case .zsh: .zsh
                case .fish: .fish
                }
            return NephosCommand.completionScript(for: shell)
        }

        /// Where the shell looks for it.
        fileprivate func file(_ environment: [String: String]) -> String {
            let home = environment["HOME"] ?? FileManager.default.homeDirectoryForCurrentUser.path
            let data = environment["XDG_DATA_HOME"] ?? home + "/.local/share"
            let settings = environment["XDG_CONFIG_HOME"] ?? home + "/.config"
            return switch self {
            case .bash: data + "/bash-completion/completions/nephos"
            case .zsh: home + "/.zsh/completions/_nephos"
            case .fish: settings + "/fish/completions/nephos.fish"
            }
        }

        fileprivate var hint: String {
            switch self {
            case .bash: "It needs the package bash-completion."
            case .zsh: "Add to ~/.zshrc before compinit: fpath=(~/.zsh/completions $fpath)"
            case .fish: "fish reads it by itself."
            }
        }
    }

    @Argument(help: "bash, zsh or fish (default: the shell in $SHELL).") var shell: Shell?
    @Flag(help: "Write the script to the folder that the shell reads.") var install = false
    @OptionGroup var output: OutputOptions

    func run() throws {
        guard let shell = shell ?? Shell.own else { throw ValidationError("Name a shell: bash, zsh or fish.") }
        guard install else { return try StandardOutput.write(shell.script + "\n") }
        let file = URL(fileURLWithPath: shell.file(ProcessInfo.processInfo.environment))
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data((shell.script + "\n").utf8).write(to: file, options: .atomic)
        try output.print(
            ["shell": shell.rawValue, "file": file.path], text: "Installed \(file.path). \(shell.hint)")
    }
}
