@main struct IdentityCommand { static func main() {} }
