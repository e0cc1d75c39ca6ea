extension String {
    /// Whether it has characters of which a reader sees nothing, or something else than them.
    public var hasUnseenCharacters: Bool { scalarsWithUnseen { $0.contains { $0.isUnseen } } }

    /// Its scalars, each with whether it is one that a reader does not see.
    ///
    /// Those are control characters, which are commands to a terminal; format characters, which join, tag or turn
    /// the direction of writing (soft hyphen and byte order mark among them); fillers; what is private or not
    /// assigned. The selectors of emoji and text form are not among them, nor is a joiner between two emoji.
    public func scalarsWithUnseen<Result>(
        _ body: (LazyMapSequence<Range<Int>, (scalar: Unicode.Scalar, isUnseen: Bool)>) throws -> Result
    ) rethrows -> Result {
        let scalars = Array(unicodeScalars)
        return try body(
            scalars.indices.lazy.map { place in
                let scalar = scalars[place]
                guard scalar.isUnseen else { return (scalar, false) }
                let joins =
                    scalar == "\u{200d}" && place > 0 && place + 1 < scalars.count
                    && (scalars[place - 1].isPicture || scalars[place - 1] == "\u{fe0f}")
                    && scalars[place + 1].isPicture
                return (scalar, !joins)
            })
    }
}

extension Unicode.Scalar {
    fileprivate var isUnseen: Bool {
        if value >= 0x20, value < 0x7f { return false }
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: return true
        default: return properties.isDefaultIgnorableCodePoint && value != 0xfe0e && value != 0xfe0f
        }
    }

    /// An emoji, but none of the digits and signs that only become one with a selector.
    fileprivate var isPicture: Bool { properties.isEmoji && value > 0xff }
}
