internal import Logging

extension Logger {
    /// Says nothing.
    static let silent = Logger(label: "nephos.test", factory: { _ in SwiftLogNoOpLogHandler() })
}
