//! Names from a debuginfod server appear in a later profile, and no server can delay or harm
//! anything.

mod debian;
mod server;
mod tls;

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Profile, Workload, build, fleet, wait};
use serde_json::Value;
use server::{Behaviour, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time for a profile, whatever the server does.
const PROFILE: Duration = Duration::from_secs(5);
/// Maximum bytes of a debug file in these tests.
const MAX_BYTES: u64 = 4 << 20;
const MAX_SECONDS: u64 = 3;

/// A running program without symbols, and its debug file, which is not installed.
struct Stripped {
    workload: Workload,
    build_id: String,
    debug_file: Vec<u8>,
    directory: TempDir,
}

impl Stripped {
    fn start() -> Result<Stripped> {
        let directory = tempfile::tempdir()?;
        let program = directory.path().join("stripped");
        let debug = directory.path().join("debug");
        fs::copy(build::compile("beside.c", &["-Wl,--build-id=sha1"])?, &program)?;
        let run = |command: &mut Command| {
            let output = command.output().context("run a program of binutils")?;
            ensure!(output.status.success(), "{command:?}: {output:?}");
            anyhow::Ok(())
        };
        run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]))?;
        run(Command::new("strip").arg(&program))?;
        Ok(Stripped {
            build_id: build_id(&program)?,
            debug_file: fs::read(&debug)?,
            workload: Workload::start_program(&program, &[])?,
            directory,
        })
    }

    /// A samplerd that asks `urls`, with the test's own cache.
    fn daemon(&mut self, urls: &str) -> Result<Daemon> {
        self.daemon_with(urls, &[])
    }

    /// [`Stripped::daemon`] with further variables.
    fn daemon_with(&mut self, urls: &str, variables: &[(&str, &Path)]) -> Result<Daemon> {
        let mut command = Command::new(build::program("samplerd")?);
        command.env("DEBUGINFOD_CACHE_PATH", self.cache());
        command.env("DEBUGINFOD_MAXSIZE", MAX_BYTES.to_string());
        command.env("DEBUGINFOD_MAXTIME", MAX_SECONDS.to_string());
        command.envs(variables.iter().copied());
        let arguments = ["--interval", "4KiB", "--debuginfod", urls];
        Daemon::start_by(command, &[self.workload.pid()], &arguments)
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    /// The path of the program's debug file in the cache.
    fn cached(&self) -> PathBuf {
        self.cache().join(&self.build_id).join("debuginfo")
    }
}

fn build_id(program: &Path) -> Result<String> {
    let notes = Command::new("readelf").arg("-n").arg(program).output().context("readelf")?;
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    Ok(id.context("the program has no build id")?.to_owned())
}

fn notes(profile: &Profile) -> Vec<String> {
    let notes = profile.json["notes"].as_array().into_iter().flatten();
    notes.filter_map(|note| note.as_str().map(str::to_owned)).collect()
}

fn says(profile: &Profile, text: &str) -> bool {
    notes(profile).iter().any(|note| note.contains(text))
}

fn is_named(profile: &Profile) -> bool {
    ["honest_inner", "honest_outer", "main"]
        .iter()
        .all(|name| profile.stacks_of(name).next().is_some())
}

/// A profile, which must arrive within `PROFILE`.
fn in_time(daemon: &Daemon) -> Result<Profile> {
    let begin = Instant::now();
    let profile = daemon.profile("alloc", &[])?;
    let spent = begin.elapsed();
    ensure!(spent < PROFILE, "a profile took {spent:?}");
    Ok(profile)
}

/// The first profile with samples.
fn first(daemon: &Daemon) -> Result<Profile> {
    wait::until("samples", || {
        let profile = in_time(daemon)?;
        Ok((profile.samples > 0).then_some(profile))
    })
}

/// Waits until a note of the profile contains this text. Every profile until then must arrive
/// within `PROFILE`.
fn until_note(daemon: &Daemon, text: &str) -> Result<Profile> {
    let mut last = Vec::new();
    let found = wait::until(text, || {
        let profile = in_time(daemon)?;
        last = notes(&profile);
        Ok(says(&profile, text).then_some(profile))
    });
    found.with_context(|| format!("notes {last:?}; log: {}", daemon.log()))
}

