/// Bounds of the way that content takes between a device and a service, in bytes.
public enum BulkLimits {
    /// A chunk, at most.
    public static let chunkBytesMax = 1 << 20
    /// What a chunk counts at least, in credit, in reserved room and on the plan: its rows and its record take room
    /// too.
    public static let chunkBytesMin = 4096
    /// What a device may have sent without an answer, by all its connections together.
    public static let creditBytes = 8 << 20

    /// What a chunk of so many bytes counts.
    public static func counted(_ bytes: Int) -> Int { max(bytes, chunkBytesMin) }
}
