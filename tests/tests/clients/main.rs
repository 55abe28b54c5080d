//! Clients that mean harm, or have no right to their requests. All other clients are served
//! meanwhile.

mod tls;

use anyhow::{Context, Result, ensure};
use sampler_daemon::rpc::v1::sampler_client::SamplerClient;
use sampler_daemon::rpc::v1::{GetProfileRequest, StatusRequest};
use sampler_tests::child::{Finished, finish};
use sampler_tests::client::Client;
use sampler_tests::nobody::{self, NOBODY, PublicCopy};
use sampler_tests::raw_grpc::{RawGrpc, header_block};
use sampler_tests::{Daemon, Workload, build, usage, wait};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

const SERVICE: &str = "sampler.v1.Sampler";
/// The workload has a different stack for each number of this many bits.
const BITS: &str = "14";
/// Longest time of an answer to `status` during an attack.
const STATUS: Duration = Duration::from_secs(1);
/// Largest memory of samplerd during an attack.
const MAX_RSS_BYTES: u64 = 256 << 20;

/// A port that was free a moment ago.
fn port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// `sampler`, run by a user without rights, against a daemon.
fn as_nobody(daemon: &Daemon, arguments: &[&str]) -> Result<Finished> {
    let copy = PublicCopy::of("sampler")?;
    let mut command = nobody::as_nobody(&copy.program);
    finish(command.args(["--connect", &daemon.address]).args(arguments))
}

/// Lets everybody into the directory of a daemon's socket.
fn open_directory(daemon: &Daemon) -> Result<()> {
    nobody::open_directory(daemon.socket().parent().context("a socket without a directory")?)
}

/// A workload with 2^[`BITS`] stacks, and its daemon.
fn many_stacks(arguments: &[&str]) -> Result<(Workload, Daemon)> {
    let mut workload = Workload::start("bits.c", &[BITS])?;
    let arguments = [&["--interval", "1", "--ring", "64MiB"], arguments].concat();
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    workload.truth()?;
    Ok((workload, daemon))
}

/// Checks that `status` answers in time.
fn is_served(daemon: &Daemon) -> Result<()> {
    let begun = Instant::now();
    daemon.status()?;
    ensure!(begun.elapsed() < STATUS, "status took {:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn the_api_over_tcp_requires_the_token() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let port = port()?;
    // samplerd makes the directory if it does not exist. The directory stays if another daemon uses
    // it.
    let _ = std::fs::remove_dir("/run/sampler");
    let daemon = Daemon::start_at(&format!("tcp:127.0.0.1:{port}"), &[workload.pid()], &[])?;
    let path = format!("/run/sampler/tcp-{port}.token");
    let directory = std::fs::metadata("/run/sampler")?.permissions().mode();
    ensure!(directory & 0o777 == 0o755, "/run/sampler has mode {directory:o}");
    let mode = std::fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "{path} has mode {mode:o}");
    // Root's client finds the token by itself.
    daemon.status()?;
    let refused = as_nobody(&daemon, &["status"])?;
    let line = &refused.stderr;
    ensure!(refused.status.code() == Some(1), "{line}");
    ensure!(line.contains(&path) && line.contains("SAMPLER_TOKEN_FILE"), "{line}");

    let mut client = Client::connect(&daemon.address).await?;
    let error = client.learn(SERVICE).await.err().context("reflection without a token")?;
    ensure!(format!("{error:#}").contains("no token"), "{error:#}");
    let token = std::fs::read_to_string(&path)?;
    let mut wrong = Client::connect(&daemon.address).await?.with_token(&"0".repeat(32))?;
    let error = wrong.learn(SERVICE).await.err().context("reflection with a wrong token")?;
    ensure!(format!("{error:#}").contains("wrong token"), "{error:#}");
    let mut client = client.with_token(token.trim())?;
    client.learn(SERVICE).await?;
    client.call(SERVICE, "Status", json!({})).await?;
    daemon.stop()?;
    ensure!(!std::path::Path::new(&path).exists(), "{path} is left behind");
    Ok(())
}

