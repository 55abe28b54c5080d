//! The places that profiles are pushed to, as the command line names them.

use hyper::Uri;
use std::fmt;
use std::path::PathBuf;

/// The protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over HTTP, in protobuf.
    OtlpHttp,
    /// OTLP over gRPC.
    OtlpGrpc,
    /// pprof over HTTP, as Pyroscope accepts it.
    Pyroscope,
    /// Parquet over HTTP, as ClickHouse accepts it.
    ClickHouse,
}

impl Protocol {
    const ALL: [Protocol; 4] =
        [Protocol::OtlpHttp, Protocol::OtlpGrpc, Protocol::Pyroscope, Protocol::ClickHouse];

    /// The scheme without TLS. With TLS it has an `s` at its end.
    const fn scheme(self) -> &'static str {
        match self {
            Protocol::OtlpHttp => "otlp+http",
            Protocol::OtlpGrpc => "otlp+grpc",
            Protocol::Pyroscope => "pyroscope+http",
            Protocol::ClickHouse => "clickhouse+http",
        }
    }

    /// Port if the URL names none. Only ClickHouse has another port for TLS.
    const fn usual_port(self, is_secure: bool) -> u16 {
        match self {
            Protocol::OtlpHttp => 4318,
            Protocol::OtlpGrpc => 4317,
            Protocol::Pyroscope => 4040,
            Protocol::ClickHouse if is_secure => 8443,
            Protocol::ClickHouse => 8123,
        }
    }

    /// The protocol of a scheme, and whether the scheme wants TLS.
    fn of_scheme(scheme: &str) -> Option<(Protocol, bool)> {
        let of = |name: &str| Protocol::ALL.into_iter().find(|of| of.scheme() == name);
        match of(scheme) {
            Some(protocol) => Some((protocol, false)),
            None => of(scheme.strip_suffix('s')?).map(|protocol| (protocol, true)),
        }
    }
}

/// The database of a ClickHouse server, if the URL names none.
const DATABASE: &str = "default";
/// The scheme of a folder of Parquet files.
const FOLDER: &str = "parquet:";

/// A place that profiles are pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A backend.
    Server(Server),
    /// A folder of Parquet files.
    Folder(PathBuf),
}

impl Destination {
    /// Parses `parquet:FOLDER` or the URL of a [`Server`].
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Destination, String> {
        match text.strip_prefix(FOLDER) {
            Some("") => Err("has no folder (try parquet:/var/lib/sampler/fleet)".into()),
            Some(folder) => Ok(Destination::Folder(folder.into())),
            None => Server::parse(text).map(Destination::Server),
        }
    }

    /// Whether connections have TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Destination::Server(server) if server.is_secure)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Server(server) => server.fmt(f),
            Destination::Folder(folder) => write!(f, "{FOLDER}{}", folder.display()),
        }
    }
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The backend's protocol.
    pub protocol: Protocol,
    /// Whether connections have TLS.
    pub is_secure: bool,
    /// The backend's host name or address; an IPv6 address has no brackets.
    pub host: String,
    /// The backend's port.
    pub port: u16,
    /// The path before the protocol's own path, without a `/` at the end. For ClickHouse: empty.
    pub base: String,
    /// The database of a ClickHouse server; empty for other backends.
    pub database: String,
    text: String,
}

