internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What the operator has said that containers are.
struct ContainerStore {
    let transaction: any Transaction

    private static let columns =
        "container_id, class, folds_names, writer_app, version, trash_days, version_days, owner_app, administrators"
    private static let select = SQL("SELECT \(columns) FROM container_definitions WHERE container_id = ?1")
    private static let selectAll = SQL(
        """
        SELECT \(columns) FROM container_definitions WHERE container_id > ?1 ORDER BY container_id LIMIT ?2
        """)
    private static let selectCount = SQL("SELECT COUNT(*) FROM container_definitions")
    private static let upsert = SQL(
        """
        INSERT INTO container_definitions (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (container_id) DO UPDATE SET
            owner_app = excluded.owner_app, administrators = excluded.administrators,
            class = excluded.class, folds_names = excluded.folds_names, writer_app = excluded.writer_app,
            version = excluded.version, trash_days = excluded.trash_days, version_days = excluded.version_days
        """)

    func definition(of container: ItemName) throws -> ContainerDefinition? {
        try transaction.first(Self.select, [.text(container.rawValue)]) { Self.definition($0) }
    }

    /// Of containers after an id, in their order.
    func list(after id: String, limit: Int) throws -> [(container: ItemName, definition: ContainerDefinition)] {
        try transaction.all(Self.selectAll, [.text(id), .integer(Int64(limit))]) {
            (ItemName($0.text(0)), Self.definition($0))
        }
    }

    func count() throws -> Int { try transaction.first(Self.selectCount) { Int($0.integer(0)) } ?? 0 }

    /// - Parameter definition: Of a class that is known.
    func save(_ definition: ContainerDefinition, of container: ItemName) throws {
        try transaction.execute(
            Self.upsert,
            [
                .text(container.rawValue), .text((definition.containerClass ?? .documents).name),
                .integer(definition.foldsNames ? 1 : 0), .text(definition.writer?.rawValue ?? ""),
                .integer(Int64(clamping: definition.version)), .integer(Int64(definition.trashDays ?? 0)),
                .integer(Int64(definition.versionDays ?? 0)), .text(definition.owner?.rawValue ?? ""),
                // No account's id has a space.
                .text(definition.administrators.map(\.rawValue).joined(separator: " ")),
            ])
    }

    private static let selectWithoutOwner = SQL(
        """
        SELECT apps.app_id FROM app_containers JOIN apps ON apps.app_id = app_containers.app_id
        WHERE apps.removed = 0 AND NOT EXISTS (
            SELECT 1 FROM container_definitions
            WHERE container_definitions.container_id = app_containers.container_id AND owner_app <> '')
        ORDER BY apps.app_id LIMIT ?1
        """)

    /// Apps that list containers of which it is not known whose they are; each as often as it does.
    func withoutOwner(limit: Int) throws -> [AppID] {
        try transaction.all(Self.selectWithoutOwner, [.integer(Int64(limit))]) { AppID($0.text(0)) }
    }

    private static func definition(_ row: any SQLRow) -> ContainerDefinition {
        let writer = row.text(3)
        var definition = ContainerDefinition(
            containerClass: ContainerClass(named: row.text(1)), foldsNames: row.integer(2) != 0,
            writer: writer.isEmpty ? nil : AppID(writer), trashDays: days(row.integer(5)),
            versionDays: days(row.integer(6)),
            version: UInt64(clamping: row.integer(4)))
        definition.owner = row.text(7).isEmpty ? nil : AppID(row.text(7))
        definition.administrators = row.text(8).split(separator: " ").map { AccountID(String($0)) }
        return definition
    }

    private static func days(_ days: Int64) -> Int? { days == 0 ? nil : Int(days) }
}
