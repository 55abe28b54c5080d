//! The files of the web page.

use crate::http::answer::with_headers;
use axum::Router;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY};
use axum::response::Response;
use axum::routing::get;

/// The content security policy: the page may load files from, and send requests to, only the server
/// that it came from.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page, in the program itself.
struct File {
    path: &'static str,
    content_type: &'static str,
    contents: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($($path:literal $content_type:ident $name:literal,)*) => {
        &[$(File {
            path: $path,
            content_type: $content_type,
            contents: include_str!(concat!("static/", $name)),
        },)*]
    };
}

const FILES: &[File] = files! {
    "/" HTML "index.html",
    "/style.css" STYLE "style.css",
    "/app.js" SCRIPT "app.js",
    "/chart.js" SCRIPT "chart.js",
    "/difference.js" SCRIPT "difference.js",
    "/dom.js" SCRIPT "dom.js",
    "/flame.js" SCRIPT "flame.js",
    "/format.js" SCRIPT "format.js",
    "/head.js" SCRIPT "head.js",
    "/held.js" SCRIPT "held.js",
    "/keys.js" SCRIPT "keys.js",
    "/leaks.js" SCRIPT "leaks.js",
    "/lifetimes.js" SCRIPT "lifetimes.js",
    "/unsupported.js" SCRIPT "unsupported.js",
    "/processes.js" SCRIPT "processes.js",
    "/server.js" SCRIPT "server.js",
    "/sparkline.js" SCRIPT "sparkline.js",
    "/stacks.js" SCRIPT "stacks.js",
    "/table.js" SCRIPT "table.js",
    "/tree.js" SCRIPT "tree.js",
};

/// Adds the files to a router.
pub(super) fn with_files<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    FILES.iter().fold(router, |router, file| {
        router.route(file.path, get(([(CONTENT_TYPE, file.content_type)], file.contents)))
    })
}

/// Adds the headers of every answer of the page.
pub(super) async fn guarded(answer: Response) -> Response {
    let more = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    with_headers(answer, &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file that a file of the page refers to exists, and no file refers to another server.
    #[test]
    fn web_files_refer_to_each_other_only() {
        for File { path, contents, content_type } in FILES {
            let quoted = contents.split(['"', '\'']).skip(1).step_by(2);
            for name in quoted.filter(|text| text.starts_with("./") && !text.contains(' ')) {
                assert!(FILES.iter().any(|file| file.path == &name[1..]), "{path} names {name}");
            }
            // Another server, or what the policy forbids.
            for wrong in [
                "http://",
                "https://",
                "//cdn",
                "eval(",
                "innerHTML",
                "document.write",
                "javascript:",
                " onclick",
                " onload",
                "<style",
                " style=",
                "@import",
                "url(",
            ] {
                assert!(!contents.contains(wrong), "{path} has {wrong}");
            }
            assert!(!content_type.is_empty() && !contents.is_empty(), "{path}");
        }
    }
}
