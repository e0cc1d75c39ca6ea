internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit
internal import Synchronization

// PROPFIND and PROPPATCH.
extension DavHandler {
    /// Which properties are asked for.
    enum Wanted {
        case all
        case names
        case some([XMLName])
    }

    static let ocNamespace = "http://owncloud.org/ns"

    // MARK: PROPFIND

    func find() async throws -> HTTPResponse {
        let depth = request.header("Depth") ?? "infinity"
        guard ["0", "1"].contains(depth) else { throw DavRefusal(403, condition: "propfind-finite-depth") }
        let wanted = try await wanted()
        let lister = try await Lister(self, wanted, isDeep: depth == "1")
        return HTTPResponse(
            207, headers: [(name: "Content-Type", value: "application/xml; charset=utf-8")],
            .stream(HTTPBodyStream { try await lister.next() }))
    }

    private func wanted() async throws -> Wanted {
        let bytes = try await request.body?.all(max: XMLElement.bytesMax) ?? []
        guard !bytes.isEmpty else { return .all }
        guard let body = XMLElement.parse(bytes), body.name == .dav("propfind") else { throw DavRefusal.badBody }
        if body.first(.dav("propname")) != nil { return .names }
        if let prop = body.first(.dav("prop")) { return .some(prop.elements.map(\.name).unique) }
        guard body.first(.dav("allprop")) != nil else { throw DavRefusal.badBody }
        return .all
    }

    /// Writes a listing some items at a time, so that one of many takes no more memory than one of few.
    private actor Lister {
        private static let pageCount = 500
        private static let pageBytes = 1 << 20

        private let handler: DavHandler
        private let wanted: Wanted
        private let quota: Quota?
        private let locks: [DavLock]
        private var rest: [Listed]
        private var state = State.head

        private enum State { case head, items, end }

        private struct Listed {
            var path: DavPath
            /// Nil: the list of containers, or a container.
            var entry: DocumentEntry?
            var hidden: HiddenFiles.File?
        }

        init(_ handler: DavHandler, _ wanted: Wanted, isDeep: Bool) async throws {
            (self.handler, self.wanted) = (handler, wanted)
            let path = handler.path
            rest = []
            locks = try handler.locks.locks(of: handler.user.account, at: path, withInner: isDeep)
            quota =
                handler.wants(wanted, [.dav("quota-available-bytes"), .dav("quota-used-bytes")])
                ? await Quota(handler.user) : nil
            if HiddenFiles.isHidden(path), let file = handler.user.hidden[path] {
                rest = [Listed(path: path, hidden: file)]
                return
            }
            guard let place = try await handler.place(path) else { throw DavRefusal.notFound }
            rest = [Listed(path: path, entry: place.entry)]
            guard isDeep, place.isFolder else { return }
            if path.isTop {
                rest += try handler.user.session.containers().map { Listed(path: DavPath(container: $0, names: [])) }
                return
            }
            rest += try await handler.changes(path).children(of: path.document)
                .filter { [.file, .folder].contains($0.kind) }
                .map { Listed(path: path.appending($0.nameBytes), entry: $0) }
            rest += handler.user.hidden.children(of: path).map {
                Listed(path: path.appending($0.name), hidden: $0.file)
            }
        }

        func next() async throws -> [UInt8] {
            switch state {
            case .head:
                state = .items
                let names = "xmlns:D=\"DAV:\" xmlns:oc=\"\(DavHandler.ocNamespace)\""
                return Array("\(XMLText.head)<D:multistatus \(names)>\n".utf8)
            case .items where rest.isEmpty:
                state = .end
                return Array("</D:multistatus>\n".utf8)
            case .items: return try await nextItems()
            case .end: return []
            }
        }

        private func nextItems() async throws -> [UInt8] {
            let page = rest.prefix(Self.pageCount)
            let ids = page.compactMap { $0.entry?.id }
            let attributes = ids.isEmpty ? [:] : try await handler.changes(handler.path).attributes(of: ids)
            var text = ""
            var count = 0
            for listed in page where text.utf8.count < Self.pageBytes {
                count += 1
                if let file = listed.hidden {
                    text += handler.answer(for: listed.path, hidden: file, wanted)
                } else {
                    text += handler.answer(
                        for: listed.path, listed.entry, listed.entry.flatMap { attributes[$0.id] } ?? [:],
                        locks.filter { $0.path == listed.path || $0.isDeep && $0.path.contains(listed.path) }, quota,
                        wanted)
                }
            }
            rest.removeFirst(count)
            return Array(text.utf8)
        }
    }

