import Foundation
import NephosCore
import NephosFiles
import Synchronization

/// A content that is written into the home besides where it is to go. Its file is gone with this, unless it is kept.
///
/// What fails here is nobody's failure: the content is not kept then.
final class KeptContent: ContentSink {
    private struct State {
        /// Until the file has its row, no sweep may take it.
        var claim: FileLock?
        var isWhole = true
        var isKept = false
    }

    let file: DocumentID
    private let folder: ContentFolder
    private let sink: FileSink
    private let state: Mutex<State>

    /// - Returns: Nil: nothing can be written there.
    init?(_ folder: ContentFolder, _ file: DocumentID, length: UInt64) {
        guard let claim = try? folder.claim() else { return nil }
        guard let descriptor = try? folder.create(file) else { return nil }
        let open = OpenFile(descriptor)
        guard ftruncate(descriptor, off_t(clamping: length)) == 0 else {
            folder.remove(file)
            return nil
        }
        (self.file, self.folder) = (file, folder)
        state = Mutex(State(claim: claim))
        sink = FileSink(file: open, name: folder.file(file))
    }

    deinit { drop() }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) {
        guard isWhole else { return }
        do { try sink.write(bytes, at: offset) } catch { drop() }
    }

    var isWhole: Bool { state.withLock { $0.isWhole } }

    /// It has its row.
    func keep() { end(isKept: true) }
    /// It gets none.
    func drop() { end(isKept: false) }

    private func end(isKept: Bool) {
        let isOver = state.withLock { state in
            defer { (state.claim, state.isWhole) = (nil, false) }
            state.isKept = state.isKept || isKept
            return state.isKept || state.claim == nil
        }
        if !isOver { folder.remove(file) }
    }
}

/// Two places for one content.
struct TeeSink: ContentSink {
    let first: any ContentSink
    let second: any ContentSink

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        try first.write(bytes, at: offset)
        try second.write(bytes, at: offset)
    }
}