fn status_says(daemon: &Daemon, text: &str) -> Result<()> {
    let blind_spots = daemon.status()?["blind"].to_string();
    ensure!(blind_spots.contains(text), "{text:?} is missing in the status: {blind_spots}");
    Ok(())
}

/// Checks that a server with this behaviour leads to a note and no names.
fn fails(behaviour: Behaviour, note: &str) -> Result<(Stripped, Server)> {
    let mut stripped = Stripped::start()?;
    let server = Server::start(&stripped.build_id, behaviour)?;
    let daemon = stripped.daemon(&server.url())?;
    stripped.workload.go()?;
    let profile = until_note(&daemon, note)?;
    ensure!(!is_named(&profile), "{}", profile.folded());
    status_says(&daemon, note)?;
    let size = fs::metadata(stripped.cached()).map_or(0, |file| file.len());
    ensure!(size == 0, "{size} bytes are in the cache");
    let files = fs::read_dir(stripped.cache().join(&stripped.build_id))?.count();
    ensure!(files == 0, "{files} files are left in the cache");
    daemon.stop()?;
    Ok((stripped, server))
}

#[test]
fn names_come_with_a_later_profile_and_stay_in_the_cache() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let behaviour = Behaviour::Sends(stripped.debug_file.clone());
    let server = Server::start_closed(&stripped.build_id, behaviour)?;
    let daemon = stripped.daemon(&format!("http://127.0.0.1:1 {}", server.url()))?;
    stripped.workload.go()?;
    first(&daemon)?;
    let profile = until_note(&daemon, "still on")?;
    ensure!(!is_named(&profile), "there are names too early: {}", profile.folded());
    ensure!(profile.folded().contains("stripped+0x"), "{}", profile.folded());
    status_says(&daemon, "still on their way")?;
    server.open();
    daemon.profile_where("names", "alloc", &[], is_named)?;
    let text = daemon.sampler(&["profile", "--kind", "alloc"])?.success("sampler profile")?.stdout;
    let text = String::from_utf8_lossy(&text);
    ensure!(text.contains("beside.c:4"), "there are no lines: {text}");
    ensure!(fs::read(stripped.cached())? == stripped.debug_file, "the cache has another file");
    daemon.stop()?;
    // Another samplerd has the debug file in its cache, and needs no server.
    let requested = server.requests();
    let daemon = stripped.daemon(&server.url())?;
    let profile = first(&daemon)?;
    ensure!(is_named(&profile), "the first profile has no names: {}", profile.folded());
    ensure!(server.requests() == requested, "the server was asked again");
    daemon.stop()
}

/// Names of inlined functions are in a file that several programs share. The program names that
/// file by its build id, as packages of distributions do.
#[test]
fn what_dwz_has_moved_to_a_shared_file_comes_from_a_server_too() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = format!(
        "cc -O2 -g -fno-builtin -Wl,--build-id=sha1 {}/workloads/names/kinds.c -o program -lm
        cp program other
        dwz -m common -M /nowhere/common program other
        objcopy --only-keep-debug program debug
        strip program
        for file in program common; do
            readelf -n $file | sed -n 's/.*Build ID: //p'
        done",
        env!("CARGO_MANIFEST_DIR")
    );
    let made = Command::new("sh").args(["-euc", &script]).current_dir(directory.path()).output()?;
    let ids = String::from_utf8_lossy(&made.stdout).into_owned();
    let ids = ids.split_once('\n').context("two build ids")?;
    let server = |build_id: &str, file: &str| {
        let file = fs::read(directory.path().join(file))?;
        Server::start(build_id.trim(), Behaviour::Sends(file))
    };
    let (own, shared) = (server(ids.0, "debug")?, server(ids.1, "common")?);
    let workload = Workload::start_program(&directory.path().join("program"), &[])?;
    let mut stripped =
        Stripped { workload, build_id: ids.0.to_owned(), debug_file: Vec::new(), directory };
    let daemon = stripped.daemon(&format!("{} {}", own.url(), shared.url()))?;
    stripped.workload.go()?;
    let is_named = |profile: &Profile| {
        ["is_inlined", "is_static"].iter().all(|name| profile.stacks_of(name).next().is_some())
    };
    daemon.profile_where("names", "alloc", &[], is_named)?;
    ensure!(
        (own.requests(), shared.requests()) == (1, 1),
        "{}, {}",
        own.requests(),
        shared.requests()
    );
    daemon.stop()
}