    /// The room on the account's plan; nil: unknown.
    private struct Quota {
        var used: UInt64
        var available: UInt64

        init?(_ user: WebUser) async {
            guard let storage = try? await user.session.storage(timeout: .seconds(2)) else { return nil }
            used = storage.usedBytes
            available = storage.planBytes - min(storage.planBytes, storage.usedBytes)
        }
    }

    private func wants(_ wanted: Wanted, _ names: [XMLName]) -> Bool {
        if case .some(let some) = wanted { some.contains { names.contains($0) } } else { false }
    }

    /// A property as it is written: its name, and its content as XML.
    private typealias Property = (name: XMLName, content: String)

    private func answer(
        for path: DavPath, _ entry: DocumentEntry?, _ attributes: [Data: Data], _ locks: [DavLock], _ quota: Quota?,
        _ wanted: Wanted
    ) -> String {
        let isFolder = entry.map { $0.kind == .folder } ?? true
        var live: [Property] = [(.dav("resourcetype"), isFolder ? "<D:collection/>" : "")]
        if let entry {
            if let created = entry.created {
                live.append((.dav("creationdate"), DateFormatter.iso.string(from: created.date)))
            }
            if let modified = entry.modified ?? entry.created {
                live.append((.dav("getlastmodified"), DateFormatter.http.string(from: modified.date)))
            }
            if let tag = Self.tag(entry) {
                live.append((.dav("getcontentlength"), "\(entry.size)"))
                live.append((.dav("getcontenttype"), XMLText.escaped(Self.type(of: entry))))
                live.append((.dav("getetag"), XMLText.escaped(tag)))
                if let sum = Checksum.kept(attributes[Checksum.attribute], of: entry.version) {
                    live.append(
                        (
                            XMLName(namespace: Self.ocNamespace, local: "checksums"),
                            "<oc:checksum>\(XMLText.escaped(sum))</oc:checksum>"
                        ))
                }
            }
        }
        live.append(
            (
                .dav("supportedlock"),
                ["exclusive", "shared"].map {
                    "<D:lockentry><D:lockscope><D:\($0)/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>"
                }.joined()
            ))
        live.append((.dav("lockdiscovery"), locks.map { Self.text(of: $0) }.joined()))
        if let quota, isFolder {
            live.append((.dav("quota-available-bytes"), "\(quota.available)"))
            live.append((.dav("quota-used-bytes"), "\(quota.used)"))
        }
        let dead = attributes.sorted { $0.key.lexicographicallyPrecedes($1.key) }.compactMap { name, value in
            DeadProperty.name(name).map { (name: $0, content: DeadProperty.content(value)) }
        }
        return Self.response(path.href(isFolder: isFolder), live + dead, wanted)
    }

    private func answer(for path: DavPath, hidden file: HiddenFiles.File, _ wanted: Wanted) -> String {
        let live: [Property] = [
            (.dav("resourcetype"), ""), (.dav("getcontentlength"), "\(file.bytes.count)"),
            (.dav("getetag"), XMLText.escaped(file.tag)),
            (.dav("getlastmodified"), DateFormatter.http.string(from: file.modified)),
        ]
        return Self.response(path.href(isFolder: false), live, wanted)
    }

    private static func response(_ href: String, _ properties: [Property], _ wanted: Wanted) -> String {
        var found: [Property] = []
        var missing: [XMLName] = []
        switch wanted {
        case .all: found = properties
        case .names: found = properties.map { ($0.name, "") }
        case .some(let names):
            for name in names {
                if let property = properties.first(where: { $0.name == name }) {
                    found.append(property)
                } else {
                    missing.append(name)
                }
            }
        }
        var text = "<D:response><D:href>\(XMLText.escaped(href))</D:href>"
        if !found.isEmpty || missing.isEmpty { text += propstat(found, "200 OK") }
        if !missing.isEmpty { text += propstat(missing.map { ($0, "") }, "404 Not Found") }
        return text + "</D:response>\n"
    }

