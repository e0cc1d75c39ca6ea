internal import Crypto
internal import Foundation
internal import NephosHTTP

/// The console's pages, which are a part of this program.
enum ConsolePages {
    private struct Page: Sendable {
        var bytes: [UInt8]
        var type: String
        /// Another one for each release, so a browser keeps no page of a former one.
        var tag: String

        init(_ bytes: [UInt8], _ type: String) {
            (self.bytes, self.type) = (bytes, type)
            let digest = SHA256.hash(data: bytes).prefix(8)
            tag = "\"" + digest.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "\""
        }
    }

    private static let pages: [String: Page] = {
        let script = "text/javascript; charset=utf-8"
        return [
            "/": Page(PackageResources.index_html, "text/html; charset=utf-8"),
            "/app.css": Page(PackageResources.app_css, "text/css; charset=utf-8"),
            "/icon.svg": Page(PackageResources.icon_svg, "image/svg+xml"),
            "/account.js": Page(PackageResources.account_js, script),
            "/api.js": Page(PackageResources.api_js, script),
            "/app.js": Page(PackageResources.app_js, script),
            "/details.js": Page(PackageResources.details_js, script),
            "/dialogs.js": Page(PackageResources.dialogs_js, script),
            "/drop.js": Page(PackageResources.drop_js, script),
            "/file-actions.js": Page(PackageResources.file_actions_js, script),
            "/files.js": Page(PackageResources.files_js, script),
            "/folder-chooser.js": Page(PackageResources.folder_chooser_js, script),
            "/folder.js": Page(PackageResources.folder_js, script),
            "/format.js": Page(PackageResources.format_js, script),
            "/grid.js": Page(PackageResources.grid_js, script),
            "/icons.js": Page(PackageResources.icons_js, script),
            "/key-dialog.js": Page(PackageResources.key_dialog_js, script),
            "/keys.js": Page(PackageResources.keys_js, script),
            "/links.js": Page(PackageResources.links_js, script),
            "/live.js": Page(PackageResources.live_js, script),
            "/parts.js": Page(PackageResources.parts_js, script),
            "/preact.js": Page(PackageResources.preact_js, script),
            "/preview.js": Page(PackageResources.preview_js, script),
            "/record-dialog.js": Page(PackageResources.record_dialog_js, script),
            "/records.js": Page(PackageResources.records_js, script),
            "/routes.js": Page(PackageResources.routes_js, script),
            "/sign-in.js": Page(PackageResources.sign_in_js, script),
            "/state.js": Page(PackageResources.state_js, script),
            "/storage.js": Page(PackageResources.storage_js, script),
            "/store.js": Page(PackageResources.store_js, script),
            "/trash.js": Page(PackageResources.trash_js, script),
            "/upload-panel.js": Page(PackageResources.upload_panel_js, script),
            "/uploads.js": Page(PackageResources.uploads_js, script),
            "/worker.js": Page(PackageResources.worker_js, script),
        ]
    }()

    /// Scripts and styles are files of this program; pictures may also be made by them of what they have fetched. Nothing
    /// else is loaded, no other site can show these pages in a frame, and no form is sent elsewhere.
    private static let policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        + "worker-src 'self'; frame-src blob:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    /// - Returns: Nil: there is no page at this address.
    static func page(_ request: HTTPRequest) -> HTTPResponse? {
        guard request.method == .get || request.method == .head, let page = pages[request.path] else { return nil }
        var headers: [(name: String, value: String)] = [
            (name: "Content-Security-Policy", value: policy), (name: "X-Frame-Options", value: "DENY"),
            (name: "Cross-Origin-Opener-Policy", value: "same-origin"),
            (name: "Cross-Origin-Resource-Policy", value: "same-origin"),
            (name: "Permissions-Policy", value: "camera=(), microphone=(), geolocation=()"),
            (name: "Cache-Control", value: "no-cache"), (name: "ETag", value: page.tag),
        ]
        if request.header("If-None-Match") == page.tag { return HTTPResponse(304, headers: headers) }
        headers.append((name: "Content-Type", value: page.type))
        return HTTPResponse(200, headers: headers, .bytes(page.bytes))
    }
}