#[test]
fn a_profile_without_a_server_names_the_remedy() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let daemon = stripped.daemon("")?;
    stripped.workload.go()?;
    first(&daemon)?;
    let profile = until_note(&daemon, "--debuginfod URLS")?;
    ensure!(says(&profile, &stripped.build_id), "{:?}", notes(&profile));
    ensure!(!stripped.cache().exists(), "a cache was made");
    daemon.stop()
}

#[test]
fn files_missing_on_all_servers_are_remembered() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let server = Server::start(&stripped.build_id, Behaviour::Misses)?;
    stripped.workload.go()?;
    for _ in 0..2 {
        let daemon = stripped.daemon(&server.url())?;
        until_note(&daemon, "no debuginfod server has their debug information")?;
        status_says(&daemon, "no debug information on any debuginfod server")?;
        daemon.stop()?;
    }
    ensure!(server.requests() == 1, "asked {} times", server.requests());
    ensure!(fs::metadata(stripped.cached())?.len() == 0);
    Ok(())
}

#[test]
fn a_dead_server_is_reported() -> Result<()> {
    let mut stripped = Stripped::start()?;
    // No server listens on this port.
    let daemon = stripped.daemon("http://127.0.0.1:1")?;
    stripped.workload.go()?;
    let profile = until_note(&daemon, "127.0.0.1:1: io: Connection refused")?;
    ensure!(!is_named(&profile));
    status_says(&daemon, "Connection refused")?;
    daemon.stop()
}

#[test]
fn a_file_with_another_build_id_is_refused() -> Result<()> {
    let mut other = Stripped::start()?.debug_file;
    // The build id follows the note's head. Its last byte is changed.
    let note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = other.windows(note.len()).position(|bytes| bytes == note).context("no build id")?;
    other[at + note.len() + 19] ^= 1;
    fails(Behaviour::Sends(other), "another build id")?;
    fails(Behaviour::Sends(b"no ELF file".to_vec()), "no ELF file with a build id")?;
    Ok(())
}

/// A folder that hosts have exported to, on a machine without their program.
#[test]
fn names_of_exported_tables_come_from_a_server() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let folder = stripped.directory.path().join("fleet");
    fs::create_dir(&folder)?;
    let place = format!("parquet:{}", folder.display());
    let arguments = ["--interval", "4KiB", "--export", &place, "--export-every", "1s"];
    let arguments = [&arguments[..], &["--export-names", "server"]].concat();
    let daemon = Daemon::start(&[stripped.workload.pid()], &arguments)?;
    stripped.workload.go()?;
    wait::until("two windows", || {
        let sent = daemon.status()?["exports"][0]["sent"].as_u64();
        Ok((sent > Some(1)).then_some(()))
    })?;
    daemon.stop()?;
    fs::remove_file(stripped.directory.path().join("stripped"))?;
    let symbolize = |urls: &str| {
        let mut command = Command::new(build::program("sampler")?);
        command.env("DEBUGINFOD_CACHE_PATH", stripped.cache()).env("DEBUGINFOD_URLS", urls);
        finish(command.args(["symbolize", "--json", &place]))
    };
    let answer = |urls: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&symbolize(urls)?.success("sampler symbolize")?.stdout)?)
    };
    let is_missing = |outcome: &Value| outcome["not_found"][0]["build_id"] == *stripped.build_id;
    // The files of the C library are here.
    let first = answer("")?;
    ensure!(is_missing(&first), "{first}");
    // No server listens on this port.
    let failed = answer("http://127.0.0.1:1")?;
    ensure!(is_missing(&failed) && failed["limits"].to_string().contains("refused"), "{failed}");
    let behaviour = Behaviour::Sends(stripped.debug_file.clone());
    let server = Server::start(&stripped.build_id, behaviour)?;
    let named = answer(&server.url())?;
    ensure!(named["not_found"] == Value::Array(Vec::new()), "{named}");
    // At least the two functions and main.
    // One file a day, and two around midnight.
    let written = named["written_files"].as_u64();
    ensure!(named["named"].as_u64() > Some(2) && matches!(written, Some(1 | 2)), "{named}");
    let again = answer(&server.url())?;
    ensure!(again["named"] == 0 && again["written_files"] == 0, "{again}");
    if let Some(python) = fleet::python()? {
        let rows = fleet::ask(&python, &folder, "duckdb", &["by_function"])?.remove(0);
        for name in ["honest_inner", "honest_outer", "main"] {
            ensure!(rows.iter().any(|row| row["function"] == name), "no {name} in {rows:?}");
        }
    }
    let invalid = symbolize("ftp://x")?;
    let said = &invalid.stderr;
    ensure!(invalid.code() == 1 && said.lines().count() == 1, "{said}");
    ensure!(said.contains("DEBUGINFOD_URLS: \"ftp://x\""), "{said}");
    Ok(())
}

