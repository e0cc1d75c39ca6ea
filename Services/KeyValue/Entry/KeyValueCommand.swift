@main struct KeyValueCommand { static func main() {} }
