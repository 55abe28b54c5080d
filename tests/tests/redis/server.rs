//! A redis-server of the test's own: on a free port of the loopback, in a directory of its own,
//! nothing kept on disk.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::{build, wait};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Command;
use tempfile::TempDir;

/// Number of words of `struct counts` of `workloads/held.c`, of which `on` is the first.
const WORDS: usize = 6;

/// Allocations since counting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Blocks that are still held.
    pub(crate) held: u64,
    pub(crate) held_bytes: u64,
}

/// A running redis-server.
pub(crate) struct Server {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Server {
    /// Starts the server as distributed.
    pub(crate) fn start() -> Result<Server> {
        Server::start_with(|_, _| Ok(()))
    }

    /// Starts the server under the counting library.
    pub(crate) fn start_counted() -> Result<Server> {
        let library = build::compile("held.c", &["-shared", "-fPIC"])?;
        Server::start_with(|command, counts| {
            fs::write(counts, [0; WORDS * 8]).context("make the file of counts")?;
            command.env("LD_PRELOAD", library).env("HELD_IN", counts);
            Ok(())
        })
    }

    fn start_with(
        prepare: impl FnOnce(&mut Command, &std::path::Path) -> Result<()>,
    ) -> Result<Server> {
        let directory = tempfile::tempdir().context("make a directory")?;
        let port = free_port()?;
        let mut command = Command::new("/usr/bin/redis-server");
        prepare(&mut command, &directory.path().join("counts"))?;
        let log = directory.path().join("log");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(["--appendonly", "no", "--dir"]).arg(directory.path());
        command.arg("--logfile").arg(&log);
        let mut server =
            Server { child: Child::start("redis-server", &mut command)?, port, directory };
        wait::until("an answer of redis-server", || {
            if let Some(status) = server.child.ended()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                anyhow::bail!("redis-server ended with {status}: {said}");
            }
            let Ok(mut answer) = server.ask("PING") else { return Ok(None) };
            let mut line = String::new();
            answer.read_line(&mut line).context("read from redis-server")?;
            Ok((line.trim() == "+PONG").then_some(()))
        })?;
        Ok(server)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Sends `requests` requests of each command, by 10 clients at once, on 10,000 keys.
    pub(crate) fn benchmark(&self, commands: &str, requests: u32) -> Result<()> {
        let [port, requests] = [u32::from(self.port), requests].map(|number| number.to_string());
        let mut command = Command::new("/usr/bin/redis-benchmark");
        command.args(["-h", "127.0.0.1", "-p", &port, "-n", &requests, "-t", commands]);
        command.args(["-c", "10", "-r", "10000", "-q"]);
        finish(&mut command)?.success("redis-benchmark").map(|_| ())
    }

    /// Memory in use by redis's own count: the sum of the sizes of its blocks.
    pub(crate) fn used_memory(&self) -> Result<u64> {
        self.info("memory", "used_memory:")
    }

    /// Stops the server, which otherwise allocates once a second. Returns when all of its threads
    /// are stopped.
    pub(crate) fn stop(&self) -> Result<()> {
        self.child.signal(libc::SIGSTOP)?;
        wait::until("redis-server to stand still", || {
            let tasks = format!("/proc/{}/task", self.pid());
            for task in fs::read_dir(&tasks).with_context(|| format!("list {tasks}"))? {
                let stat = fs::read_to_string(task?.path().join("stat"))?;
                if stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('T')) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Lets the server run again.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.child.signal(libc::SIGCONT)
    }

    /// Lets the library count from now on.
    pub(crate) fn begin_counting(&self) -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(self.directory.path().join("counts"));
        file?.write_all_at(&1u64.to_ne_bytes(), 0).context("begin to count")
    }

    /// Waits until the server has cleaned up after the benchmark, then stops the server. No call is
    /// in progress, so the counts are the truth.
    pub(crate) fn settle(&self) -> Result<Counts> {
        wait::until("the clients to be gone", || {
            // The one remaining client is this one.
            Ok((self.info("clients", "connected_clients:")? == 1).then_some(()))
        })?;
        let mut last = None;
        wait::until("redis-server to come to rest", || {
            let counts = self.counts()?;
            Ok((last.replace(counts) == Some(counts)).then_some(()))
        })?;
        self.stop()?;
        self.counts()
    }

    fn counts(&self) -> Result<Counts> {
        let bytes = fs::read(self.directory.path().join("counts")).context("read the counts")?;
        let word = |at: usize| bytes[at * 8..][..8].try_into().map(u64::from_ne_bytes);
        ensure!(bytes.len() == WORDS * 8 && word(5)? == 0, "the counting library ran out of room");
        Ok(Counts { allocations: word(1)?, bytes: word(2)?, held: word(3)?, held_bytes: word(4)? })
    }

    /// A number from a section of the server's `INFO`.
    fn info(&self, section: &str, name: &str) -> Result<u64> {
        let question = format!("INFO {section}");
        let mut lines = self.ask(&question)?.lines();
        while let Some(line) = lines.next().transpose().context("read from redis-server")? {
            if let Some(number) = line.strip_prefix(name) {
                return number.trim().parse().with_context(|| format!("parse {line:?}"));
            }
        }
        anyhow::bail!("redis-server does not say {name} in {question}")
    }

    /// Sends a command, and returns a reader of the answer.
    fn ask(&self, question: &str) -> Result<BufReader<TcpStream>> {
        let mut stream = self.connect()?;
        stream.write_all(format!("{question}\r\n").as_bytes()).context("ask redis-server")?;
        Ok(BufReader::new(stream))
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let stream = stream.with_context(|| format!("connect to 127.0.0.1:{}", self.port))?;
        stream.set_read_timeout(Some(wait::DEADLINE)).context("set a deadline")?;
        Ok(stream)
    }

    /// Ends the server as its service does, and checks that it ends well.
    pub(crate) fn end(mut self) -> Result<()> {
        self.child.signal(libc::SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "redis-server ended with {status}");
        Ok(())
    }
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}
