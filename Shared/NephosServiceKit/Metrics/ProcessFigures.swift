internal import CNephosJemalloc
private import Foundation
internal import NephosCore

/// What the kernel says of this process and of its disk. Read from `/proc`, which may take a while with very many
/// connections: not on a loop.
struct ProcessFigures: Sendable {
    var cpuSeconds = 0.0
    var residentBytes = 0
    var virtualBytes = 0
    /// What counts against the limit of memory.
    var dataBytes = 0
    /// Nil: there is none.
    var dataBytesMax: Int?
    var threads = 0
    var openDescriptors = 0
    var descriptorsMax = 0
    /// Since 1970.
    var startSeconds = 0.0
    /// Of files of the service; nil: there is no such file.
    var databaseBytes: Int?
    var logBytes: Int?
    var diskFreeBytes: Int?
    var diskBytes: Int?

    /// - Parameter storage: Whose files are looked at.
    init(_ storage: StorageFiles) {
        readStatus()
        readTimes()
        openDescriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0
        descriptorsMax = Int(clamping: nephos_descriptor_limit())
        dataBytesMax = Int(exactly: nephos_memory_limit())
        databaseBytes = storage.database.flatMap(Self.size)
        logBytes = storage.log.map { Self.size($0) ?? 0 }
        var disk = statvfs()
        if let database = storage.database, statvfs(database, &disk) == 0 {
            diskFreeBytes = Int(disk.f_bavail) * Int(disk.f_frsize)
            diskBytes = Int(disk.f_blocks) * Int(disk.f_frsize)
        }
    }

    /// The database and the log beside it; nil: there is none.
    struct StorageFiles: Sendable {
        var database: String?
        var log: String?
    }

    private static func size(_ path: String) -> Int? {
        var information = stat()
        return stat(path, &information) == 0 ? Int(information.st_size) : nil
    }

    private static func text(_ path: String) -> String {
        FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    private mutating func readStatus() {
        for line in Self.text("/proc/self/status").split(separator: "\n") {
            let words = line.split(whereSeparator: { $0 == ":" || $0 == "\t" || $0 == " " })
            guard words.count > 1, let value = Int(words[1]) else { continue }
            switch words[0] {
            case "VmRSS": residentBytes = value * 1024
            case "VmSize": virtualBytes = value * 1024
            case "VmData": dataBytes = value * 1024
            case "Threads": threads = value
            default: break
            }
        }
    }

    private mutating func readTimes() {
        let text = Self.text("/proc/self/stat")
        // The fields after the name, which may have parentheses of its own: the state is the first.
        guard let end = text.lastIndex(of: ")") else { return }
        let fields = text[end...].split(separator: " ").dropFirst()
        let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))
        guard fields.count > 19 else { return }
        func field(_ number: Int) -> Double { Double(fields[fields.startIndex + number]) ?? 0 }
        cpuSeconds = (field(11) + field(12)) / ticks
        startSeconds = Self.bootSeconds + field(19) / ticks
    }

    /// When the machine began, which a start is told from. Once: by two clocks it is another time at each look. (A
    /// service under systemd does not see /proc/stat.)
    private static let bootSeconds = {
        var uptime = timespec()
        clock_gettime(CLOCK_BOOTTIME, &uptime)
        return Date().timeIntervalSince1970 - Double(uptime.tv_sec) - Double(uptime.tv_nsec) / 1e9
    }()
}
