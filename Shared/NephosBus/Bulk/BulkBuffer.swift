/// Memory for one frame, written once where it is going to be sent from: its header first, and the content behind it
/// straight from the disk or the cipher.
// Unchecked: written in `init` alone, before anybody else sees the object, and freed when nobody holds it any more.
final class BulkBuffer: FrameStorage, @unchecked Sendable {
    private let memory: UnsafeMutableRawBufferPointer

    /// - Parameters:
    ///   - count: Bytes, one at least.
    ///   - write: Fills all of them. If it throws, nothing is left of the buffer.
    init(count: Int, _ write: (UnsafeMutableRawBufferPointer) throws -> Void) rethrows {
        // As the widest of what is written into it: words of a cipher.
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
        do { try write(memory) } catch {
            memory.deallocate()
            throw error
        }
        self.memory = memory
    }

    deinit { memory.deallocate() }

    var count: Int { memory.count }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(memory))
    }
}
