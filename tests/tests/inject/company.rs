//! Breakpoints of others in the hooked functions come and go while the sampler goes in and out.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::inject::{self, Subject};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{build, wait};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Functions, and the instructions of each that get a breakpoint: hooks lie among the first ones.
const FUNCTIONS: [&str; 4] = ["malloc", "free", "calloc", "realloc"];
const INSTRUCTIONS: usize = 8;
/// How often breakpoints come and go.
const ROUNDS: u64 = 6;

/// What a tool of binutils says.
fn said(tool: &str, arguments: &[&str]) -> Result<String> {
    let finished = finish(Command::new(tool).args(arguments))?.success(tool)?;
    Ok(String::from_utf8(finished.stdout)?)
}

/// Offsets of the first instructions of a function.
fn instructions(libc: &str, function: &str) -> Result<Vec<u64>> {
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
    Ok(offsets)
}

/// A program with a libc of its own, whose breakpoints reach no other process.
fn start(libc: &OwnLibc) -> Result<Subject> {
    let program = build::compile("injected.c", &[])?;
    Subject::spawn("injected.c", libc.command(&program).args(["2", "profiled"]))
}

/// bpftrace with a uprobe at each instruction.
fn breakpoints(libc: &str) -> Result<Child> {
    let mut script = String::new();
    for function in FUNCTIONS {
        for offset in instructions(libc, function)? {
            script += &format!("uprobe:{libc}:{function}+{offset} {{ @hits = count(); }}\n");
        }
    }
    script += "BEGIN { printf(\"attached\\n\"); }\n";
    let mut command = Command::new("bpftrace");
    Child::start("bpftrace", command.args(["-e", &script]).stderr(Stdio::null()))
}

#[test]
fn uprobes_at_every_instruction_come_and_go() -> Result<()> {
    let libc = OwnLibc::copy()?;
    let path = libc.path()?;
    let mut program = start(&libc)?;
    let mut done = 0;
    for round in 0..ROUNDS {
        let mut others = breakpoints(&path)?;
        // At other moments of their coming each time.
        wait::pass(Duration::from_millis(300 * round));
        for _ in 0..8 {
            for verb in ["inject", "eject"] {
                let finished = inject::run(verb, program.pid(), &[])?;
                let line = String::from_utf8_lossy(&finished.stdout).into_owned();
                let is_left_alone = finished.code() != 0
                    && (line.contains("taken")
                        || line.contains("changed")
                        || line.contains("nothing of ours"));
                ensure!(finished.code() == 0 || is_left_alone, "{verb}: {line}{}", finished.stderr);
                done += u32::from(finished.code() == 0);
                program.is_well().with_context(|| format!("round {round}: {line}"))?;
            }
        }
        others.signal(2)?;
        others.wait()?;
        program.is_well()?;
    }
    ensure!(done > 0, "nothing was ever done");
    // When they are gone, everything can be done.
    inject::inject(program.pid(), 4096)?;
    inject::eject(program.pid())?;
    program.is_well()?;
    program.end()
}
