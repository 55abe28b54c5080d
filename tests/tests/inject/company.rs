//! Breakpoints of other programs in the hooked functions come and go during injections and
//! ejections.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::inject::{self, Subject};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{breakpoints, build, wait};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Functions, and how many instructions of each get a breakpoint. Hooks are among the first
/// instructions.
const FUNCTIONS: [&str; 4] = ["malloc", "free", "calloc", "realloc"];
const INSTRUCTIONS: usize = 8;
/// How often breakpoints come and go.
const ROUNDS: u64 = 6;
/// How often a debugger attaches during injections and ejections.
const VISITS: u32 = 4;
/// Number of breakpoints at which the debugger stops each time.
const STOPS: u32 = 300;

/// Output of a tool of binutils.
fn said(tool: &str, arguments: &[&str]) -> Result<String> {
    let finished = finish(Command::new(tool).args(arguments))?.success(tool)?;
    Ok(String::from_utf8(finished.stdout)?)
}

/// Address of a function in the file, and offsets of its first instructions.
fn instructions(libc: &str, function: &str) -> Result<(u64, Vec<u64>)> {
    let symbols = said("nm", &["--dynamic", libc])?;
    let is_it = |line: &&str| line.contains(&format!(" {function}@@"));
    let symbol = symbols.lines().find(is_it).with_context(|| function.to_owned())?;
    let first = u64::from_str_radix(symbol.split(' ').next().unwrap_or_default(), 16)?;
    let [from, to] = [("start", first), ("stop", first + 64)]
        .map(|(which, address)| format!("--{which}-address={address:#x}"));
    let text = said("objdump", &["--disassemble", "--no-show-raw-insn", &from, &to, libc])?;
    let address = |line: &str| u64::from_str_radix(line.trim().split_once(":\t")?.0, 16).ok();
    let addresses = text.lines().filter_map(address).take(INSTRUCTIONS);
    let offsets: Vec<u64> = addresses.map(|address| address - first).collect();
    ensure!(offsets.len() == INSTRUCTIONS && offsets[0] == 0, "{function}: {text}");
    Ok((first, offsets))
}

/// A program with a libc of its own, whose breakpoints affect no other process.
pub(crate) fn start(libc: &OwnLibc, arguments: &[&str]) -> Result<Subject> {
    let program = build::compile("injected.c", &[])?;
    Subject::spawn("injected.c", libc.command(&program).args(arguments))
}

/// bpftrace with a uprobe at each instruction.
fn breakpoints(libc: &str) -> Result<Child> {
    let mut script = String::new();
    for function in FUNCTIONS {
        for offset in instructions(libc, function)?.1 {
            script += &format!("uprobe:{libc}:{function}+{offset} {{ @hits = count(); }}\n");
        }
    }
    script += "BEGIN { printf(\"attached\\n\"); }\n";
    let mut command = Command::new("bpftrace");
    Child::start("bpftrace", command.args(["-e", &script]).stderr(Stdio::null()))
}

/// Whether an operation was done. Otherwise checks that the injector refused for one of `reasons`.
fn is_done(verb: &str, pid: u32, reasons: &[&str]) -> Result<bool> {
    let finished = inject::run(verb, pid, &[])?;
    let line = String::from_utf8_lossy(&finished.stdout).into_owned();
    let is_done = finished.code() == 0;
    let is_left_alone = reasons.iter().any(|reason| line.contains(reason));
    ensure!(is_done || is_left_alone, "{verb}: {line}{}", finished.stderr);
    Ok(is_done)
}

