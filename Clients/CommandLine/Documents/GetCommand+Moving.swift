import NephosCore
import NephosKit

extension DocumentsCommand.Get {
    /// Gets the newest content that there is of the file, and moves the file to the trash once that is whole here.
    func moveOut() async throws {
        try await container.withContainer(within: nil, transfer: transfer) { container, _ in
            do {
                try await CopyRefresh(limit: wait.duration, isRequired: true).bring(container.scope)
            } catch let error as CloudError where ExitStatus.of(error) == .unreachable {
                throw CloudError(
                    error.code,
                    "The server does not say whether it has something newer, so nothing is moved. Try again, or get it without --move.",
                    details: error.details, retryAfter: error.retryAfter)
            }
            try await moveOut(of: container)
        }
    }

    private func moveOut(of container: UbiquityContainer) async throws {
        let sent = try await SentDocuments(container)
        let found = try await container.item(at: path)
        if found == nil, let place = try await container.packages.place(at: path, timeout: wait.duration) {
            throw CloudError(
                .invalidArguments, "A file in a package cannot be moved alone. Get it without --move.",
                details: ["path": path.text, "package": place.item.path])
        }
        var item = try await container.requireItem(at: path)
        guard item.kind != .folder else {
            throw CloudError(.invalidArguments, "With --move one file is got, no folder.", details: ["path": item.path])
        }
        if item.pending != .none, !item.isPaused {
            // What is not sent yet may turn out to be one of two.
            try await container.outbox.waitUntilSent(within: wait.duration)
            item = try await container.requireItem(at: path)
        }
        try Self.requireWhole(item)
        let place = try Self.place(target, item)
        let unkept = try await fetch(item, of: container, to: place, followsLinks: true, item.version).unkept
        unkept.list()
        // In the trash nobody would look for the rest of it.
        guard unkept.isEmpty else {
            throw CloudError(
                .constraintViolation,
                "The disk did not take all of the file's extended attributes, so it stays in the container. Get it to another disk, or without --move.",
                details: ["path": item.path, "file": place.text])
        }
        // The file here is whole; once it is flushed, too, the item may go.
        try place.flushPlace(followsLinks: item.kind != .link)
        let batch = try await container.trash.add(item.id, ifVersion: item.version)
        // A file put under this name later is a new one, not the deleted item.
        try container.localFiles.records.forget(place)
        let size = describe(bytes: item.size)
        let unsent: Unsent?
        do { unsent = try await sent.kept([item], within: wait.duration, shows: !output.json) } catch let error
            as CloudError where error.code == .constraintViolation
        {
            throw CloudError(
                .constraintViolation,
                "Another device has changed the file meanwhile, so it stays in the container. Get it again: what was got is what it was before.",
                details: ["path": item.path, "file": place.text])
        }
        let state =
            unsent.map {
                " The file \($0.isSentLater ? "goes to the trash later" : "is in the trash only here"): \($0.reason)"
            }
            ?? ""
        try output.print(
            [
                Report(
                    path: item.path, file: place.text, size: item.size, unkeptAttributes: unkept.names,
                    state: unsent == nil ? "sent" : "queued", batch: batch.description, reason: unsent?.reason)
            ],
            text: "Moved to \(inLine(place.text)) (\(size)). Back with: nephos docs undo \(batch)\(state)")
    }

    /// - Throws: ``CloudError`` `.constraintViolation` when there is more of it than goes into one file.
    private static func requireWhole(_ item: DocumentEntry) throws {
        let path = ShellCommand.arguments([item.path])
        var reason: String?
        if item.state == .refused {
            reason = "A change of the file was not taken, and is kept here (nephos why). Say what becomes of it first."
        } else if item.pending != .none {
            reason =
                item.isPaused
                ? "The sync of the file is paused, and a change of it was not sent. First: nephos docs resume \(path)"
                : "A change of the file was not sent. Get it once it is: nephos docs status \(path)"
        } else if item.conflictCount > 0 {
            reason = "Two contents of the file were written at once. Decide first: nephos docs resolve \(path)"
        }
        if let reason { throw CloudError(.constraintViolation, reason, details: ["path": item.path]) }
    }
}
