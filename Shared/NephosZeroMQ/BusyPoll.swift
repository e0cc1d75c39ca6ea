/// Whether a loop that has nothing to do looks about for a while before it sleeps.
///
/// To be woken takes about 20 us, which a caller who waits for each answer pays
/// with every request. So a loop that was woken soon after it had gone to sleep
/// looks about the next time; one that has looked in vain sleeps at once, until
/// a wait was short again. That is what Linux does for a virtual processor
/// (`halt_poll_ns`), and bounds what it costs: one vain look for each short wait.
struct BusyPoll {
    /// How long it looks; zero: never.
    let longest: Duration
    private var wasShort = false

    init(longest: Duration) { self.longest = longest }

    /// How long to look before the next sleep.
    var window: Duration { wasShort ? longest : .zero }

    /// - Parameter waited: From when there was nothing to do until there was, asleep or not.
    mutating func note(waited: Duration) { wasShort = waited < longest }
}
