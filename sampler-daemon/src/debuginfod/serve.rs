//! The child that fetches one file: samplerd's program again, without rights.
//!
//! The child first drops its user and its capabilities, and limits its memory. Then it looks up the
//! server's address and reads this system's certificates, for which it opens files. Then it drops
//! all system calls except those of its connection, and connects to the server. The child writes
//! what it receives to standard output, which is a file of the cache, and never parses it.

use crate::parser::confine::{Rights, Rules, bits, keep_calls, rules};
use anyhow::{Context as _, anyhow, ensure};
use rustix::process::Resource;
use sampler_common::units::human_bytes;
use seccompiler::SeccompAction;
use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, config::Config};

/// The argument that makes samplerd's program a fetching child. The child's command name is the
/// same, and may have at most 15 bytes.
pub const VERB: &str = "samplerd-fetch";
const NAME: &std::ffi::CStr = c"samplerd-fetch";

/// The child's user and group. They are not the parser's, and not `nobody`, because other processes
/// of `nobody` could send the child signals.
const ID: u32 = 65_532;

/// Maximum size of the child's data.
const MAX_DATA_BYTES: u64 = 128 << 20;
/// Maximum number of open files.
const MAX_FILES: u64 = 64;
/// Maximum CPU time, in seconds.
const MAX_CPU_SECONDS: u64 = 60;
/// Maximum bytes of the request on standard input.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Maximum time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum time until a server begins to answer. The server may have to unpack the file first.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The exit codes of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Ending {
    Whole = 0,
    Missing = 3,
    Refused = 4,
    Failed = 5,
}

impl Ending {
    pub(super) fn of_code(code: i32) -> Option<Ending> {
        use Ending::{Failed, Missing, Refused, Whole};
        [Whole, Missing, Refused, Failed].into_iter().find(|ending| *ending as i32 == code)
    }
}

/// Reads a request from standard input, writes the file to standard output, and ends the process.
pub fn serve() -> ! {
    let (ending, said) = match fetch() {
        Ok(ended) => ended,
        Err(error) => (Ending::Failed, format!("{error:#}")),
    };
    // If nobody reads the message, it is lost.
    let _ = io::stderr().write_all(said.as_bytes());
    std::process::exit(ending as i32)
}

fn fetch() -> anyhow::Result<(Ending, String)> {
    let mut request = io::stdin().lock().take(MAX_REQUEST_BYTES).lines();
    let mut next = || request.next().context("read what is wanted")?.context("read what is wanted");
    let max_bytes: u64 = next()?.parse().context("read the bound")?;
    let time = Duration::from_secs(next()?.parse().context("read the time")?);
    let url: Uri = next()?.parse().context("read the URL")?;
    let limits = [
        (Resource::Data, MAX_DATA_BYTES),
        (Resource::Nofile, MAX_FILES),
        (Resource::Cpu, MAX_CPU_SECONDS),
        (Resource::Fsize, max_bytes),
        (Resource::Core, 0),
    ];
    Rights { name: NAME, id: ID, limits: &limits, root: None }.keep_only()?;
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let agent = agent(&url, time)?;
    keep_calls(calls()?, SeccompAction::Errno(libc::EPERM as u32))?;
    receive(&agent, &url, max_bytes, file)
}

/// An HTTP client that has already read all files that it will need.
fn agent(url: &Uri, time: Duration) -> anyhow::Result<Agent> {
    let host = url.host().context("the URL has no host")?;
    let is_secure = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    // An IPv6 address is in brackets.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (name, port).to_socket_addrs().map_err(|_| anyhow!("no such host"))?.collect();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // No redirect is followed: the user decides which server and scheme are used.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("samplerd/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_TIME.min(time)))
        .timeout_recv_response(Some(ANSWER_TIME.min(time)))
        .timeout_global(Some(time))
        .tls_config(tls(is_secure)?)
        .build();
    Ok(Agent::with_parts(config, DefaultConnector::default(), Known(addresses)))
}

