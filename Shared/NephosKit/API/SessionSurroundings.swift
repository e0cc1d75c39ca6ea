internal import Foundation
package import NephosBus

/// Where the sessions lead that a task opens, in the place of a real deployment, and what home they have if none is
/// named. For tests of code that opens its sessions itself.
package struct SessionSurroundings: Sendable {
    package var home: URL
    package var transport: any Transport
    /// New ones for each session.
    package var makeOptions: @Sendable () -> DeviceOptions

    @TaskLocal package static var current: SessionSurroundings?

    package init(home: URL, transport: any Transport, makeOptions: @escaping @Sendable () -> DeviceOptions) {
        self.home = home
        self.transport = transport
        self.makeOptions = makeOptions
    }
}
