import NephosCore

/// A content in the home that the server has too: it is read from here, and goes when room is needed.
struct LocalCopy: Sendable {
    /// What its file is called.
    var file: DocumentID
    var length: UInt64
    /// In their order: what is read is checked by them.
    var chunks: [CutChunk]
    /// When it was read last.
    var used: Timestamp
}