/// The fetching child has no right with which it could do harm.
#[test]
fn the_debuginfod_client_has_no_privileges() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let server = Server::start(&stripped.build_id, Behaviour::IsSilent)?;
    let daemon = stripped.daemon(&server.url())?;
    stripped.workload.go()?;
    let status = wait::until("a client with a connection", || {
        first(&daemon)?;
        let status =
            client(&daemon)?.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok());
        // The child has its seccomp filter when it connects to the server.
        Ok(status.filter(|status| status.contains("Seccomp:\t2") && server.requests() > 0))
    })?;
    for line in [
        "Uid:\t65532\t65532\t65532\t65532",
        "Gid:\t65532\t65532\t65532\t65532",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        ensure!(status.contains(line), "{line:?} is missing: {status}");
    }
    daemon.stop()?;
    ensure!(server.requests() == 1, "asked {} times", server.requests());
    Ok(())
}

/// The pid of samplerd's child that connects to a server.
fn client(daemon: &Daemon) -> Result<Option<u32>> {
    for task in fs::read_dir(format!("/proc/{}/task", daemon.pid()))?.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() == "samplerd-fetch" {
                return Ok(Some(pid.parse()?));
            }
        }
    }
    Ok(None)
}

#[test]
fn unusable_servers_and_caches_are_refused_in_one_line() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = format!("unix:{}", directory.path().join("socket").display());
    for (urls, code, line) in [
        ("ftp://x", 2, "\"ftp://x\": no URL of a server (give URLs as https://HOST"),
        (
            "http://x",
            1,
            "--debuginfod: make /proc/cache (set DEBUGINFOD_CACHE_PATH to a directory)",
        ),
    ] {
        let mut command = Command::new(build::program("samplerd")?);
        command.args(["--pid", &std::process::id().to_string(), "--listen", &socket]);
        command.args(["--debuginfod", urls]).env("DEBUGINFOD_CACHE_PATH", "/proc/cache");
        let finished = finish(&mut command)?;
        let said = &finished.stderr;
        ensure!(finished.code() == code && said.contains(line), "{}: {said}", finished.code());
    }
    Ok(())
}

#[test]
fn slow_and_silent_servers_time_out() -> Result<()> {
    fails(Behaviour::IsSlow, "timeout")?;
    fails(Behaviour::IsSilent, "timeout")?;
    Ok(())
}

#[test]
fn an_endless_answer_is_cut_at_the_limit() -> Result<()> {
    let (_, server) = fails(Behaviour::IsEndless, "it sends more than 4.00 MiB")?;
    // Some bytes were in transit when the client closed the connection.
    ensure!(server.sent() < 16 * MAX_BYTES, "{} bytes were taken", server.sent());
    Ok(())
}

#[test]
fn an_announced_size_above_the_limit_is_refused() -> Result<()> {
    let (_, server) = fails(Behaviour::Promises(10 << 30), "it wants to send 10.0 GiB")?;
    ensure!(server.sent() < 16 * MAX_BYTES, "{} bytes were taken", server.sent());
    Ok(())
}

#[test]
fn http_errors_and_redirects_are_reported() -> Result<()> {
    let elsewhere =
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\n\r\n";
    fails(Behaviour::Says(elsewhere), "it refers to http://127.0.0.1:1/x (give that server)")?;
    let broken = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    fails(Behaviour::Says(broken), "status 500")?;
    fails(Behaviour::Says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "127.0.0.1")?;
    fails(Behaviour::Says("SSH-2.0-OpenSSH\r\n"), "127.0.0.1")?;
    Ok(())
}
