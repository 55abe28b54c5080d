//! Whole programs under `samplerd --all`, as distributed: a compiler's tree of processes, an
//! interpreter that loads libraries.
//!
//! A preloaded library counts the requests of each process to malloc (`workloads/count.c`). The
//! exact totals of the profile must agree.

use anyhow::{Context, Result, ensure};
use sampler_daemon::store::stacks::Note;
use sampler_tests::{Daemon, build};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Allocations and their bytes, by process id.
type Counts = BTreeMap<u32, (u64, u64)>;

/// Runs `command` to its end under the counting library.
fn counted(command: &mut Command) -> Result<Counts> {
    let library = build::compile("count.c", &["-shared", "-fPIC"])?;
    let directory = tempfile::tempdir().context("make a directory")?;
    let output = command
        .env("LD_PRELOAD", library)
        .env("COUNT_INTO", directory.path())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
    counts(directory.path())
}

fn counts(directory: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for entry in std::fs::read_dir(directory).context("list the counts")? {
        let path = entry.context("list the counts")?.path();
        let pid = path.file_name().and_then(|name| name.to_str()).context("a file by pid")?;
        let line = std::fs::read_to_string(&path).with_context(|| format!("read {pid}"))?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || anyhow::Ok(numbers.next().context("a number")??);
        counts.insert(pid.parse()?, (next()?, next()?));
    }
    Ok(counts)
}

/// Runs `command` under a daemon on all processes. Checks that the exact totals of every process
/// are those counted, and that stacks are whole.
fn agrees(command: &mut Command, names: &[&str]) -> Result<()> {
    // Room for all samples of all processes, however late the daemon reads them.
    let daemon = Daemon::start(&[], &["--all", "--interval", "64KiB", "--ring", "256MiB"])?;
    let counts = counted(command)?;
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    let mut seen = Vec::new();
    for (pid, (objects, bytes)) in &counts {
        let found = processes.iter().find(|process| process["pid"] == *pid);
        let found = found.with_context(|| format!("pid {pid} is not in {listed}"))?;
        let exact = (&found["exact"]["alloc_objects"], &found["exact"]["alloc_space"]);
        ensure!(
            exact.0 == objects && exact.1 == bytes,
            "pid {pid}: {found}, but it counted {objects} allocations of {bytes} bytes"
        );
        seen.push(found["comm"].as_str().unwrap_or_default().to_owned());
    }
    for name in names {
        ensure!(seen.iter().any(|comm| comm == name), "no {name} among {seen:?}");
    }
    stacks_are_whole(&daemon, counts.keys())?;
    daemon.stop()
}

/// What stands at the root of a stack with missing frames.
const CUT: [Note; 4] =
    [Note::LostStacks, Note::TableFull, Note::Truncated, Note::NoUnwindInformation];

/// Checks the stacks of `pids` only: other processes of the machine are sampled as well.
fn stacks_are_whole<'a>(daemon: &Daemon, pids: impl Iterator<Item = &'a u32>) -> Result<()> {
    let (mut sampled, mut whole) = (0, 0);
    for pid in pids {
        let profile = daemon.profile("alloc", &["--pid", &pid.to_string()])?;
        sampled += profile.samples + profile.lost_samples;
        for stack in &profile.stacks {
            let is_cut = CUT.iter().any(|note| stack.contains(note.name()));
            whole += u64::from(!is_cut) * stack.quantities.alloc_space.moments.samples;
        }
    }
    ensure!(sampled > 300 && whole * 100 >= sampled * 99, "{whole} of {sampled} stacks are whole");
    Ok(())
}

const PROGRAM: &str = "#include <iostream>\n#include <map>\n#include <regex>\n\
    int main(int, char **v) {\n\
        std::map<std::string, int> m; std::regex r(\"a+b\");\n\
        m[v[0]] = std::regex_match(v[0], r); std::cout << m.size();\n\
    }\n";

/// g++ starts cc1plus, as, collect2 and ld, each a process of its own.
#[test]
fn a_compiler_and_its_processes_are_counted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("program.cpp");
    std::fs::write(&source, PROGRAM).context("write the program")?;
    let mut command = Command::new("g++");
    command.args(["-O1", "-o"]).arg(directory.path().join("program")).arg(&source);
    agrees(&mut command, &["g++", "cc1plus", "as", "collect2", "ld"])
}

/// Python's modules are libraries that the interpreter loads by `dlopen`, with libraries of their
/// own.
#[test]
fn an_interpreter_with_loaded_libraries_is_counted() -> Result<()> {
    let script = "import ssl, sqlite3, decimal, json, ctypes, bz2, lzma\n\
        d = sqlite3.connect(':memory:')\n\
        d.execute('create table t(a, b)')\n\
        d.executemany('insert into t values (?, ?)', [(i, str(i) * 9) for i in range(50000)])\n\
        x = [json.dumps({'k': [str(i)] * 9}) for i in range(50000)]\n";
    agrees(Command::new("/usr/bin/python3").args(["-c", script]), &["python3"])
}
