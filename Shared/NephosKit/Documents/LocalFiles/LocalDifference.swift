/// How a file of this machine and what is in the container differ.
package struct LocalDifference: Sendable {
    /// What a put would send, a get would bring, or a person has to decide.
    package enum Kind: String, Sendable {
        /// Both are alike.
        case same
        /// Only the file was changed since it was got or put: a put sends it.
        case changedHere = "changed_here"
        /// Only the item was: a get brings it.
        case changedThere = "changed_there"
        /// Both were, or the file was never got: a put keeps both, and a get leaves the file.
        case conflict
        /// A put makes it.
        case onlyHere = "only_here"
        /// A get brings it.
        case onlyThere = "only_there"
        /// It was got or put, and is gone in the container: a put with `-r` leaves it out.
        case deletedThere = "deleted_there"
    }

    package var kind: Kind
    /// Of the item: where it is, or will be made.
    package var path: String
    /// Where the item was when the file was got or put, if it was moved in the container since.
    package var movedFrom: String?
}
