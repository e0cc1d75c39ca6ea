internal import NephosBus

/// What may happen to messages between devices and services. The same on every line.
public struct NetworkConditions: Sendable {
    /// How long a message travels.
    public var latency: ClosedRange<Duration>
    /// The chance, from 0 to 1, that a message is lost without a sign.
    public var loss: Double
    /// The chance that it arrives twice.
    public var duplication: Double
    /// The chance that later ones overtake it.
    public var reordering: Double

    /// A network on which nothing goes wrong but what is named.
    public init(
        latency: ClosedRange<Duration> = .microseconds(200)...(.milliseconds(2)), loss: Double = 0,
        duplication: Double = 0, reordering: Double = 0
    ) {
        self.latency = latency
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
    }

    /// Nothing goes wrong.
    public static let good = NetworkConditions()
    /// A train: messages take up to a third of a second, and one in twenty is lost, repeated or overtaken.
    public static let bad = NetworkConditions(
        latency: .milliseconds(20)...(.milliseconds(300)), loss: 0.05, duplication: 0.05, reordering: 0.05)

    var faults: Faults {
        Faults(latency: latency, loss: loss, duplication: duplication, reordering: reordering)
    }
}
