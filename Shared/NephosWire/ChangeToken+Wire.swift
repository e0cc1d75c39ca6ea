public import NephosCore

private import struct Foundation.Data

extension WireChangeToken {
    public init(_ token: ChangeToken) {
        self.init()
        epoch = token.epoch
        sequence = token.sequence
        if token.check != .none { check = Data(token.check.bytes) }
    }
}

extension ChangeToken {
    public init(_ wire: WireChangeToken) {
        self.init(
            epoch: wire.epoch, sequence: wire.sequence,
            check: wire.check.isEmpty ? .none : wire.check.withUnsafeBytes { TokenCheck(bytes: $0) })
    }
}
