//! MariaDB: the same statements give the same results again and again, and its own check of the
//! tables finds no error.

use super::{Cycles, count};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::wait;
use std::fs::File;
use std::process::{Command, Stdio};

/// Number of clients, each with a table of its own.
const CLIENTS: u32 = 2;
/// Number of different loads. Each load has one result.
const LOADS: u32 = 4;
const SIGTERM: i32 = 15;

/// Statements that print their results in three lines: sums, and the result of the table's check.
fn statements(table: u32, load: u32) -> String {
    let seed = load + 2;
    format!(
        "DELETE FROM t{table}; \
         INSERT INTO t{table} SELECT seq, (seq * {seed}) % 7919, CONCAT(HEX(seq * {seed}), REPEAT('x', seq % 200)) FROM seq_1_to_8000; \
         UPDATE t{table} SET c = CONCAT(c, a) WHERE b % 3 = 0; DELETE FROM t{table} WHERE b % 5 = 1; \
         SELECT CONCAT_WS(' ', COUNT(*), SUM(LENGTH(x.c)), SUM(y.b), SUM(CRC32(x.c))) FROM t{table} x JOIN t{table} y ON x.b = y.a; \
         SELECT CONCAT_WS(' ', b, COUNT(*), MAX(c)) FROM t{table} GROUP BY b ORDER BY MAX(c), b LIMIT 1; \
         CHECK TABLE t{table};"
    )
}

fn results(client: &mut Child, table: u32, load: u32) -> Result<[String; 3]> {
    client.send(&statements(table, load))?;
    answers(client)
}

fn answers(client: &mut Child) -> Result<[String; 3]> {
    let lines = [client.line()?, client.line()?, client.line()?];
    ensure!(lines[2].ends_with("\tstatus\tOK"), "{lines:?}");
    Ok(lines)
}

struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    fn start() -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let data = format!("--datadir={}", directory.path().join("data").display());
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"]);
        let installed = finish(install.args(["--skip-test-db", &data]));
        installed.context("apt-get install mariadb-server")?.success("mariadb-install-db")?;
        let mut command = Command::new("/usr/sbin/mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", &data]);
        command.arg(format!("--socket={}", directory.path().join("socket").display()));
        command.arg("--innodb-flush-log-at-trx-commit=0");
        command.stderr(File::create(directory.path().join("log"))?);
        let child = Child::start("mariadbd", &mut command)?;
        let server = Server { child, directory };
        let answers = || Ok(finish(server.client().args(["-e", "SELECT 1"]))?.success("").ok());
        wait::until("mariadbd", answers)?;
        Ok(server)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--unbuffered"]);
        command.arg(format!("--socket={}", self.directory.path().join("socket").display()));
        command
    }
}

#[test]
#[ignore = "it takes MariaDB: cargo xtask test --long installs it"]
fn mariadb() -> Result<()> {
    let mut server = Server::start()?;
    let mut clients = Vec::new();
    for table in 0..CLIENTS {
        let mut client =
            Child::start("mariadb", server.client().stderr(Stdio::inherit()).arg("-f"))?;
        client.send(&format!(
            "CREATE DATABASE IF NOT EXISTS test; USE test; CREATE TABLE t{table} (a INT PRIMARY KEY, b INT, c TEXT, KEY (b)) ENGINE=InnoDB;"
        ))?;
        let expected = (0..LOADS).map(|load| results(&mut client, table, load));
        let expected = expected.collect::<Result<Vec<_>>>()?;
        clients.push((client, expected));
    }
    let mut cycles = Cycles::new("mariadbd", &[server.child.pid()]);
    for number in 0..count()? {
        let load = number % LOADS;
        for (table, (client, _)) in (0..).zip(&mut clients) {
            client.send(&statements(table, load))?;
        }
        cycles.make()?;
        for (client, expected) in &mut clients {
            let found = answers(client).with_context(|| format!("cycle {number}"))?;
            let expected = &expected[load as usize];
            ensure!(found == *expected, "cycle {number}: {found:?}, expected {expected:?}");
        }
    }
    server.child.signal(SIGTERM)?;
    ensure!(server.child.wait()?.success(), "mariadbd ended badly");
    Ok(())
}
