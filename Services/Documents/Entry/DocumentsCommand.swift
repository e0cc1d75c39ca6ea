@main struct DocumentsCommand { static func main() {} }