impl Server {
    /// Parses `otlp+http://HOST:4318`, `otlp+grpc://HOST:4317`, `pyroscope+http://HOST:4040` or
    /// `clickhouse+http://HOST:8123/DATABASE`. With TLS: `otlp+https`, `otlp+grpcs`,
    /// `pyroscope+https`, `clickhouse+https`.
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Server, String> {
        let unknown = || {
            let known =
                Protocol::ALL.map(|of| format!("{}://HOST:{}", of.scheme(), of.usual_port(false)));
            let known = known.join(" or ");
            format!(
                "is no place to export to (try {known} or {FOLDER}FOLDER; https and grpcs for TLS)"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let (protocol, is_secure) = Protocol::of_scheme(scheme).ok_or_else(unknown)?;
        let url: Uri = format!("http://{rest}").parse().map_err(|error| format!("{error}"))?;
        let authority = url.authority().ok_or_else(unknown)?;
        if authority.as_str().contains('@') {
            return Err("has a password, which everybody sees who lists processes (give it with --export-header-file)".into());
        }
        if url.query().is_some() {
            return Err("has a query, which means nothing here (leave it out)".into());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        // `Uri` returns no port for a port that is not a number.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            None if !has_port => protocol.usual_port(is_secure),
            _ => return Err("has no port behind the : (give 1 to 65535)".into()),
        };
        if host.is_empty() {
            return Err(unknown());
        }
        let path = url.path().trim_end_matches('/');
        let (base, database) = match protocol {
            Protocol::OtlpHttp | Protocol::Pyroscope => (path.to_owned(), String::new()),
            Protocol::OtlpGrpc if path.is_empty() => Default::default(),
            Protocol::OtlpGrpc => {
                return Err("has a path, which gRPC has not (leave it out)".into());
            }
            Protocol::ClickHouse => (String::new(), database(path)?),
        };
        Ok(Server { protocol, is_secure, host, port, base, database, text: text.to_owned() })
    }

    /// Returns host and port in the form of the `Host` header.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The name of a database from a path.
fn database(path: &str) -> Result<String, String> {
    let name = if path.is_empty() { DATABASE } else { &path[1..] };
    let is_named = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match !name.is_empty() && name.chars().all(is_named) {
        true => Ok(name.to_owned()),
        false => Err("has no database behind the / (letters, digits and _ -)".into()),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_parsed_with_their_default_port() {
        for (text, host, port, base) in [
            ("otlp+http://collector:4318", "collector", 4318, ""),
            ("otlp+http://127.0.0.1", "127.0.0.1", 4318, ""),
            ("otlp+http://[::1]:80/otlp/", "::1", 80, "/otlp"),
            ("otlp+grpc://collector/", "collector", 4317, ""),
            ("pyroscope+http://collector/x", "collector", 4040, "/x"),
        ] {
            let found = Server::parse(text).unwrap();
            assert_eq!((found.host.as_str(), found.port, found.base.as_str()), (host, port, base));
            assert_eq!(found.to_string(), text);
        }
        for (text, database) in [("", "default"), ("/", "default"), ("/fleet_1/", "fleet_1")] {
            let found = Server::parse(&format!("clickhouse+http://x{text}")).unwrap();
            assert_eq!((found.database.as_str(), found.base.as_str()), (database, ""));
            assert_eq!(found.port, 8123);
        }
        let folder = Destination::parse("parquet:/a b").unwrap();
        assert_eq!(folder, Destination::Folder("/a b".into()));
        assert_eq!(folder.to_string(), "parquet:/a b");
        for (text, is_secure, port) in [
            ("otlp+http://x", false, 4318),
            ("otlp+https://x", true, 4318),
            ("otlp+grpcs://x", true, 4317),
            ("pyroscope+https://x:443", true, 443),
            ("clickhouse+https://x/y", true, 8443),
        ] {
            let found = Server::parse(text).unwrap();
            assert_eq!((found.is_secure, found.port), (is_secure, port), "{text}");
        }
        let of = |text| Server::parse(text).unwrap().authority();
        assert_eq!(of("otlp+http://[::1]:80"), "[::1]:80");
        assert_eq!(of("otlp+http://x"), "x:4318");
    }

    #[test]
    fn invalid_destinations_are_explained_in_one_line() {
        for (text, words) in [
            ("", "try otlp+http://"),
            ("collector:4318", "try otlp+http://"),
            ("http://collector:4318", "try otlp+http://"),
            ("otlp+httpss://collector", "try otlp+http://"),
            ("otlps+http://collector", "try otlp+http://"),
            ("otlp+http://", ""),
            ("otlp+http://:4318", ""),
            ("otlp+http://a b", ""),
            ("otlp+http://collector:x", ""),
            ("otlp+http://collector:", "port"),
            ("otlp+http://collector:0", "port"),
            ("otlp+http://collector:70000", ""),
            ("otlp+http://me:secret@collector", "--export-header-file"),
            ("otlp+http://collector/?a=b", "query"),
            ("otlp+grpc://collector/base", "path"),
            ("clickhouse+http://collector/a/b", "database"),
            ("clickhouse+http://collector/a;b", "database"),
            ("parquet:", "folder"),
            ("parquet", "parquet:FOLDER"),
        ] {
            let error = Destination::parse(text).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{text}: {error}");
            assert!(!error.contains("secret"));
        }
    }
}
