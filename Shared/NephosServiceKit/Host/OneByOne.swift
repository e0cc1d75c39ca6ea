/// Does something with one item after the other, each when the one before is
/// done: at once, which costs no stack, or later.
///
/// On the loop only. It keeps itself until it has come to its end, or is let go by a step that is never done.
final class OneByOne<Item> {
    private var items: ArraySlice<Item>
    private let step: (Item, @escaping (Bool) -> Void) -> Void
    private let end: (Bool) -> Void
    private var isWaiting = false
    private var isLooping = false
    private var isStopped = false

    /// - Parameters:
    ///   - step: Calls its last argument once, with whether to go on.
    ///   - end: Called once, with whether all had their turn.
    static func run(
        _ items: [Item], _ step: @escaping (Item, @escaping (Bool) -> Void) -> Void, then end: @escaping (Bool) -> Void
    ) { OneByOne(items, step, end).goOn() }

    private init(
        _ items: [Item], _ step: @escaping (Item, @escaping (Bool) -> Void) -> Void, _ end: @escaping (Bool) -> Void
    ) {
        self.items = items[...]
        self.step = step
        self.end = end
    }

    private func goOn() {
        // A step that is done at once comes back here from within the loop.
        guard !isLooping else { return }
        isLooping = true
        while !isWaiting, let item = items.popFirst() {
            isWaiting = true
            step(item) { [self] goesOn in
                isWaiting = false
                if !goesOn {
                    items = []
                    isStopped = true
                }
                goOn()
            }
        }
        isLooping = false
        if !isWaiting { end(!isStopped) }
    }
}
