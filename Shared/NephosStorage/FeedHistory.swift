public import NephosCore

/// What a token that is shown says of the database that it is shown to.
public enum TokenStanding: Hashable, Sendable {
    /// Nothing: it carries no check of ours, or is older than what is remembered.
    case unknown
    /// It was given out in this very history.
    case past
    /// It was given out in a history that this database does not have: it was
    /// brought back from a copy made before. What that history and this one
    /// have in common ends at `since`; nil: that cannot be said.
    ///
    /// - Parameter isNews: The present epoch does not say so yet.
    case lost(since: UInt64?, isNews: Bool)
}

/// How a feed knows its own tokens again, and tells that it is an old copy.
///
/// Each start of the service begins a *run*, and a change is named for good by
/// the run that wrote it and its sequence, as an entry of a replicated log is by
/// term and index. Where each run began is stored with the feed; so a token,
/// whose check names the run of its change, tells whether that change is in
/// this database, also when the database was written on, beyond the token,
/// after it had come back from a copy.
///
/// Run ids are times with random bits, and rise. So of a run that this database
/// does not know it can tell before which of its own it went on elsewhere.
public struct FeedHistory: Sendable {
    /// Runs that are remembered. Of a token from before them nothing is known.
    static let runsMax = 1000
    /// Epochs that whoever shows a token is believed to have come through.
    static let epochsMax = 16

    struct Run: Hashable, Sendable {
        var id: UInt64
        /// In which it began.
        var epoch: UInt64
        /// Each partition's sequence when it began.
        var starts: [UInt64]
        /// Of one that begins an epoch: the run, of a history that was lost, which has shown that it has to. That history
        /// and this one part where the first run begins that came after it. 0: they part where this run begins.
        var lost: UInt64 = 0
    }

    fileprivate let key: SipHash
    private(set) var runs: [Run]

    /// The present run: with another, or another epoch, tokens are checked otherwise.
    public var run: UInt64 { runs.last?.id ?? 0 }

    init(key: SipHash, runs: [Run]) {
        self.key = key
        self.runs = runs
    }

    /// The check of a token of this history.
    func check(of token: ChangeToken, in partition: Int) -> TokenCheck {
        guard let last = runs.last, token.sequence > 0 else { return .none }
        let run = last.starts[partition] < token.sequence ? last.id : self.run(of: token.sequence, in: partition)
        guard run > 0 else { return .none }
        return TokenCheck(run: run, mark: mark(of: token, run, partition))
    }

    /// The last run that began before the sequence; 0: it is older than what is remembered. Where runs began only
    /// rises.
    private func run(of sequence: UInt64, in partition: Int) -> UInt64 {
        var (low, high) = (0, runs.count)
        while low < high {
            let middle = (low + high) / 2
            if runs[middle].starts[partition] < sequence { low = middle + 1 } else { high = middle }
        }
        return low == 0 ? 0 : runs[low - 1].id
    }

    private func mark(of token: ChangeToken, _ run: UInt64, _ partition: Int) -> UInt64 {
        key.hash(UInt64(partition), token.epoch, run, token.sequence)
    }

    /// A seal on bytes, by which the service knows its own words again. No token is sealed like that.
    func seal(_ bytes: [UInt8]) -> UInt64 { key.hash(Array("words".utf8) + bytes) }

    /// - Parameters:
    ///   - epochs: Those by which whoever shows the token has come to its epoch, with the sequence at which each parted from
    ///     the one before; the last of them is the token's.
    ///   - head: The partition's.
    func judge(
        _ token: ChangeToken, after epochs: [ChangeToken] = [], in partition: Int, at head: ChangeToken
    ) -> TokenStanding {
        let run = token.check.run
        guard run > 0, token.sequence > 0, token.check.mark == mark(of: token, run, partition),
            let first = runs.first, first.starts[partition] < token.sequence
        else { return .unknown }
        var end: UInt64?
        var isKnown = false
        if let known = runs.lastIndex(where: { $0.id == run }) {
            end = known + 1 < runs.count ? runs[known + 1].starts[partition] : head.sequence
            isKnown = runs[known].starts[partition] < token.sequence
        } else {
            // It began before the copy was brought back, and so before the first run that there was since.
            end = runs.first { $0.id > run }?.starts[partition]
            // In an epoch that this database never had it may have parted from this history earlier than that.
            if epochs.last?.epoch == token.epoch {
                for parting in epochs.suffix(Self.epochsMax).reversed() {
                    guard !hasEpoch(parting.epoch) else { break }
                    end = min(end ?? parting.sequence, parting.sequence)
                }
            }
        }
        if isKnown, let end, token.sequence <= end, token.epoch <= head.epoch { return .past }
        return .lost(since: end.map { min($0, token.sequence) }, isNews: token.epoch >= head.epoch)
    }

