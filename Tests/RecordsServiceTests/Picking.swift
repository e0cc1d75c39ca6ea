/// One of a list that is not empty.
func pick<Element>(_ list: [Element], _ random: inout some RandomNumberGenerator) -> Element {
    list[Int.random(in: list.indices, using: &random)]
}
