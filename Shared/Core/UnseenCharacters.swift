extension Unicode.Scalar {
    /// Whether a reader sees nothing of it, or something else than it: control characters, which are commands to a
    /// terminal; format characters, which join, tag or turn the direction of writing (soft hyphen and byte order mark
    /// among them); fillers; what is private or not assigned. The selectors of emoji and text form are not among them.
    public var isUnseen: Bool {
        if value >= 0x20, value < 0x7f { return false }
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: return true
        default: return properties.isDefaultIgnorableCodePoint && value != 0xfe0e && value != 0xfe0f
        }
    }
}