    /// The epochs before the present one, each with how far it and what there was before are the same, for a reader who has
    /// come through none of them. At most 15: with the present one that is as many as are looked at.
    func partings(in partition: Int) -> [ChangeToken] {
        guard let present = runs.last?.epoch else { return [] }
        var partings: [ChangeToken] = []
        // Of runs from before 0 nobody knows the epoch.
        for run in runs where run.epoch > 0 && run.epoch != present && run.epoch != partings.last?.epoch {
            // What came before the first that is remembered is not known to be the same as anything.
            let start = partings.isEmpty ? 0 : min(run.starts[partition], start(after: run.lost, in: partition))
            partings.append(ChangeToken(epoch: run.epoch, sequence: start))
        }
        while partings.count >= Self.epochsMax {
            let first = partings.removeFirst()
            partings[0].sequence = min(partings[0].sequence, first.sequence)
        }
        return partings
    }

    /// When the history began that the present epoch is of: it may have gone on for a while before somebody has shown that
    /// the database is an old copy. Nil: that is not known.
    var began: Timestamp? {
        guard let first = runs.first(where: { $0.epoch == runs.last?.epoch }) else { return nil }
        let start = first.lost == 0 ? nil : runs.first { $0.id > first.lost }
        return start.map { Timestamp(milliseconds: UniqueNumber.time(of: $0.id)) }
    }

    private func start(after lost: UInt64, in partition: Int) -> UInt64 {
        lost == 0 ? .max : runs.first { $0.id > lost }?.starts[partition] ?? .max
    }

    private func hasEpoch(_ epoch: UInt64) -> Bool { runs.contains { $0.epoch == epoch } }

    /// Where the history of that run and this one part.
    func end(of run: UInt64, in partition: Int, at head: UInt64) -> UInt64 {
        if let next = runs.first(where: { $0.id > run }) { return next.starts[partition] }
        return runs.last?.id == run ? head : 0
    }
}

/// Numbers that are never used twice, also by two databases that were one: a
/// time in milliseconds, and 20 random bits.
enum UniqueNumber {
    private static let randomBits: UInt64 = 20

    /// In milliseconds since 1970.
    static func time(of number: UInt64) -> UInt64 { number >> randomBits }

    /// One that is greater than what was seen. Far below 2^63 for two hundred years.
    static func next(after seen: UInt64, at now: Timestamp, random: UInt64) -> UInt64 {
        let time = max(now.milliseconds, (seen >> randomBits) + 1) & (1 << 42 - 1)
        return time << randomBits | random & (1 << randomBits - 1)
    }
}

extension Feed {
    /// When an epoch began.
    public static func beginning(ofEpoch epoch: UInt64) -> Timestamp {
        Timestamp(milliseconds: UniqueNumber.time(of: epoch))
    }

    /// Begins a run, before anything else, in the transaction that opens the
    /// database. An empty database begins its first epoch, and one that was
    /// brought back from a copy (``DatabaseCopy/noteRestored(_:at:)``) another one.
    ///
    /// - Parameters:
    ///   - key: The service's own, which a copy of the database does not bring back.
    ///   - random: Random bits.
    /// - Returns: What tokens are checked by from now on; for the ``FeedCache``.
    public static func beginRun(
        in transaction: any Transaction, key: SipHash, at now: Timestamp, random: UInt64
    ) throws -> FeedHistory {
        let runs = try transaction.all(FeedStatements.runs, []) {
            FeedHistory.Run(
                id: UInt64(bitPattern: $0.integer(0)), epoch: UInt64(bitPattern: $0.integer(1)),
                starts: starts($0.blob(2)), lost: UInt64(bitPattern: $0.integer(3)))
        }
        if runs.isEmpty {
            let epoch = UniqueNumber.next(after: 1, at: now, random: random >> 32)
            try transaction.execute(FeedStatements.setEpoch, [.integer(Int64(bitPattern: epoch))])
        }
        let begun = try Feed(over: transaction, at: now)
            .addRun(to: FeedHistory(key: key, runs: runs), after: 0, at: now, random: random)
        guard try transaction.first(FeedStatements.isRestored, [], { _ in true }) != nil else { return begun }
        try transaction.execute(FeedStatements.forgetRestored, [])
        return try beginEpoch(in: transaction, shownBy: nil, begun, at: now, random: random)
    }

