import NephosCore

/// Runs the body, and adds to an error of its what it was about, where that says less.
func about<Result>(
    _ details: [String: String], isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Result
) async throws -> Result {
    do { return try await body() } catch var error as CloudError {
        error.details.merge(details) { own, _ in own }
        throw error
    }
}

/// What could not be done of what a command was to do with several items: the others take no harm by it.
struct ItemFailures {
    /// As `--json` prints it.
    struct Row: Encodable {
        /// Of the item or the local file.
        var path: String
        var error: String
        var message: String
        var details: [String: String]

        init(_ path: String, _ error: CloudError) {
            self.path = path
            self.error = error.code.description
            message = error.sentence
            details = error.details
        }
    }

    private var failures: [(path: String, error: CloudError)] = []

    var isEmpty: Bool { failures.isEmpty }
    var count: Int { failures.count }
    var rows: [Row] { failures.map { Row($0.path, $0.error) } }

    mutating func add(_ path: String, _ error: CloudError) { failures.append((path, error)) }

    /// Whether the others would fail for the same reason: it is not about the item.
    static func concernsAll(_ error: CloudError) -> Bool {
        switch ExitStatus.of(error) {
        case .unreachable, .locked, .interrupted: true
        // What this user may not do with one local file is about that.
        case .refused: error.details["file"] == nil
        default: false
        }
    }

    /// Whether a content is lost or damaged, or sealed by a newer service: others may be whole.
    static func concernsContent(_ error: CloudError) -> Bool {
        error.code == .unknownItem
            || error.code == .storageFailure && ["damaged", "version"].contains(error.details["reason"])
    }

    /// Says what failed, and why, where a person looks for it; of what failed for one reason only the first.
    ///
    /// - Parameter what: Such as `not put`.
    func list(_ what: String) {
        var groups: [(path: String, error: CloudError, count: Int)] = []
        var places: [String: Int] = [:]
        for (path, error) in failures {
            let key = "\(error.code) \(error.message) \(error.details.sorted { $0.key < $1.key })"
            if let place = places[key] {
                groups[place].count += 1
            } else {
                places[key] = groups.count
                groups.append((path, error, 1))
            }
        }
        for (path, error, count) in groups {
            let others = count > 1 ? " and \(count - 1) more for the same reason" : ""
            Standard.error("nephos: \(what): \(inLine(path))\(others): \(printable(error.sentence, keepsLines: true))")
            for (name, value) in error.details.sorted(by: { $0.key < $1.key }) where value != path {
                Standard.error("  \(name.replacing("_", with: " ")): \(inLine(value))")
            }
        }
    }

    /// - Throws: ``ExitStatus`` of what failed: of all of them where it is one, else ``ExitStatus/failed``.
    func end() throws(ExitStatus) {
        let statuses = Set(failures.map { ExitStatus.of($0.error) })
        if let status = statuses.first { throw statuses.count == 1 ? status : .failed }
    }

    /// - Throws: ``CloudError`` of the only one, if nothing else was to be done.
    func requireMore(than done: Int) throws(CloudError) {
        if done == 0, failures.count == 1 { throw failures[0].error }
    }
}
