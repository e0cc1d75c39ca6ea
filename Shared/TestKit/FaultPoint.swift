public import Core

/// A place where something can be made to go wrong: each call of services and devices that reads, writes, sends or
/// receives. This is the list of them.
public struct FaultPoint: Hashable, Sendable {
    /// What can go wrong at a place.
    public enum Kind: String, CaseIterable, Sendable {
        /// It fails, and nothing of it is done: the disk is full or cannot be read, the message is lost without a sign.
        case fails
        /// It takes time, and whoever does it does nothing else meanwhile.
        case slow
        /// It is done, or half of it, and whoever does it does not come to know: the service dies before it answers,
        /// the connection breaks, half a file is left.
        case halfDone
    }

    /// Such as `keyvalue.commit`.
    public var name: String
    /// What it can be made to do.
    public var kinds: Set<Kind>

    /// Whether it is a device's.
    public var isOfDevice: Bool { name.hasPrefix("device.") }

    /// What a service does. It publishes to other services, and sends to devices.
    private static let ofServices: [(name: String, kinds: Set<Kind>)] = [
        ("read", [.fails, .slow]), ("commit", [.fails, .slow, .halfDone]), ("send", [.fails, .slow, .halfDone]),
        ("receive", [.fails, .slow, .halfDone]), ("publish", [.fails, .slow, .halfDone]),
    ]

    /// What a device does: its database, its secrets' file, its lines, and the steps between two things that are saved
    /// when the account changes or a file of defaults is mirrored.
    private static let ofDevices: [(name: String, kinds: Set<Kind>)] =
        [
            ("read", [.fails, .slow]), ("save", [.fails, .slow]), ("secrets", [.fails, .slow, .halfDone]),
            ("send", [.fails, .slow, .halfDone]), ("receive", [.fails, .slow, .halfDone]),
        ]
        + [
            "sign-in.commit", "sign-out.commit", "switch.secrets", "switch.session", "switch.clear", "mirror.write",
            "mirror.rename", "mirror.note",
        ].map { ($0, [.fails]) }

    /// Every place there is.
    public static let all: [FaultPoint] =
        [ServiceName.identity, .keyValue, .notifications, .documents, .records].flatMap { service in
            ofServices.map { FaultPoint(name: "\(service).\($0.name)", kinds: $0.kinds) }
        } + ofDevices.map { FaultPoint(name: "device.\($0.name)", kinds: $0.kinds) }

    private static let byName = Dictionary(all.map { ($0.name, $0) }) { $1 }

    /// - Throws: ``CloudError`` `.invalidArguments` for a name that is not in the list.
    public init(named name: String) throws(CloudError) {
        guard let point = Self.byName[name] else {
            throw CloudError(
                .invalidArguments, "There is no place of this name where something could go wrong.",
                details: ["name": name, "names": Self.all.map(\.name).joined(separator: ", ")])
        }
        self = point
    }

    private init(name: String, kinds: Set<Kind>) {
        self.name = name
        self.kinds = kinds
    }
}
