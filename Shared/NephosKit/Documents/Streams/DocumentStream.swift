public import Foundation
public import NephosCore
internal import NephosWire

/// The bytes of a file, or of a part of it, in their order: ``DocumentStreams/read(_:range:version:timeout:onProgress:)``.
///
/// They are of one version, whatever is put meanwhile. Each piece has at most ``pieceBytes``, and the next is fetched
/// while the reader has one: no more than two are in memory, however slowly it reads. What is on this device is read
/// from here; read to its end, a whole content stays here as one does that is read.
public struct DocumentStream: AsyncSequence, Sendable {
    /// Bytes of a piece, at most.
    public static let pieceBytes = 4 << 20

    /// Where in the content it begins, and ends.
    public let range: Range<UInt64>
    /// Which content it is.
    public let version: DocumentID?
    let reader: DocumentReader
    let item: HeldDocument
    let content: WireDocumentContent
    let timeout: Duration
    let onProgress: @Sendable (UInt64, UInt64) -> Void

    public func makeAsyncIterator() -> Iterator { Iterator(self) }

    /// Reads it once.
    public final class Iterator: AsyncIteratorProtocol {
        private let stream: DocumentStream
        private var offset: Int
        private var ahead: Task<Result<Data, CloudError>, Never>?
        /// What has come, where it may stay.
        private var copy: (file: KeptContent, cutter: ContentCutter)?

        fileprivate init(_ stream: DocumentStream) {
            self.stream = stream
            offset = Int(clamping: stream.range.lowerBound)
            // One of a single piece is kept as it is read.
            let isWhole =
                stream.range == 0..<stream.content.length && stream.content.length > UInt64(DocumentStream.pieceBytes)
            copy = (isWhole ? try? stream.reader.absentCopy(for: stream.item, stream.content) : nil)
                .map { ($0, ContentCutter()) }
        }

        deinit {
            ahead?.cancel()
            copy?.file.drop()
        }

        /// The next piece; nil: that was all.
        ///
        /// - Throws: ``CloudError`` as ``UbiquityContainer/read(_:version:timeout:)`` does; `.operationCancelled` when
        ///   the task is.
        public nonisolated(nonsending) func next() async throws(CloudError) -> Data? {
            guard !Task.isCancelled else {
                throw CloudError(.operationCancelled, "The task that read the content was cancelled.")
            }
            guard let piece = ahead ?? fetch(from: offset) else {
                end()
                return nil
            }
            let result = await withTaskCancellationHandler {
                await piece.value
            } onCancel: {
                piece.cancel()
            }
            let data: Data
            do { data = try result.get() } catch {
                // The server lets go of a device that signs out before that knows it.
                try stream.reader.handle.read { _ in }
                throw error
            }
            keep(data)
            offset += data.count
            ahead = fetch(from: offset)
            return data
        }

        private func fetch(from offset: Int) -> Task<Result<Data, CloudError>, Never>? {
            let end = Int(clamping: stream.range.upperBound)
            guard offset < end else { return nil }
            let range = offset..<Swift.min(end, offset + DocumentStream.pieceBytes)
            return Task { [stream] in
                do throws(CloudError) {
                    let (start, length) = (UInt64(offset) - stream.range.lowerBound, range.count)
                    let total = stream.range.upperBound - stream.range.lowerBound
                    let data = try await stream.reader.read(
                        stream.item, stream.content, range, stream.timeout
                    ) { done in
                        stream.onProgress(start + UInt64(clamping: Swift.min(done, length)), total)
                    }
                    stream.onProgress(start + UInt64(length), total)
                    return .success(data)
                } catch { return .failure(error) }
            }
        }

        private func keep(_ data: Data) {
            guard copy != nil else { return }
            do {
                try data.withUnsafeBytes { bytes in
                    copy?.file.write(bytes, at: offset)
                    try copy?.cutter.take(bytes)
                }
            } catch { end() }
        }

        private func end() {
            guard let file = copy?.file, var cutter = copy?.cutter else { return }
            copy = nil
            defer { file.drop() }
            guard offset == Int(clamping: stream.range.upperBound), file.isWhole, let cut = try? cutter.finish()
            else { return }
            stream.reader.keep([
                FetchedContent(item: stream.item.id, content: stream.content, copy: file, chunks: cut.chunks)
            ])
        }
    }
}
