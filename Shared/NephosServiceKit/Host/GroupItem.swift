internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// One thing to run in a group: a request, or what someone submitted.
///
/// An object, because it holds a dozen others: copying it would count references
/// to each of them, several times for every request.
final class GroupItem {
    enum Work {
        case request(Router.Method, body: Frame)
        /// A request whose long work is done, with its result.
        case prepared(Router.Method, result: any Sendable)
        case submission((any HandlerTransaction) throws -> Void)
    }

    enum Outcome {
        case pending
        case success(Frame)
        case failure(CloudError)
        /// This work has to be done off the loop first; then the request joins another group.
        case toPrepare(Router.Prepared.Work)
        /// This has to be read from a snapshot, off the loop.
        case toRead(Router.Bulk.Reading)
    }

    var work: Work
    /// Of a request. Here too: to look into the work is to copy all of it.
    let method: Router.Method?
    var context: RequestContext
    var mutates: Bool
    /// Who the reply is stored for; nil: it is not stored.
    var principal: String?
    /// When it was taken off its socket, in the loop's time.
    var arrived: Duration = .zero
    /// When the caller stops waiting, in the loop's time.
    var deadline: Duration?
    var outcome = Outcome.pending
    /// What remains of the caller's budget, if it has one.
    var budget: Budget?
    /// Calls taken from the budget so far.
    var charged = 1
    /// Nothing was taken: there was nothing left, and time to spare (``SpareTime``).
    var isSpare = false
    /// It was in a group, and waits for another (``GroupShares``): it has its place among those of its connection.
    var isDeferred = false
    /// Bytes of its body.
    var bytes = 0
    /// What it has read or written in this group, or of a snapshot.
    var cost = ReadCost()
    /// Units of replies that it has stored, and that were not taken from the budget yet.
    var replyUnits = 0
    /// What it has read or written in the group before its long work.
    var costBefore = ReadCost()
    /// Runs after the commit; for submissions.
    var completion: ((CloudError?) -> Void)?

    /// Whether it may read so much that it does so off the loop.
    var isBulk: Bool { method?.isBulk ?? false }

    /// The method's name, for the log.
    var name: String { method?.name ?? "submission" }

    init(
        work: Work, context: RequestContext, mutates: Bool, budget: Budget? = nil, principal: String? = nil,
        deadline: Duration? = nil,
        completion: ((CloudError?) -> Void)? = nil
    ) {
        self.work = work
        switch work {
        case .request(let method, _), .prepared(let method, _): self.method = method
        case .submission: method = nil
        }
        self.context = context
        self.mutates = mutates
        self.budget = budget
        self.principal = principal
        self.deadline = deadline
        self.completion = completion
    }
}

extension CloudError {
    /// Nobody waits for the answer any more.
    static let late = CloudError(
        .deadlineExceeded, "The caller's time was up before the request was handled.")
}
