public import NephosCore

extension RecordDatabase {
    /// The records of a zone that match a query.
    ///
    /// This device's copy is queried by the server's rules, with pending changes applied. The server sorts and limits
    /// by an index. Ties are ordered by record name, or in the opposite order if an index is read from its end.
    ///
    /// - Parameters:
    ///   - query: The condition and the order.
    ///   - zone: The zone's name.
    ///   - source: Where records are read. The server is asked page by page, and sees every earlier save.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the zone was downloaded; `.zoneNotFound`, `.invalidArguments`
    ///   (a malformed type), `.notSignedIn`, `.storageFailure`; of the server also `.limitExceeded` (no index serves
    ///   the query: make ``CloudError/neededIndex``, or set ``RecordQuery/allowsScan``; more than three fields in the
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

    /// Reads page by page, from a zone with any number of records. From this device's copy at most two pages and 16 MiB
    /// of sort keys are in memory; from the server one page.
    ///
    /// Each page has the state of its own reading. Records inserted before the last page are not seen; changed records
    /// have their new content, and are left out if they no longer match.
    ///
    /// - Parameters:
    ///   - query: The condition and the order.
    ///   - zone: The zone's name.
    ///   - source: Where records are read. With ``RecordQuery/allowsScan``, an order that no index of the server
    ///     provides is sorted here, as a whole in memory.
    ///   - size: Records of a page.
    public func pages(
        matching query: RecordQuery = RecordQuery(), in zone: String = RecordZone.defaultName,
        from source: RecordSource = .local, size: Int = 400
    ) -> RecordPages {
        RecordPages(database: self, query: query, zone: zone, source: source, size: max(1, size))
    }
}

extension CloudError {
    /// The index that the query needs, for `.limitExceeded` because no index serves it. Create it with
    /// ``RecordIndexes/modify(saving:deleting:timeout:)``; it may already be under construction. Nil: the error
    /// names no index.
    public var neededIndex: RecordIndex? {
        guard code == .limitExceeded, details["reason"] != nil, let text = details["index"] else { return nil }
        return RecordIndex(described: text, isOfWords: details["index_kind"] == "words")
    }
}
