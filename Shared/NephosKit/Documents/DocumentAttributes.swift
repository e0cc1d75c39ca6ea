public import Foundation
internal import NephosCore
internal import NephosFiles
public import NephosPredicates
internal import NephosWire

/// What a person or an app says of an item beside its content: all of it is on every device, and none of it is a version.
public struct DocumentAttributes: Hashable, Sendable {
    /// The extended attribute of what need not be kept a second time, by its name: an item that has it with any value is
    /// left out of backups, and stays where it is. It begins with `user.`, so that files on disk have it too.
    public static let doNotBackUp = "user.nephos.do-not-back-up"

    /// When it was made, as the person's device says; nil: it does not say.
    public var created: DocumentDate?
    /// Whether the file may be run as a program.
    public var isExecutable: Bool
    /// The labels that the person has given it, in the order in which they were given.
    public var tags: [String]
    /// Where it stands among the person's favourites, the lowest first; 0: it is none.
    public var favouriteRank: Int64
    /// Further ones, by the bytes of their names. Those whose names begin with `user.` are kept with files on disk.
    public var extended: [Data: Data]
    /// Whether it is left out of backups: ``doNotBackUp``.
    public var isExcludedFromBackup: Bool { extended(named: DocumentAttributes.doNotBackUp) != nil }

    /// The extended attribute of this name; nil: there is none.
    public func extended(named name: String) -> Data? { extended[Data(name.utf8)] }

    init(_ wire: WireItemAttributes) {
        created = wire.created == 0 ? nil : DocumentDate(nanoseconds: wire.created)
        isExecutable = wire.executable
        tags = wire.tags
        favouriteRank = wire.favouriteRank
        extended = Dictionary(wire.extended.map { ($0.name, $0.value) }) { $1 }
    }
}

/// One change of what is said of an item; see ``UbiquityContainer/setAttributes(_:of:conditions:)``.
public enum DocumentAttributeChange: Hashable, Sendable {
    /// Gives it a label, unless it has it: 1 to 128 bytes, 32 of an item at most.
    case tag(String)
    /// Takes a label away, if it has it.
    case untag(String)
    /// Gives it these labels in place of all that it has.
    case tags([String])
    /// Says where it stands among the person's favourites; 0: it is none.
    case favouriteRank(Int64)
    /// Sets an extended attribute. An empty value is none. Names have 1 to 255 bytes without NUL; an item has 64 at most,
    /// of 32 KiB with their names.
    case extended(String, Data)
    /// Takes an extended attribute away, if it has it.
    case removeExtended(String)
    /// Whether it is left out of backups: ``DocumentAttributes/doNotBackUp``.
    case excludedFromBackup(Bool)
    /// When it was made. The first nanosecond of 1970 stands for no date.
    case created(DocumentDate)
}

extension WireSetAttributes {
    /// - Parameter item: What they are changes of.
    init(_ changes: [DocumentAttributeChange], of item: WireItemAttributes) {
        self.init()
        for change in changes {
            switch change {
            case .tag(let tag): set(tags(of: item).filter { !$0.hasBytes(of: tag) } + [tag])
            case .untag(let tag): set(tags(of: item).filter { !$0.hasBytes(of: tag) })
            case .tags(let tags):
                set(
                    tags.enumerated().filter { index, tag in !tags[..<index].contains { $0.hasBytes(of: tag) } }
                        .map(\.element))
            case .favouriteRank(let rank): favouriteRank = rank
            case .extended(let name, let value): set(name, to: value)
            case .removeExtended(let name): set(name, to: Data())
            case .excludedFromBackup(let isExcluded):
                set(DocumentAttributes.doNotBackUp, to: Data(isExcluded ? "1".utf8 : "".utf8))
            case .created(let time): created = time.nanoseconds
            }
        }
    }

    private func tags(of item: WireItemAttributes) -> [String] { hasTags ? tags.tags : item.tags }

    private mutating func set(_ tags: [String]) { self.tags.tags = tags }

    private mutating func set(_ name: String, to value: Data) {
        var attribute = WireExtendedAttribute()
        attribute.name = Data(name.utf8)
        attribute.value = value
        extended.append(attribute)
    }
}

extension String {
    /// As names are compared everywhere.
    fileprivate func hasBytes(of other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}

/// An extended attribute that this machine's disk did not take: it stays with the item, and the file is without it.
public struct UnkeptAttribute: Hashable, Sendable {
    /// The file that is without it.
    public var file: String
    /// The attribute's name; where that is no text it shows U+FFFD in its place.
    public var name: String
    /// What the system says.
    public var reason: String
}

/// Those that a disk did not take while something was got, up to so many.
struct UnkeptAttributes {
    private static let countMax = 1000
    private(set) var list: [UnkeptAttribute] = []

    /// Sets what belongs on a disk, and notes what it does not take.
    mutating func set(_ name: some Sequence<UInt8>, to value: some Sequence<UInt8>, of descriptor: Int32, file: String)
    {
        let name = Array(name)
        do throws(ExtendedAttributes.Failure) {
            try ExtendedAttributes.set(name, to: Array(value), of: descriptor)
        } catch {
            guard list.count < Self.countMax else { return }
            list.append(
                UnkeptAttribute(
                    file: file, name: String(decoding: name, as: UTF8.self),
                    reason: String(cString: strerror(error.number))))
        }
    }
}
