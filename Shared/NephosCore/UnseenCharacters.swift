extension String {
    /// Whether it has characters of which a reader sees nothing, or something else than them.
    public var hasUnseenCharacters: Bool { scalarsWithUnseen { $0.contains { $0.isUnseen } } }

    /// Its scalars, each with whether it is one that a reader does not see.
    ///
    /// Those are control characters, which are commands to a terminal; format characters, which join, tag or turn
    /// the direction of writing (soft hyphen and byte order mark among them); fillers; what is private or not
    /// assigned. A joiner between two emoji is not among them, nor is a selector of emoji or text form behind what has
    /// these forms.
    public func scalarsWithUnseen<Result>(
        _ body: (LazyMapSequence<Range<Int>, (scalar: Unicode.Scalar, isUnseen: Bool)>) throws -> Result
    ) rethrows -> Result {
        let scalars = Array(unicodeScalars)
        return try body(
            scalars.indices.lazy.map { place in
                let scalar = scalars[place]
                guard scalar.isUnseen else { return (scalar, false) }
                let before = place > 0 ? scalars[place - 1] : nil
                let after = place + 1 < scalars.count ? scalars[place + 1] : nil
                return (scalar, !scalar.isPartOfPicture(between: before, and: after))
            })
    }

    /// Whether somebody who reads it sees anything at all.
    public var hasVisibleCharacters: Bool {
        scalarsWithUnseen { $0.contains { !$0.isUnseen && !$0.scalar.isBlank } }
    }
}

extension Unicode.Scalar {
    fileprivate var isUnseen: Bool {
        if value >= 0x20, value < 0x7f { return false }
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: return true
        default: return properties.isDefaultIgnorableCodePoint
        }
    }

    /// A space, or what looks like one (a pattern of Braille without dots).
    fileprivate var isBlank: Bool { properties.generalCategory == .spaceSeparator || value == 0x2800 }

    /// Whether it joins two emoji, or says in which form the one before it is shown.
    fileprivate func isPartOfPicture(between before: Unicode.Scalar?, and after: Unicode.Scalar?) -> Bool {
        guard let before else { return false }
        switch value {
        case 0x200d: return (before.isPicture || before.value == 0xfe0f) && after?.isPicture == true
        // Digits and signs have another form only on a key.
        case 0xfe0e, 0xfe0f: return before.properties.isEmoji && (before.value > 0x7f || after?.value == 0x20e3)
        default: return false
        }
    }

    /// An emoji, but none of the digits and signs that only become one with a selector.
    fileprivate var isPicture: Bool { properties.isEmoji && value > 0xff }
}
