/// Which bytes of a body a request wants (RFC 9110, section 14).
public enum ByteRange: Hashable, Sendable {
    /// All of them: nothing else was asked for, or nothing that is understood. Several ranges at once are not: nobody
    /// needs them, and they can be made to cost much.
    case whole
    /// These; not empty.
    case part(Range<UInt64>)
    /// None that there are: answered with 416.
    case unsatisfiable

    /// - Parameters:
    ///   - header: The value of `Range`; nil: there is none.
    ///   - length: Bytes of the body.
    public init(_ header: String?, of length: UInt64) {
        self = .whole
        guard let header, header.utf8.count <= 64 else { return }
        let parts = header.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].lowercased() == "bytes" else { return }
        let ends = parts[1].split(separator: "-", omittingEmptySubsequences: false)
            .map { $0.trimmingOnce() }
        guard ends.count == 2 else { return }
        switch (ends[0].isEmpty, ends[1].isEmpty) {
        case (true, true): return
        case (true, false):
            guard let count = Self.number(ends[1]) else { return }
            self = count == 0 || length == 0 ? .unsatisfiable : .part(length - min(count, length)..<length)
        case (false, let isOpen):
            guard let first = Self.number(ends[0]), let last = isOpen ? .max : Self.number(ends[1]), first <= last
            else { return }
            self = first < length ? .part(first..<(last < length ? last + 1 : length)) : .unsatisfiable
        }
    }

    /// Digits alone; what is too large for a number is as good as the largest.
    private static func number(_ text: Substring) -> UInt64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
            return nil
        }
        return UInt64(text) ?? .max
    }
}

extension Substring {
    /// Without the spaces around it.
    fileprivate func trimmingOnce() -> Substring {
        let start = drop { $0 == " " }
        return start.prefix(start.count - start.reversed().prefix { $0 == " " }.count)
    }
}
