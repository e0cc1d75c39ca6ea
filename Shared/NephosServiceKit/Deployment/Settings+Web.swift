public import NephosCore

extension Settings {
    /// The address and port of the deployment's web, from the settings of any service. Nil without a web.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`.
    public func web() throws(CloudError) -> (host: String, port: Int)? {
        let web = of(.web)
        let port = try web.integer("port", default: 0, in: 0...65_535)
        return port == 0 ? nil : (web.text("host") ?? "127.0.0.1", port)
    }

    /// The URL of the web on this machine, such as `http://localhost:7480/`. Nil without a web.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`.
    public func webAddress() throws(CloudError) -> String? {
        guard let (host, port) = try web() else { return nil }
        let name = LocalPorts.isWildcard(host) || host == "127.0.0.1" ? "localhost" : host
        let scheme = of(.web).text("certificate") == nil ? "http" : "https"
        return "\(scheme)://\(name.contains(":") ? "[\(name)]" : name):\(port)/"
    }
}