    /// Begins a new epoch, greater than any that is known: this database is an
    /// old copy, which the token of a lost future has shown. Sequences go on from where they are.
    ///
    /// In a transaction of its own; the cache has to be emptied, and to take over what is returned.
    ///
    /// - Parameter token: Nil: whoever has brought the copy back says so. Then the histories part where it ends.
    public static func beginEpoch(
        in transaction: any Transaction, shownBy token: ChangeToken?, _ history: FeedHistory, at now: Timestamp,
        random: UInt64
    ) throws -> FeedHistory {
        let feed = Feed(over: transaction, at: now)
        let epoch = UniqueNumber.next(after: max(try feed.epoch(), token?.epoch ?? 0), at: now, random: random >> 32)
        for (number, head) in try feed.positions() {
            let end = token.map { history.end(of: $0.check.run, in: number, at: head.sequence) } ?? head.sequence
            try feed.beginEpoch(inPartition: number, at: min(head.sequence, end))
        }
        try feed.flush()
        try transaction.execute(FeedStatements.setEpoch, [.integer(Int64(bitPattern: epoch))])
        try transaction.execute(FeedStatements.setOldCopyFound, [.integer(Int64(clamping: now.milliseconds))])
        return try Feed(over: transaction, at: now)
            .addRun(to: history, after: token?.check.run ?? 0, at: now, random: random)
    }

    /// When a token has last shown that the database was an old copy; nil: never.
    public func oldCopyFound() throws -> Timestamp? {
        let time = try first(FeedStatements.oldCopyFound) { UInt64(clamping: $0.integer(0)) } ?? 0
        return time == 0 ? nil : Timestamp(milliseconds: time)
    }

    private func addRun(
        to history: FeedHistory, after lost: UInt64, at now: Timestamp, random: UInt64
    ) throws -> FeedHistory {
        var runs = history.runs
        try loadPartitions()
        let starts = heads.partitions.map { $0?.sequence ?? 0 }
        let id = UniqueNumber.next(after: max(lost, runs.last?.id ?? 0), at: now, random: random)
        var lost = lost
        // No token names a run that wrote nothing. What it parted from this one parts from.
        if let last = runs.last, last.starts == starts {
            if last.lost > 0 { lost = lost == 0 ? last.lost : min(lost, last.lost) }
            try remove(&runs, at: runs.count - 1)
        }
        while runs.count >= FeedHistory.runsMax { try remove(&runs, at: 0) }
        let epoch = try epoch()
        runs.append(FeedHistory.Run(id: id, epoch: epoch, starts: starts, lost: lost))
        let bytes = starts.map(\.littleEndian).withUnsafeBytes { [UInt8]($0) }
        try execute(
            FeedStatements.insertRun,
            [
                .integer(Int64(bitPattern: id)), .integer(Int64(bitPattern: epoch)), .blob(bytes),
                .integer(Int64(bitPattern: lost)),
            ])
        return history.with(runs)
    }

    private func remove(_ runs: inout [FeedHistory.Run], at index: Int) throws {
        try execute(FeedStatements.removeRun, [.integer(Int64(bitPattern: runs.remove(at: index).id))])
    }

    private static func starts(_ bytes: [UInt8]) -> [UInt64] {
        // There may be a thousand runs: as a whole, and not number by number. One that is damaged knows of nothing.
        let starts = [UInt64](unsafeUninitializedCapacity: partitionCount) { starts, count in
            starts.initialize(repeating: 0)
            bytes.withUnsafeBytes {
                UnsafeMutableRawBufferPointer(starts).copyMemory(
                    from: UnsafeRawBufferPointer(rebasing: $0.prefix(8 * partitionCount)))
            }
            count = partitionCount
        }
        return 1.littleEndian == 1 ? starts : starts.map(\.byteSwapped)
    }
}

extension FeedHistory {
    fileprivate func with(_ runs: [Run]) -> FeedHistory { FeedHistory(key: key, runs: runs) }
}