fn tls(is_secure: bool) -> anyhow::Result<TlsConfig> {
    let certificates: Vec<_> = if is_secure {
        let found = rustls_native_certs::load_native_certs().certs;
        ensure!(!found.is_empty(), "no certificates on this system (install ca-certificates)");
        found.iter().map(|of| Certificate::from_der(of).to_owned()).collect()
    } else {
        Vec::new()
    };
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(crypto)
        .build())
}

/// The server's addresses, which were looked up before.
#[derive(Debug)]
struct Known(Vec<SocketAddr>);

impl Resolver for Known {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut found = self.empty();
        // ureq has room for 16 addresses.
        self.0.iter().take(16).for_each(|address| found.push(*address));
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(found) }
    }
}

/// The allowed system calls: memory, the connection, and open descriptors.
fn calls() -> anyhow::Result<Rules> {
    let mut rules = rules(&[
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_close,
        libc::SYS_connect,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_fcntl,
        libc::SYS_fstat,
        libc::SYS_futex,
        libc::SYS_getpeername,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_getsockname,
        libc::SYS_getsockopt,
        libc::SYS_gettid,
        libc::SYS_ioctl,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_read,
        libc::SYS_recvfrom,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_yield,
        libc::SYS_sendto,
        libc::SYS_setsockopt,
        libc::SYS_shutdown,
        libc::SYS_sigaltstack,
        libc::SYS_write,
        libc::SYS_writev,
    ])?;
    let only = |argument, value| bits(argument, -1, value);
    // Connecting with a timeout makes the socket non-blocking for a while.
    rules.insert(libc::SYS_ioctl, only(1, libc::FIONBIO as i32)?);
    let internet = [libc::AF_INET, libc::AF_INET6].map(|family| only(0, family));
    let [four, six] = internet;
    rules.insert(libc::SYS_socket, [four?, six?].concat());
    Ok(rules)
}

/// Sends the request, and writes the answer to the file.
fn receive(
    agent: &Agent,
    url: &Uri,
    max_bytes: u64,
    mut file: File,
) -> anyhow::Result<(Ending, String)> {
    let request = agent.get(url).header("X-DEBUGINFOD-MAXSIZE", max_bytes.to_string());
    let mut response = request.call()?;
    let status = response.status().as_u16();
    match status {
        200 => {}
        404 => return Ok((Ending::Missing, String::new())),
        300..=399 => {
            let location = response.headers().get("location");
            let location = location.and_then(|text| text.to_str().ok()).unwrap_or_default();
            let said = format!("it refers to {location} (give that server)");
            return Ok((Ending::Refused, said));
        }
        _ => return Ok((Ending::Failed, format!("it answers with status {status}"))),
    }
    let bound = human_bytes(max_bytes as f64);
    let promised = response.body().content_length();
    if let Some(promised) = promised.filter(|promised| *promised > max_bytes) {
        let promised = human_bytes(promised as f64);
        return Ok((Ending::Refused, format!("it wants to send {promised}, more than {bound}")));
    }
    let mut body = response.body_mut().as_reader().take(max_bytes + 1);
    let bytes = copy(&mut body, &mut file, max_bytes)?;
    if bytes > max_bytes {
        return Ok((Ending::Refused, format!("it sends more than {bound}")));
    }
    ensure!(promised.is_none_or(|promised| promised == bytes), "it sent a part only");
    Ok((Ending::Whole, String::new()))
}

/// Copies at most `max_bytes`. Returns the bytes received: more than `max_bytes` if the answer is
/// too long.
fn copy(from: &mut impl io::Read, to: &mut impl io::Write, max_bytes: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        let count = from.read(&mut buffer)?;
        bytes += count as u64;
        if count == 0 || bytes > max_bytes {
            return Ok(bytes);
        }
        to.write_all(&buffer[..count])?;
    }
}
