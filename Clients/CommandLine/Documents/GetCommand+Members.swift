import NephosCore
import NephosKit

/// What lies in a package, got by itself.
extension DocumentsCommand.Get {
    func getMember(_ found: PackagePlace, of container: UbiquityContainer) async throws {
        guard let member = found.member else { return }
        let path = found.item.path(of: member)
        guard rendition == nil else {
            throw CloudError(
                .invalidArguments, "Files in a package have no renditions.", details: ["path": path])
        }
        if target == "-" {
            return try await about(["path": path]) {
                let stream = try await container.packages.stream(member, of: found.item.id, timeout: wait.duration)
                for try await piece in stream { try StandardOutput.write(piece) }
            }
        }
        let place = try Self.place(target, member.nameBytes, found.item)
        guard member.kind == .folder else {
            let unkept = try await about(["path": path]) {
                try await fetch(member, of: found.item, to: place, followsLinks: true, in: container)
            }
            unkept.list()
            return try output.print(
                [Report(path: path, file: place.text, size: member.size, unkeptAttributes: unkept.names)],
                text: "Got \(inLine(place.text)) (\(describe(bytes: member.size))).")
        }
        guard recursive else {
            throw CloudError(
                .invalidArguments, "This is a folder. With -r it is copied with all that is in it.",
                details: ["path": path])
        }
        let top = Self.folder(target, "\(found.item.id)/\(member.path)", place)
        try top.make()
        var places = [member.pathBytes: top.place]
        var reports: [Report] = []
        var failures = ItemFailures()
        var unkept: [UnkeptAttribute] = []
        var end: CloudError?
        // A folder comes before what is in it; what is in a package was checked when its list was read.
        for member in found.members {
            // What is in a folder that could not be made fails with it.
            guard end == nil, let folder = places[member.folder] else { continue }
            let file = folder.appending(member.nameBytes)
            let path = found.item.path(of: member)
            do throws(CloudError) {
                if member.kind == .folder {
                    try file.makeFolder()
                    places[member.pathBytes] = file
                } else {
                    let lacking = try await fetch(
                        member, of: found.item, to: file, followsLinks: false, in: container)
                    unkept += lacking
                    reports.append(
                        Report(path: path, file: file.text, size: member.size, unkeptAttributes: lacking.names))
                }
            } catch {
                failures.add(path, error)
                if ItemFailures.concernsAll(error) { end = error }
            }
        }
        failures.list("not got")
        unkept.list()
        let failed = failures.rows.map { Report(path: $0.path, file: "", size: 0, failure: $0) }
        try output.print(reports + failed, text: Self.text(reports, 0))
        if let end { throw end }
        try failures.end()
        try top.end()
    }

    private func fetch(
        _ member: PackageMember, of item: DocumentEntry, to file: LocalPath, followsLinks: Bool,
        in container: UbiquityContainer
    ) async throws(CloudError) -> [UnkeptAttribute] {
        let line = ProgressLine("fetching", isShown: !output.json)
        defer { line.clear() }
        let name = member.name
        return try await container.packages.get(
            member, of: item.id, to: file, followsLinks: followsLinks, timeout: wait.duration
        ) { done, total in
            line.show(done: Int(clamping: done), total: Int(clamping: total), name: name)
        }
    }
}
