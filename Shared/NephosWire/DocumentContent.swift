extension WireDocumentContent {
    /// Whether both have the same bytes: then neither is lost without the other.
    public func hasBytes(of other: WireDocumentContent) -> Bool {
        length == other.length && inline == other.inline && root == other.root && depth == other.depth
    }
}