    private static func propstat(_ properties: [Property], _ status: String) -> String {
        let elements = properties.map { name, content in
            let (open, close) =
                switch name.namespace {
                case "DAV:": ("D:\(name.local)", "D:\(name.local)")
                case ocNamespace: ("oc:\(name.local)", "oc:\(name.local)")
                default: ("\(name.local) xmlns=\"\(XMLText.escaped(name.namespace))\"", name.local)
                }
            return content.isEmpty ? "<\(open)/>" : "<\(open)>\(content)</\(close)>"
        }.joined()
        return "<D:propstat><D:prop>\(elements)</D:prop><D:status>HTTP/1.1 \(status)</D:status></D:propstat>"
    }

    // MARK: PROPPATCH

    func patch() async throws -> HTTPResponse {
        let bytes = try await request.body?.all(max: XMLElement.bytesMax) ?? []
        guard let body = XMLElement.parse(bytes), body.name == .dav("propertyupdate") else { throw DavRefusal.badBody }
        let entry = try await requireItem(path)
        let conditions = try await check(entry)
        var changes: [(name: XMLName, value: Data)] = []
        for update in body.elements where [.dav("set"), .dav("remove")].contains(update.name) {
            let isSet = update.name == .dav("set")
            for property in update.first(.dav("prop"))?.elements ?? [] {
                // In their order: the last one counts.
                changes.removeAll { $0.name == property.name }
                changes.append((property.name, isSet ? DeadProperty.value(property.content) : Data()))
            }
        }
        guard !changes.isEmpty else { throw DavRefusal.badBody }
        let refused = changes.filter { DeadProperty.attribute($0.name) == nil }.map(\.name)
        var status = "200 OK"
        if refused.isEmpty {
            do {
                try await self.changes(path).setAttributes(
                    changes.compactMap { change in DeadProperty.attribute(change.name).map { ($0, change.value) } },
                    of: path.document, conditions: conditions)
            } catch let error as CloudError where error.code == .limitExceeded {
                status = "507 Insufficient Storage"
            }
        }
        let done = changes.map(\.name).filter { !refused.contains($0) }.map { (name: $0, content: "") }
        var text = "\(XMLText.head)<D:multistatus xmlns:D=\"DAV:\" xmlns:oc=\"\(Self.ocNamespace)\"><D:response>"
        text += "<D:href>\(XMLText.escaped(path.href(isFolder: entry.kind == .folder)))</D:href>"
        if !refused.isEmpty { text += Self.propstat(refused.map { ($0, "") }, "403 Forbidden") }
        // All or none.
        if !done.isEmpty { text += Self.propstat(done, refused.isEmpty ? status : "424 Failed Dependency") }
        text += "</D:response></D:multistatus>\n"
        return HTTPResponse(
            207, headers: [(name: "Content-Type", value: "application/xml; charset=utf-8")], .bytes(Array(text.utf8)))
    }
}

extension [XMLName] {
    /// The first of each.
    fileprivate var unique: [XMLName] {
        var seen: Set<XMLName> = []
        return filter { seen.insert($0).inserted }
    }
}

/// Properties that clients make up. They are extended attributes of the item, and so are on all devices.
enum DeadProperty {
    private static let prefix = Data("dav:".utf8)

    /// The extended attribute of a property; nil: it is one of WebDAV's own, or its name is too long.
    static func attribute(_ name: XMLName) -> Data? {
        guard !["DAV:", DavHandler.ocNamespace].contains(name.namespace) else { return nil }
        let attribute = prefix + Data("\(name.namespace) \(name.local)".utf8)
        return attribute.count <= 255 ? attribute : nil
    }

    static func name(_ attribute: Data) -> XMLName? {
        guard attribute.starts(with: prefix), let space = attribute.lastIndex(of: UInt8(ascii: " ")) else { return nil }
        return XMLName(
            namespace: String(decoding: attribute[(attribute.startIndex + prefix.count)..<space], as: UTF8.self),
            local: String(decoding: attribute[(space + 1)...], as: UTF8.self))
    }

    /// The attribute's value. It begins with a mark, since an empty value removes an attribute.
    static func value(_ content: String) -> Data { Data("=\(content)".utf8) }
    static func content(_ value: Data) -> String { String(decoding: value.dropFirst(), as: UTF8.self) }
}
