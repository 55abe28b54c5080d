//! PostgreSQL under pgbench: the sums of its transactions are consistent, and none of its processes
//! has crashed.

use super::{Cycles, count};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::nobody::{NOBODY, as_nobody};
use sampler_tests::wait;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// pgbench ends at this signal, and reports whether all went well.
const SIGALRM: i32 = 14;
const SIGINT: i32 = 2;
/// Number of lasting connections, each with a server process of its own.
const CONNECTIONS: usize = 2;
/// The sums of all balances and of the history, which must be equal.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
     (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)";

/// Directory of the newest version's programs.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|of| of.path().join("bin")).filter(|of| of.join("initdb").is_file());
    found.max().context("PostgreSQL is missing (apt-get install postgresql)")
}

struct Server {
    child: Child,
    directory: tempfile::TempDir,
    programs: PathBuf,
}

impl Server {
    fn start() -> Result<Server> {
        let programs = programs()?;
        let directory = tempfile::tempdir()?;
        // PostgreSQL refuses to run as root.
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).context("give the directory away")?;
        let data = directory.path().join("data");
        let mut initdb = as_nobody(&programs.join("initdb"));
        initdb.args(["--no-sync", "--no-locale", "--auth=trust", "-U", "postgres", "-D"]);
        finish(initdb.arg(&data))?.success("initdb")?;
        let mut command = as_nobody(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(directory.path());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        command.stderr(File::create(directory.path().join("log"))?);
        let child = Child::start("postgres", &mut command)?;
        let server = Server { child, directory, programs };
        wait::until("postgres", || Ok(server.ask("SELECT 1").ok()))?;
        Ok(server)
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.arg("-h").arg(self.directory.path()).args(["-U", "postgres"]);
        command.env("PGDATABASE", "postgres").stderr(Stdio::null());
        command
    }

    fn ask(&self, statement: &str) -> Result<String> {
        let finished = finish(self.client("psql").args(["-AtXc", statement]))?.success("psql")?;
        Ok(String::from_utf8_lossy(&finished.stdout).trim().to_owned())
    }

    fn pgbench(&self, arguments: &[&str]) -> Result<Child> {
        Child::start("pgbench", self.client("pgbench").args(["-n", "-T", "3600"]).args(arguments))
    }

    /// The server's processes that are in a transaction of pgbench. The process of its first
    /// connection, which ends at once, is never among them.
    fn backends(&self) -> Result<Vec<u32>> {
        let pids = self.ask(
            "SELECT pid FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND query ~ '^(BEGIN|UPDATE|INSERT|END)'",
        )?;
        pids.lines().map(|pid| pid.parse().with_context(|| pids.clone())).collect()
    }

    /// Checks that the sums are equal. Returns the number of transactions.
    fn adds_up(&self) -> Result<u64> {
        let line = self.ask(SUMS)?;
        let (sums, transactions) = line.rsplit_once('|').context("no sums")?;
        let mut sums = sums.split('|');
        let first = sums.next().context("no sum")?;
        ensure!(sums.all(|of| of == first), "accounts, tellers, branches, history: {line}");
        transactions.parse().with_context(|| line.clone())
    }
}

#[test]
fn postgres() -> Result<()> {
    let mut server = Server::start()?;
    finish(server.client("pgbench").args(["-i", "-q"]))?.success("pgbench -i")?;
    let mut clients = vec![server.pgbench(&["-c", &CONNECTIONS.to_string()])?];
    let backends = wait::until("transactions", || {
        Ok(Some(server.backends()?).filter(|of| of.len() == CONNECTIONS))
    })?;
    let pids = [vec![server.child.pid()], backends].concat();
    // This client's connections come and go. The server forks a process for each, with the sampler
    // in it or without.
    clients.push(server.pgbench(&["-c", "1", "-C"])?);
    let mut cycles = Cycles::new("postgres", &pids);
    let mut transactions = 0;
    for number in 0..count()? {
        cycles.make()?;
        let more = server.adds_up().with_context(|| format!("cycle {number}"))?;
        ensure!(more > transactions, "cycle {number}: {more} transactions");
        transactions = more;
    }
    for mut client in clients {
        client.signal(SIGALRM)?;
        let status = client.wait()?;
        ensure!(status.success(), "pgbench ended with {status}");
    }
    println!("postgres: {} transactions", server.adds_up()?);
    server.child.signal(SIGINT)?;
    let status = server.child.wait()?;
    let log = fs::read_to_string(server.directory.path().join("log"))?;
    let is_well = !log.contains("terminated by signal") && !log.contains("PANIC");
    ensure!(status.success() && is_well, "postgres ended with {status}: {log}");
    Ok(())
}
