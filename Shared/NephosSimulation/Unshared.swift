/// Carries a value into a closure that the in-process transport runs at once, on this thread.
// Unchecked: a simulation has one thread.
package final class Unshared<Value>: @unchecked Sendable {
    package let value: Value
    package init(_ value: Value) { self.value = value }
}
