#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

extension String {
    /// Byte by byte, as the database compares. Swift's own equality takes texts for equal that look alike.
    func hasSameBytes(as other: String) -> Bool {
        utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in
                guard left.count == right.count else { return false }
                guard let leftStart = left.baseAddress, let rightStart = right.baseAddress else { return true }
                return memcmp(leftStart, rightStart, left.count) == 0
            }
        }.flatMap(\.self) ?? utf8.elementsEqual(other.utf8)
    }
}
