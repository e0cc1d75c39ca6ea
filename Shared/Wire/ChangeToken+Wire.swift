public import Core

extension WireChangeToken {
    public init(_ token: ChangeToken) {
        self.init()
        epoch = token.epoch
        sequence = token.sequence
    }
}

extension ChangeToken {
    public init(_ wire: WireChangeToken) { self.init(epoch: wire.epoch, sequence: wire.sequence) }
}
