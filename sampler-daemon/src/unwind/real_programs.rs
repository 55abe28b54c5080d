//! Unwinds of programs of the distribution, stopped anywhere, compared with gdb's.

use super::{Image, Modules, Registers, StackMemory, UnwindEnd};
use crate::running::Running;
use sampler_common::share::Holder;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Prints registers and frames of the leaf's caller, and writes 64 KiB of stack.
const STOP: &str = "\
frame = gdb.newest_frame().older()
while frame and frame.type() != gdb.NORMAL_FRAME:
    frame = frame.older()
sp = int(frame.read_register('rsp'))
print('REGISTERS %x %x %x' % (frame.pc(), sp, int(frame.read_register('rbp')) & (2**64 - 1)))
size = 65536
while size:
    try:
        open(dump, 'wb').write(gdb.selected_inferior().read_memory(sp, size))
        break
    except gdb.MemoryError:
        size -= 256
while frame:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print('FRAME %x' % frame.pc())
    frame = frame.older()
";

struct Stop {
    registers: Registers,
    stack: Vec<u8>,
    counters: Vec<u64>,
}

fn stop(pid: u32, dump: &Path) -> Option<Stop> {
    let answer = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &pid.to_string()])
        .args(["-ex", "set backtrace past-main on", "-ex", "set backtrace past-entry on"])
        .args(["-ex", &format!("python dump={dump:?}")])
        .args(["-ex", &format!("python exec({STOP:?})")])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let registers = text.lines().find_map(|line| line.strip_prefix("REGISTERS "))?;
    let registers: Vec<u64> = registers.split(' ').map(hex).collect();
    Some(Stop {
        registers: Registers { ip: registers[0], sp: registers[1], bp: registers[2] },
        stack: fs::read(dump).unwrap(),
        counters: text.lines().filter_map(|line| line.strip_prefix("FRAME ")).map(hex).collect(),
    })
}

/// Compares this many stops of a program; false if it (or gdb) is not installed.
fn compare(command: &[&str], stops: usize) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(child) = child else { return false };
    let pid = child.id();
    let _running = Running(child);
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    let mut modules = Modules::default();
    let mut compared = 0;
    while compared < stops {
        assert!(std::time::Instant::now() < deadline, "{command:?}: only {compared} stops");
        let Some(stop) = stop(pid, &directory.path().join("dump")) else { return compared > 0 };
        // gdb itself may fail at the very start of a program.
        if stop.counters.len() < 4 {
            continue;
        }
        // A program that has just started still maps its libraries, so its mappings are read at
        // each stop.
        let mut image = Image::open(Holder::of_unknown_user(pid), &mut modules).unwrap();
        let stack = StackMemory { start: stop.registers.sp, bytes: &stop.stack, hijacked: None };
        let mut frames = Vec::new();
        let end = image.unwind(&mut modules, stop.registers, stack, &mut frames);
        let resolved: Vec<_> = stop
            .counters
            .iter()
            .map(|counter| {
                [image.resolve(&mut modules, counter - 1), image.resolve(&mut modules, *counter)]
            })
            .collect();
        let equal = frames.len() == resolved.len()
            && frames.iter().zip(&resolved).all(|(frame, either)| either.contains(frame));
        assert!(equal, "{command:?} {end:?}: ours {frames:x?}\ngdb's {:x?}", stop.counters);
        assert_eq!(end, UnwindEnd::Complete);
        compared += 1;
    }
    eprintln!("{}: {compared} stops equal gdb's", command[0]);
    true
}

fn compare_or_say(command: &[&str]) {
    let stops = std::env::var("SAMPLER_GDB_STOPS").ok().and_then(|it| it.parse().ok()).unwrap_or(3);
    if !compare(command, stops) {
        eprintln!("NOTICE: NOT TESTED: {} or gdb with Python is not installed", command[0]);
    }
}

#[test]
fn python() {
    let program = "import json,re\ndef walk(n):\n    return [walk(n-1) for _ in range(2)] if n else \
                   re.sub('a+', lambda m: json.dumps({'k': m.group()}), 'caab')\nwhile True: \
                   sorted(range(50), key=lambda i: len(str(walk(3))))";
    compare_or_say(&["/usr/bin/python3", "-c", program]);
}

#[test]
fn perl() {
    let program = "sub f { my $n = shift; return $n ? join(',', map { f($n-1) } 1..2) : 'x' x 10 } \
                   while (1) { my @a = sort { length(f(3)) <=> length(f(2)) } 1..20 }";
    compare_or_say(&["/usr/bin/perl", "-e", program]);
}

#[test]
fn sqlite() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c where x < 100000000) \
                 select count(*), group_concat(x) from (select x, count(*) from c group by x%1000);";
    compare_or_say(&["/usr/bin/sqlite3", ":memory:", query]);
}
