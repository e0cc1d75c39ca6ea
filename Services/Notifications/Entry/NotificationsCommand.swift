@main struct NotificationsCommand { static func main() {} }
