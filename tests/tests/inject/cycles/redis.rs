//! redis-server: the digest of all its data equals that of another server that is not injected.

use super::{Cycles, count};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::wait;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Commands that leave the same data whenever they are executed in this order.
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

    /// Sends all commands of a file.
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
    let mut cycles = Cycles::new("redis-server", &[program.child.pid()]);
    for number in 0..count()? {
        std::fs::write(&file, commands(number))?;
        ensure!(alone.feed(&file)?.wait()?.success(), "redis-cli");
        let mut client = program.feed(&file)?;
        cycles.make()?;
        ensure!(client.wait()?.success(), "redis-cli");
        let digests = [alone.ask(&["DEBUG", "DIGEST"])?, program.ask(&["DEBUG", "DIGEST"])?];
        ensure!(digests[0] == digests[1] && digests[0].len() >= 40, "{number}: {digests:?}");
    }
    let mut program = program;
    program.child.signal(15)?;
    ensure!(program.child.wait()?.success(), "redis-server ended badly");
    Ok(())
}
