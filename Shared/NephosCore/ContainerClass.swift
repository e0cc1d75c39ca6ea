/// What follows from what a container is for. The operator says which class a container is of before its first use;
/// what each one means is said here alone.
public struct ContainerClass: Hashable, Sendable {
    /// As people say it.
    public let name: String
    /// As it is stored and told; never used again for another.
    public let number: UInt8
    /// Whether it counts on the plan. If not, it counts on a bound of its class, which the operator sets.
    public let countsOnPlan: Bool
    /// Whether a person sees anything of it in `Documents`.
    public let hasDocuments: Bool
    /// Versions that are kept of a content, conflicts aside.
    public let versionsMax: Int
    /// Bytes of a content.
    public let contentBytesMax: UInt64
    /// Files that are kept: the newest ones. Nil: all.
    public let itemsMax: Int?
    /// How long a file is kept. Nil: until it is removed.
    public let itemLifetime: Duration?
    /// How long something stays in the trash, and after that is removed for good; and how long former versions are kept:
    /// in days, unless the operator says otherwise.
    public let trashDays: Int
    public let versionDays: Int

    /// What a person works with.
    public static let documents = ContainerClass(
        name: "documents", number: 0, countsOnPlan: true, hasDocuments: true, versionsMax: DocumentLimits.versionsMax,
        contentBytesMax: DocumentLimits.contentBytesMax, itemsMax: nil, itemLifetime: nil, trashDays: 30,
        versionDays: 365)
    /// Copies of what lies elsewhere.
    public static let backup = ContainerClass(
        name: "backup", number: 1, countsOnPlan: true, hasDocuments: false, versionsMax: 10,
        contentBytesMax: DocumentLimits.contentBytesMax, itemsMax: nil, itemLifetime: nil, trashDays: 30,
        versionDays: 365)
    /// What passes by.
    public static let stream = ContainerClass(
        name: "stream", number: 2, countsOnPlan: false, hasDocuments: true, versionsMax: 1,
        contentBytesMax: 50_000_000, itemsMax: 1000, itemLifetime: .seconds(30 * 24 * 3600),
        trashDays: 7, versionDays: 30)
    /// What one owns, and can get again.
    public static let library = ContainerClass(
        name: "library", number: 3, countsOnPlan: false, hasDocuments: true, versionsMax: DocumentLimits.versionsMax,
        contentBytesMax: DocumentLimits.contentBytesMax, itemsMax: nil, itemLifetime: nil, trashDays: 30,
        versionDays: 365)

    public static let all: [ContainerClass] = [.documents, .backup, .stream, .library]

    /// - Returns: Nil: this version knows no class of this number.
    public init?(number: UInt8) {
        guard let known = Self.all.first(where: { $0.number == number }) else { return nil }
        self = known
    }

    /// - Returns: Nil: there is none of this name.
    public init?(named name: String) {
        guard let known = Self.all.first(where: { $0.name == name }) else { return nil }
        self = known
    }

    private init(
        name: String, number: UInt8, countsOnPlan: Bool, hasDocuments: Bool, versionsMax: Int,
        contentBytesMax: UInt64, itemsMax: Int?, itemLifetime: Duration?, trashDays: Int, versionDays: Int
    ) {
        (self.trashDays, self.versionDays) = (trashDays, versionDays)
        self.name = name
        self.number = number
        self.countsOnPlan = countsOnPlan
        self.hasDocuments = hasDocuments
        self.versionsMax = versionsMax
        self.contentBytesMax = contentBytesMax
        self.itemsMax = itemsMax
        self.itemLifetime = itemLifetime
    }
}
