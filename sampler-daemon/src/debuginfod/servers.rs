//! The servers, as `DEBUGINFOD_URLS` lists them (debuginfod_find_debuginfo(3)).

use ureq::http::Uri;

/// Servers, in the order in which samplerd asks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers(pub(super) Vec<Server>);

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// The URL without `/buildid` and a slash at its end.
    url: String,
    /// Host and port, without user name and password.
    pub(super) name: String,
}

impl Servers {
    /// Parses URLs that are separated by blanks. Words for other clients (`ima:…`) are left out.
    ///
    /// # Errors
    /// If a word is not the URL of a server: the word, the reason and the remedy.
    pub fn parse(text: &str) -> Result<Servers, String> {
        let words = text.split_whitespace().filter(|word| !word.starts_with("ima:"));
        words.map(Server::parse).collect::<Result<_, _>>().map(Servers)
    }

    /// Whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Server {
    fn parse(text: &str) -> Result<Server, String> {
        let remedy = "give URLs as https://HOST, blanks between them";
        let uri: Uri = text.parse().map_err(|error| format!("{text:?}: {error} ({remedy})"))?;
        let authority = uri.authority().filter(|_| uri.query().is_none());
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), authority) else {
            return Err(format!("{text:?}: no URL of a server ({remedy})"));
        };
        let (host, port) = (authority.host(), authority.port());
        let url = text.trim_end_matches('/');
        Ok(Server {
            url: url.strip_suffix("/buildid").unwrap_or(url).to_owned(),
            name: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
        })
    }

    /// The URL of the debug file of a build id.
    pub(super) fn debug_file(&self, build_id: &str) -> String {
        format!("{}/buildid/{build_id}/debuginfo", self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_urls_are_parsed_as_by_debuginfod() {
        let text =
            " ima:enforcing https://a.example/ http://x:y@b.example:8002/buildid/ ima:ignore\n";
        let servers = Servers::parse(text).unwrap();
        let urls: Vec<_> = servers.0.iter().map(|server| server.debug_file("0123")).collect();
        assert_eq!(
            urls,
            [
                "https://a.example/buildid/0123/debuginfo",
                "http://x:y@b.example:8002/buildid/0123/debuginfo"
            ]
        );
        let names: Vec<_> = servers.0.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a.example", "b.example:8002"]);
        assert!(Servers::parse(" \n").unwrap().is_empty());
        for wrong in
            ["file:///x", "a.example", "ftp://x", "http://", "http://x/?y", "http://x\u{7f}y"]
        {
            assert!(Servers::parse(wrong).unwrap_err().ends_with("between them)"), "{wrong:?}");
        }
    }
}
