//! People's programs under load while the sampler goes in and out: their own checks must find nothing.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::inject::{self, Subject};
use sampler_tests::wait;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Injections and ejections of each program.
const CYCLES: u32 = 20;
/// Samples are frequent, so that the slow ways are taken, too.
const INTERVAL: u64 = 16 << 10;

fn cycle(pid: u32, number: u32) -> Result<()> {
    inject::inject(pid, INTERVAL).with_context(|| format!("cycle {number}"))?;
    inject::eject(pid).with_context(|| format!("cycle {number}"))?;
    Ok(())
}

#[test]
fn python() -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/injected.py");
    let mut command = Command::new("/usr/bin/python3");
    let mut program = Subject::spawn("python3", command.arg(script).env("PYTHONMALLOC", "malloc"))?;
    for number in 0..CYCLES {
        cycle(program.pid(), number)?;
        program.is_well()?;
    }
    program.end()
}

/// Statements whose last one says what came of them, in one line.
fn statements(seed: u32) -> String {
    format!(
        "DELETE FROM t; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) \
         INSERT INTO t SELECT i, (i * {seed}) % 7919, hex(i * {seed}) || printf('%0*d', i % 200, i) FROM n; \
         UPDATE t SET c = c || a WHERE b % 3 = 0; DELETE FROM t WHERE b % 5 = 1; \
         SELECT count(*) || ' ' || sum(length(x.c)) || ' ' || sum(y.b) || ' ' || (SELECT * FROM pragma_integrity_check) \
         FROM t x JOIN t y ON x.b = y.a;"
    )
}

fn sqlite() -> Result<Child> {
    let mut child = Child::start("sqlite3", Command::new("sqlite3").arg(":memory:"))?;
    child.send(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER, c TEXT); CREATE INDEX i ON t (b);",
    )?;
    Ok(child)
}

#[test]
fn sqlite3() -> Result<()> {
    let mut alone = sqlite()?;
    let mut program = sqlite()?;
    for number in 0..CYCLES {
        let text = statements(number % 4 + 2);
        alone.send(&text)?;
        let expected = alone.line()?;
        ensure!(expected.ends_with(" ok"), "{expected}");
        program.send(&text)?;
        cycle(program.pid(), number)?;
        let line = program.line()?;
        ensure!(line == expected, "cycle {number}: {line:?}, expected {expected:?}");
    }
    program.close_stdin();
    ensure!(program.wait()?.success(), "sqlite3 ended badly");
    Ok(())
}

/// Commands that leave the same data whenever they are carried out in this order.
fn commands(round: u32) -> String {
    let mut text = String::new();
    for i in 0..20_000u32 {
        let key = i.wrapping_mul(2_654_435_761) % 4000;
        let _ = match i % 5 {
            0 => writeln!(text, "SET s{key} {}", "x".repeat((i % 700) as usize + 1)),
            1 => writeln!(text, "APPEND s{key} {round}y{i}"),
            2 => writeln!(text, "RPUSH l{} {i}", key % 100),
            3 => writeln!(text, "HSET h{} f{key} {round}", key % 50),
            _ => writeln!(text, "DEL s{}", key / 2),
        };
    }
    text
}

struct Redis {
    child: Child,
    directory: tempfile::TempDir,
}

impl Redis {
    fn start() -> Result<Redis> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--enable-debug-command",
            "yes",
            "--unixsocket",
        ]);
        command.arg(directory.path().join("socket")).stderr(Stdio::null());
        let child = Child::start("redis-server", &mut command)?;
        let redis = Redis { child, directory };
        let answers = || Ok(redis.ask(&["PING"]).ok().filter(|line| line == "PONG").map(drop));
        wait::until("redis-server", answers)?;
        Ok(redis)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(self.directory.path().join("socket"));
        command
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let finished = finish(self.client().args(words))?.success("redis-cli")?;
        Ok(String::from_utf8_lossy(&finished.stdout).trim().to_owned())
    }

    /// A client that sends all of a file's commands.
    fn feed(&self, commands: &Path) -> Result<std::process::Child> {
        let input = std::fs::File::open(commands)?;
        let mut client = self.client();
        client.stdin(input).stdout(Stdio::null()).spawn().context("start redis-cli")
    }
}

#[test]
fn redis() -> Result<()> {
    let (alone, program) = (Redis::start()?, Redis::start()?);
    let file = alone.directory.path().join("commands");
    for number in 0..CYCLES {
        std::fs::write(&file, commands(number))?;
        ensure!(alone.feed(&file)?.wait()?.success(), "redis-cli");
        let mut client = program.feed(&file)?;
        cycle(program.child.pid(), number)?;
        ensure!(client.wait()?.success(), "redis-cli");
        let digests = [alone.ask(&["DEBUG", "DIGEST"])?, program.ask(&["DEBUG", "DIGEST"])?];
        ensure!(digests[0] == digests[1] && digests[0].len() >= 40, "{number}: {digests:?}");
    }
    let mut program = program;
    program.child.signal(15)?;
    ensure!(program.child.wait()?.success(), "redis-server ended badly");
    Ok(())
}
