internal import Foundation
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// What another container has and this one is to have: nothing of it is here. What it consists of is read, and the
/// service takes its chunks from there. And what the other devices are told of what takes a while.
extension ContentUploads {
    /// What the content consists of is kept with it: whoever goes on with it need not ask again.
    func readManifest(of content: WaitingContent, _ upload: ContentUpload) {
        guard let source = content.source else { return }
        do throws(CloudError) {
            let place = ContentPlace(service: model.service, app: model.app, container: source.container)
            try ManifestReading(engine, place, source, length: content.length) {
                [weak self, weak upload] result in
                guard let self, let upload, isOn(upload) else { return }
                do throws(CloudError) {
                    try take(result.get(), of: content, source, upload)
                    goOn(upload)
                } catch { notBorrowed(upload, [content.version], error) }
            }.goOn()
        } catch { lose(upload, ContentUpload.Unreadable(version: content.version, error: error)) }
    }

    func take(
        _ chunks: [CutChunk], of content: WaitingContent, _ source: ContentSource, _ upload: ContentUpload
    ) throws(CloudError) {
        guard let driver = model.driver else { return }
        let nodes: [Data]
        do {
            guard try CutChunk.root(of: chunks) == source.root else { throw Self.otherForm }
            nodes = try CutChunk.nodes(of: chunks)
        } catch { throw CloudError(wrapping: error) }
        try save(upload, driver) { request, _, rows in
            request.nodes += nodes
            try self.model.setChunks(chunks, of: content.version, in: rows)
        }
        upload.unread.removeFirst()
        upload.borrow(chunks, of: content)
        upload.add(nodes, to: content.container)
    }

    private static let otherForm = CloudError(
        .incompatibleVersion,
        "The content is listed in a form that this release does not make. Get it, and put it into the other container.")

    /// - Parameter versions: Contents that are not here, and that this may be about.
    func notBorrowed(_ upload: ContentUpload, _ versions: [DocumentID], _ error: CloudError) {
        let isOfThese = PushRules.outcome(of: error) == .refuse
        guard let version = versions.first,
            isOfThese || error.code == .missingEntitlement || error.code == .incompatibleVersion
        else { return failed(upload, error) }
        lose(upload, .gone(version, from: upload.request.sourceContainer, error))
    }

    // MARK: What others are told

    /// How often it is looked whether it has to be said anew that a content is on its way.
    static let announcePause: Duration = .seconds(3600)

    /// What is over before anybody would look is not told: each telling is a change of its own.
    static let announceDelay: Duration = .seconds(2)

    func announceLater(_ upload: ContentUpload) {
        upload.announced = engine.loop.monotonicNow
        engine.loop.schedule(after: Self.announceDelay) { [weak self, weak upload] in
            guard let self, let upload, isOn(upload) else { return }
            announce(upload)
        }
    }

    /// Tells the other devices what takes a while, as far as they were not told.
    func announce(_ upload: ContentUpload) {
        upload.announced = engine.loop.monotonicNow
        guard let driver = model.driver, driver.scope?.account == upload.account else { return }
        do throws(CloudError) {
            if try driver.write({ try model.announce(upload.operation, in: $0) }) { driver.push() }
        } catch { engine.logger.error("that contents are on their way could not be noted", error) }
    }
}
