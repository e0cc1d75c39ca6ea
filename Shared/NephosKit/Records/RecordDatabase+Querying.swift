public import NephosCore

extension RecordDatabase {
    /// Records of a zone that a query means.
    ///
    /// This device's copy is asked with the very rules that the server has, and answers with what waits to be sent. The
    /// server puts in order and counts by itself, by an index; what is alike in an order comes by its name, or, where an
    /// index is read from its end, in the opposite order.
    ///
    /// - Parameter source: The server is asked page by page; what was saved before is seen.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the zone was downloaded; `.zoneNotFound`, `.invalidArguments` (a
    ///   type that none can be called), `.notSignedIn`, `.storageFailure`; of the server also `.limitExceeded` (no index
    ///   serves the query: make ``CloudError/neededIndex``, or set ``RecordQuery/allowsScan``; more than three fields in the
    ///   order; too many comparisons of texts), `.networkUnavailable` and the like.
    public func records(
        matching query: RecordQuery, in zone: String = RecordZone.defaultName, from source: RecordSource = .local
    ) async throws(CloudError) -> [Record] {
        var found: [Record] = []
        var pages = RecordPages(database: self, query: query, zone: zone, source: source, size: .max)
            .makeAsyncIterator()
        while let page = try await pages.next() { found += page }
        return found
    }

    /// The same page by page, of a zone that may have any number of records. Of this device's copy no more than two pages,
    /// and 16 MiB of what is to be put in order, are in memory; of the server one page.
    ///
    /// Each page is as the copy, or the server, is when it is read. What comes in before the page that was read last is not
    /// seen; what has changed is as it is by then, and left out where it is not meant any more.
    ///
    /// - Parameters:
    ///   - source: Where it is read. From the server, what no index puts in order is put in order here, and in memory as a
    ///     whole, with ``RecordQuery/allowsScan``.
    ///   - size: Records of a page.
    public func pages(
        matching query: RecordQuery = RecordQuery(), in zone: String = RecordZone.defaultName,
        from source: RecordSource = .local, size: Int = 400
    ) -> RecordPages {
        RecordPages(database: self, query: query, zone: zone, source: source, size: max(1, size))
    }
}

extension CloudError {
    /// Of a query that no index serves (`.limitExceeded`): the index that would. It is made by
    /// ``RecordIndexes/modify(saving:deleting:timeout:)``, and may be under way already; nil: there is none.
    public var neededIndex: RecordIndex? {
        guard code == .limitExceeded, details["reason"] != nil, let text = details["index"] else { return nil }
        return RecordIndex(described: text, isOfWords: details["index_kind"] == "words")
    }
}
