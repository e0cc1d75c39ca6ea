extension UInt64 {
    /// The sum, or the greatest there is: numbers from outside may be any.
    public func addingClamped(_ other: UInt64) -> UInt64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? .max : sum
    }
}
