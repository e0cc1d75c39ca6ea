internal import Foundation

/// What a disk does that forgets.
package enum SegmentDamage {
    /// Changes the last byte of each segment in the folder and those in it: a chunk's.
    package static func damageAll(in folder: String) throws {
        let names = FileManager.default.enumerator(atPath: folder)
        while let name = names?.nextObject() as? String {
            guard name.hasSuffix(".segment"), let file = FileHandle(forUpdatingAtPath: folder + "/" + name) else {
                continue
            }
            let end = try file.seekToEnd()
            guard end > 0 else { continue }
            try file.seek(toOffset: end - 1)
            guard let last = try file.readToEnd()?.first else { continue }
            try file.seek(toOffset: end - 1)
            try file.write(contentsOf: [last ^ 1])
            try file.close()
        }
    }
}
