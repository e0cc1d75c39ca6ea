internal import CNephosFiles
internal import Dispatch
internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import Synchronization

/// Names in a folder that may have changed.
struct DirtyNames: Sendable, Equatable {
    /// Nil: any name.
    var names: Set<FileName>?

    static let all = DirtyNames(names: nil)
    /// With more names, the whole folder is listed.
    private static let namesMax = 256

    func contains(_ name: FileName) -> Bool { names?.contains(name) ?? true }

    mutating func insert(_ name: FileName?) {
        guard let name, var names else { return self = .all }
        names.insert(name)
        self.names = names.count > Self.namesMax ? nil : names
    }

    mutating func formUnion(_ other: DirtyNames) {
        guard let names, let more = other.names else { return self = .all }
        self.names = names.count + more.count > Self.namesMax ? nil : names.union(more)
    }
}

/// Kernel events of the folders of a tree, through inotify.
///
/// An event only says where to look. Nothing is concluded from an event, or from the absence of one: the scan reads the
/// disk. When events are lost, everything is dirty.
final class FolderWatch: Sendable {
    /// Events of one look.
    struct Events {
        var dirty: [DocumentID: DirtyNames] = [:]
        /// Files that are open and being written, with their folders.
        var written: [DocumentID: Set<FileName>] = [:]
        /// Events were lost: everything may have changed.
        var isOverflown = false

        /// Events of one folder are the other's too: on disk it is the same folder.
        mutating func tellAlso(_ new: DocumentID, of old: DocumentID) {
            if let names = dirty[old] { dirty[new, default: DirtyNames(names: [])].formUnion(names) }
            if let names = written[old] { written[new, default: []].formUnion(names) }
        }
    }

    private struct State {
        var folders: [Int32: DocumentID] = [:]
        var watches: [DocumentID: Int32] = [:]
        var unwatched: Set<DocumentID> = []
        var events = Events()
    }

    private let descriptor: Int32
    /// Sources may be used by any thread, which Dispatch does not tell the compiler on Linux.
    private nonisolated(unsafe) let source: (any DispatchSourceRead)?
    private let state: Mutex<State>
    private let onEvent: @Sendable () -> Void

    /// - Parameter onEvent: Called after events arrived.
    init(onEvent: @escaping @Sendable () -> Void) {
        self.onEvent = onEvent
        let descriptor = inotify_open()
        self.descriptor = descriptor
        state = Mutex(State())
        guard descriptor >= 0 else {
            source = nil
            return
        }
        let source = DispatchSource.makeReadSource(
            fileDescriptor: descriptor, queue: DispatchQueue(label: "nephos.agent.watch"))
        self.source = source
        source.setEventHandler { [weak self] in self?.readEvents() }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit { source?.cancel() }

    /// Watches a folder. To be called before its names are listed, so that no change falls between.
    ///
    /// - Returns: False: the system has no watch left, or the file system has none. The folder has to be scanned instead.
    @discardableResult
    func watch(_ folder: HeldFolder, as id: DocumentID) -> Bool {
        guard descriptor >= 0 else { return false }
        return state.withLock { state in
            let watch = "/proc/self/fd/\(folder.descriptor)".withCString { inotify_watch(descriptor, $0) }
            guard watch >= 0 else {
                state.unwatched.insert(id)
                return false
            }
            state.unwatched.remove(id)
            if let old = state.watches[id], old != watch { state.folders[old] = nil }
            if let old = state.folders[watch], old != id {
                state.watches[old] = nil
                state.events.tellAlso(id, of: old)
            }
            (state.folders[watch], state.watches[id]) = (id, watch)
            return true
        }
    }

    /// The folder's item has another id now. Events that were not taken yet get it too.
    func rename(_ old: DocumentID, to new: DocumentID) {
        state.withLock { state in
            state.events.tellAlso(new, of: old)
            guard let watch = state.watches.removeValue(forKey: old) else { return }
            (state.watches[new], state.folders[watch]) = (watch, new)
        }
    }

    /// Forgets the folders without a watch, before a scan finds them again.
    func forgetUnwatched() { state.withLock { $0.unwatched = [] } }

    /// Folders that are watched, and folders that no watch was left for.
    var coverage: (watched: Int, unwatched: Int) { state.withLock { ($0.watches.count, $0.unwatched.count) } }

    /// The events since the last call.
    func takeEvents() -> Events {
        state.withLock { state in
            defer { state.events = Events() }
            return state.events
        }
    }

    private func readEvents() {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 8)
        defer { buffer.deallocate() }
        var hasAny = false
        while true {
            let count = read(descriptor, buffer.baseAddress, buffer.count)
            guard count > 0 else { break }
            hasAny = true
            state.withLock { Self.parse(UnsafeRawBufferPointer(rebasing: buffer[..<count]), &$0) }
        }
        if hasAny { onEvent() }
    }

    private static func parse(_ bytes: UnsafeRawBufferPointer, _ state: inout State) {
        let header = MemoryLayout<inotify_event>.size
        var offset = 0
        while offset + header <= bytes.count {
            let event = bytes.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
            let end = offset + header + Int(event.len)
            guard end <= bytes.count else { return }
            let name = FileName(bytes[offset + header..<end].prefix { $0 != 0 })
            offset = end
            note(event.wd, UInt32(event.mask), name, &state)
        }
    }

    private static func note(_ watch: Int32, _ mask: UInt32, _ name: FileName, _ state: inout State) {
        if mask & UInt32(IN_Q_OVERFLOW) != 0 {
            state.events = Events(isOverflown: true)
            return
        }
        guard let folder = state.folders[watch] else { return }
        if mask & UInt32(IN_IGNORED) != 0 {
            state.folders[watch] = nil
            if state.watches[folder] == watch { state.watches[folder] = nil }
            return
        }
        guard name != RootFolder.ownName else { return }
        let isFolder = mask & UInt32(IN_ISDIR) != 0
        let isBeingWritten = mask & UInt32(IN_MODIFY) != 0 || mask & UInt32(IN_CREATE) != 0 && !isFolder
        if isBeingWritten {
            state.events.written[folder, default: []].insert(name)
        } else {
            // Also a file that was being written: it is closed.
            state.events.written[folder]?.remove(name)
            state.events.dirty[folder, default: DirtyNames(names: [])].insert(name.isEmpty ? nil : name)
        }
    }
}