#[test]
fn connections_without_a_request_are_closed() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let port = port()?;
    let daemon = Daemon::start_at(&format!("tcp:127.0.0.1:{port}"), &[workload.pid()], &[])?;
    // More connections than are served at a time: a later one waits until these are closed.
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).context("connect");
    let mut idle = (0..400).map(connect).collect::<Result<Vec<_>>>()?;
    // Every second connection speaks HTTP/2, without a request.
    for stream in idle.iter_mut().step_by(2) {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
    }
    daemon.status()?;
    for mut stream in idle {
        stream.set_read_timeout(Some(wait::DEADLINE))?;
        let mut all = Vec::new();
        // A reset closes the connection, too.
        if let Err(error) = stream.read_to_end(&mut all) {
            ensure!(error.kind() == std::io::ErrorKind::ConnectionReset, "still open: {error}");
        }
    }
    daemon.stop()
}

#[test]
fn watchers_that_do_not_read_take_little_memory() -> Result<()> {
    let (mut workload, daemon) = many_stacks(&[])?;
    let block = header_block("/sampler.v1.Sampler/WatchProfile", (b"\x41", "localhost"))?;
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = RawGrpc::connect(&daemon.socket())?;
        client.send(&block)?;
        clients.push(client);
    }
    for _ in 0..10 {
        is_served(&daemon)?;
        let rss = usage::resident_without_ring(daemon.pid())?;
        ensure!(rss < MAX_RSS_BYTES, "samplerd has {rss} bytes");
    }
    // Clients that do not read are dropped, and other clients are served.
    let profile =
        daemon.profile_where("whole profile", "alloc", &[], |of| !of.stacks.is_empty())?;
    ensure!(profile.stacks.len() > 10_000, "{} stacks", profile.stacks.len());
    drop(clients);
    workload.exit()?;
    daemon.stop()
}

#[tokio::test]
async fn many_simultaneous_profiles_take_bounded_memory() -> Result<()> {
    let (mut workload, daemon) = many_stacks(&[])?;
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let channel = Client::connect(&daemon.address).await?.channel();
        let mut client = SamplerClient::new(channel).max_decoding_message_size(usize::MAX);
        // The first answer gives the client the limit of requests on a connection.
        client.status(StatusRequest {}).await?;
        for _ in 0..50 {
            let mut client = client.clone();
            answers.spawn(async move { client.get_profile(GetProfileRequest::default()).await });
        }
    }
    let (mut given, mut refused) = (0, 0);
    let mut peak = 0;
    while let Some(answer) = answers.join_next().await {
        match answer? {
            Ok(answer) => {
                ensure!(answer.get_ref().stacks.len() > 10_000, "an incomplete profile");
                given += 1;
            }
            Err(error) => {
                ensure!(error.message().contains("ask again later"), "{error}");
                refused += 1;
            }
        }
        peak = peak.max(usage::resident_without_ring(daemon.pid())?);
    }
    ensure!(given >= 60 && given + refused == 200, "{given} given, {refused} refused");
    ensure!(peak < MAX_RSS_BYTES, "samplerd had {peak} bytes");
    workload.exit()?;
    daemon.stop()
}

#[test]
fn other_users_may_read_and_only_owners_change() -> Result<()> {
    let own = Workload::edge(&["odd"])?;
    let program = build::compile("edges.c", &[])?;
    let theirs = Workload::spawn("edges.c as nobody", nobody::as_nobody(&program).arg("odd"))?;
    let pids = [own.pid(), theirs.pid()];
    let private = Daemon::start(&pids, &[])?;
    open_directory(&private)?;
    let refused = as_nobody(&private, &["status"])?.stderr;
    ensure!(refused.contains("permission denied"), "{refused}");
    private.stop()?;

    let daemon = Daemon::start(&pids, &["--socket-mode", "666"])?;
    open_directory(&daemon)?;
    as_nobody(&daemon, &["ps"])?.success("ps as nobody")?;
    let set =
        |pid: u32| as_nobody(&daemon, &["set", "--pid", &pid.to_string(), "--interval", "1MiB"]);
    set(theirs.pid())?.success("set of an own process")?;
    let refused = set(own.pid())?.stderr;
    let wanted = format!("pid {}: is not a process of user {NOBODY}", own.pid());
    ensure!(refused.contains(&wanted), "{refused}");
    let all = as_nobody(&daemon, &["set", "--interval", "1MiB"])?.stderr;
    ensure!(all.contains("only change processes of their own"), "{all}");
    let change = daemon.sampler(&["set", "--interval", "2MiB"])?;
    change.success("set as root")?;
    daemon.stop()
}
