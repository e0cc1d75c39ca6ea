package import NephosCore

/// Waits for something for as long as it moves.
///
/// - Parameters:
///   - patience: How long nothing may move.
///   - look: Looks where it stands, and takes its time for that; nil: it is there. While the mark is another one than at
///     the look before, it moves; the failure says what the waiting ends with if it does not.
/// - Throws: ``CloudError``: the failure of the last look; whatever `look` throws, at once.
package func waitWhileItMoves<Mark: Equatable>(
    within patience: Duration,
    _ look: () async throws(CloudError) -> (mark: Mark, failure: CloudError)?
) async throws(CloudError) {
    var last: Mark?
    var moved = ContinuousClock.now
    while let (mark, failure) = try await look() {
        if mark != last {
            (last, moved) = (mark, .now)
        } else if moved.duration(to: .now) >= patience {
            throw failure
        }
    }
}
