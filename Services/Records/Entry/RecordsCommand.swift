@main struct RecordsCommand { static func main() {} }