#[test]
fn injection_survives_changing_uprobes_at_every_instruction() -> Result<()> {
    let libc = OwnLibc::copy()?;
    let path = libc.path()?;
    let mut program = start(&libc, &["2", "profiled"])?;
    let mut done = 0;
    for round in 0..ROUNDS {
        let mut others = breakpoints(&path)?;
        // Each round begins at another moment of the breakpoints' attachment.
        wait::pass(Duration::from_millis(300 * round));
        for _ in 0..8 {
            for verb in ["inject", "eject"] {
                let reasons = ["taken", "changed", "nothing of ours"];
                done += u32::from(is_done(verb, program.pid(), &reasons)?);
                program.is_well().with_context(|| format!("round {round}, {verb}"))?;
            }
        }
        others.signal(2)?;
        others.wait()?;
        program.is_well()?;
    }
    ensure!(done > 0, "nothing was ever done");
    // Without breakpoints every operation succeeds.
    inject::inject(program.pid(), 4096)?;
    inject::eject(program.pid())?;
    program.is_well()?;
    program.end()
}

/// Lets gdb stop at each of the instructions for a while, and detach. Returns whether gdb could
/// attach: an injector may be tracing the process.
fn debug(pid: u32, libc: &str) -> Result<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("read the mappings")?;
    let first = maps.lines().find(|line| line.ends_with(libc)).context("no libc")?;
    let base = u64::from_str_radix(first.split('-').next().unwrap_or_default(), 16)?;
    let mut places = Vec::new();
    for function in FUNCTIONS {
        let (address, offsets) = instructions(libc, function)?;
        places.extend(offsets.iter().map(|offset| base + address + offset));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/breakpoints.py");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-p", &pid.to_string(), "-ex", &format!("source {script}")]);
    let finished = finish(gdb.args(["-ex", &format!("python run({places:?}, {STOPS})")]))?;
    let text = String::from_utf8_lossy(&finished.stdout);
    let is_done = text.lines().any(|line| line == format!("{STOPS} stops"));
    let is_busy = finished.stderr.contains("ptrace: Operation not permitted");
    ensure!(is_done || is_busy, "gdb: {text}{}", finished.stderr);
    Ok(is_done)
}

#[test]
fn a_debugger_stops_at_every_instruction() -> Result<()> {
    let libc = OwnLibc::copy()?;
    let path = libc.path()?;
    let mut program = start(&libc, &["2"])?;
    let pid = program.pid();
    for is_in in [false, true] {
        if is_in {
            inject::inject(pid, 4096)?;
        }
        let hooks = breakpoints::changed(pid, &path)?;
        ensure!((hooks > 0) == is_in, "{hooks} bytes are changed");
        ensure!(debug(pid, &path)?, "gdb cannot attach");
        ensure!(breakpoints::changed(pid, &path)? == hooks, "gdb has left something");
        program.is_well()?;
    }
    inject::eject(pid)?;
    ensure!(breakpoints::changed(pid, &path)? == 0, "something was left");
    program.is_well()?;
    program.end()
}

#[test]
fn injection_survives_attaching_debuggers() -> Result<()> {
    let libc = OwnLibc::copy()?;
    let path = libc.path()?;
    let mut program = start(&libc, &["2"])?;
    let pid = program.pid();
    let ends = AtomicBool::new(false);
    let done = std::thread::scope(|scope| -> Result<u32> {
        let visits = scope.spawn(|| {
            let visit = || Ok(debug(pid, &path)?.then_some(()));
            let visited = (0..VISITS).try_for_each(|_| wait::until("a visit of gdb", visit));
            ends.store(true, Ordering::Relaxed);
            visited
        });
        let mut done = 0;
        while !ends.load(Ordering::Relaxed) {
            for verb in ["inject", "eject"] {
                let reasons = ["traces it", "cannot be traced", "nothing of ours"];
                done += u32::from(is_done(verb, pid, &reasons)?);
            }
        }
        visits.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        Ok(done)
    })?;
    println!("{done} operations between {VISITS} visits of gdb");
    ensure!(done > 0, "nothing was ever done");
    inject::inject(pid, 4096)?;
    inject::eject(pid)?;
    ensure!(breakpoints::changed(pid, &path)? == 0, "something was left");
    program.is_well()?;
    program.end()
}
