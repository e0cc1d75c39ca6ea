import ArgumentParser

struct KVWriteCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv-write", abstract: "Durable writes a second, and how long a reply takes.",
        discussion: """
            Every writer pushes its own key of one store. Without --rate each has one push in flight and sends the \
            next when it was answered. With --rate pushes arrive at that rate, and latencies count from the intended \
            times (corrected for coordinated omission).
            """)

    @OptionGroup var options: LoadOptions
    @OptionGroup var writers: WriterOptions

    func run() throws {
        try WriteRun(scenario: "kv-write", options: options, writerOptions: writers, isFollowed: false).run()
    }
}

struct KVPropagationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv-propagation", abstract: "How long it takes until another device is told of a write.",
        discussion: """
            As kv-write, while one more device follows the store. NOTIFIED counts from the write (its intended time, \
            with --rate) to the delivery at that device.
            """)

    @OptionGroup var options: LoadOptions
    @OptionGroup var writers: WriterOptions

    func run() throws {
        try WriteRun(scenario: "kv-propagation", options: options, writerOptions: writers, isFollowed: true).run()
    }
}
