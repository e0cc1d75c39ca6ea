internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

// Ignored files.
extension FolderSync {
    /// Reads the patterns again if their file has changed. Then everything is looked at again: what was ignored may not be
    /// any more.
    func readIgnorePatterns() throws(CloudError) {
        ignoreFile.due = nil
        let place = Place(folder: container.root, name: IgnoreRule.fileName)
        guard let facts = try? root.folder.facts(place.name) else {
            guard try read({ try $0.child(of: place.folder, named: place.name) }) == nil else {
                // Programs delete and write again: the patterns hold until the deletion is sent.
                if ignoreFile.isAwaited {
                    ignoreFile.isAwaited = false
                    scanAll()
                }
                return
            }
            // Another device's patterns are on their way. Before they are here, nothing new is sent.
            let wasAwaited = ignoreFile.isAwaited
            ignoreFile.isAwaited = try container.child(of: place.folder, named: Data(place.name))?.kind == .file
            if ignoreFile.stamp != nil || wasAwaited && !ignoreFile.isAwaited { take(nil, IgnoreRule()) }
            return
        }
        let stamp = FileStamp(facts)
        guard ignoreFile.stamp != stamp || ignoreFile.isAwaited else { return }
        // A program that saves it may have emptied it first.
        if ignoreFile.seen?.stamp != stamp { ignoreFile.seen = (stamp, .now) }
        let isOld = Date(timeIntervalSince1970: Double(facts.modified) / 1e9) < Date(timeIntervalSinceNow: -10)
        guard let seen = ignoreFile.seen, isOld || seen.time + LaterPlaces.calm <= .now else {
            ignoreFile.isAwaited = true
            ignoreFile.due = (ignoreFile.seen?.time ?? .now) + LaterPlaces.calm
            return
        }
        guard facts.kind == .file, facts.size <= IgnoreRule.fileSizeMax,
            let text = try? root.folder.content(of: IgnoreRule.fileName, bytesMax: IgnoreRule.fileSizeMax)
        else {
            block(
                place,
                "Its patterns cannot be read, so new files are not sent. Make it a readable file of at most 1 MiB.")
            return ignoreFile.isAwaited = true
        }
        ignoreFile.isAwaited = false
        take(stamp, IgnoreRule(text))
    }

    private func take(_ stamp: FileStamp?, _ rule: IgnoreRule) {
        (ignoreFile.stamp, ignoreFile.rule) = (stamp, rule)
        scanAll()
    }

    /// Leaves a file or folder without an item alone, if it is ignored.
    ///
    /// - Returns: False: it is not.
    func leaveIgnored(_ place: Place, _ facts: FileFacts) throws(CloudError) -> Bool {
        guard try isIgnored(place, isFolder: facts.kind == .folder) else { return false }
        unblock(place)
        later.remove(place)
        return true
    }

    private func isIgnored(_ place: Place, isFolder: Bool) throws(CloudError) -> Bool {
        if ignoreFile.isAwaited { return place != Place(folder: container.root, name: IgnoreRule.fileName) }
        guard !ignoreFile.rule.isEmpty, let path = try read({ try $0.path(of: place.folder) }),
            ignoreFile.rule.ignores(path + [place.name], isFolder: isFolder)
        else { return false }
        // A file that another device has put there is synced all the same.
        return try container.child(of: place.folder, named: Data(place.name)) == nil
    }

    /// Whether a folder has ignored files, and nothing else but junk. One that cannot be read may have others.
    func holdsOnlyIgnored(_ path: [FileName]) -> Bool {
        guard let folder = try? root.folder.folder(path), let names = try? folder.names() else { return false }
        let left = names.filter { !IgnoreRule.isJunk($0) || (try? folder.facts($0).kind) != .file }
        return !left.isEmpty
            && left.allSatisfy { name in
                if IgnoreRule.ignores(name) { return true }
                guard let isFolder = try? folder.facts(name).kind == .folder else { return false }
                return ignoreFile.rule.ignores(path + [name], isFolder: isFolder)
                    || isFolder && holdsOnlyIgnored(path + [name])
            }
    }
}
