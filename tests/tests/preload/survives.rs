//! Programs behave and print the same with the library as without it, while every few bytes are
//! sampled and a daemon listens.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::{Daemon, build, preload};
use std::path::Path;
use std::process::Command;

/// Mean bytes between samples. At this interval every path is taken many times.
const INTERVAL: u64 = 512;

const CASES: &[&str] =
    &["life", "fork", "vfork", "spawn", "exec", "threads", "signals", "calls", "errno"];

/// A daemon that listens to every process that loads the library, from its first allocation on.
fn listener(pid: u32) -> Result<Daemon> {
    let library = preload::library()?.display().to_string();
    Daemon::start(&[pid], &["--follow", "--samplers-only", "--probe-file", &library])
}

/// Runs `command` under `sampler run --preload`.
fn run(interval: u64, command: &[&str]) -> Result<Command> {
    build::require_root()?;
    let mut run = Command::new(build::program("sampler")?);
    run.args(["run", "--preload", "--max-samples-per-process", "unlimited"]);
    run.args(["--interval", &interval.to_string(), "-o", "/dev/null", "--"]);
    run.args(command);
    Ok(run)
}

fn program() -> Result<String> {
    Ok(build::compile("preload.c", &[])?.display().to_string())
}

/// Checks that exit code and output are equal without and with the library.
fn is_the_same(command: &[&str], allocator: Option<&str>) -> Result<()> {
    let (name, arguments) = command.split_first().context("a command")?;
    let alone = finish(Command::new(name).args(arguments))?;
    let mut sampled = run(INTERVAL, command)?;
    if let Some(allocator) = allocator {
        sampled.env("LD_PRELOAD", Path::new("/usr/lib/x86_64-linux-gnu").join(allocator));
    }
    let sampled = finish(&mut sampled)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        (alone.code(), &alone.stdout) == (sampled.code(), &sampled.stdout),
        "{command:?} {allocator:?}: {} {}, alone {} {}: {}",
        sampled.code(),
        said(&sampled.stdout),
        alone.code(),
        said(&alone.stdout),
        sampled.stderr
    );
    ensure!(alone.code() == 0, "{command:?} alone: {}", alone.stderr);
    Ok(())
}

#[test]
fn processes_and_threads_run_as_without_the_library() -> Result<()> {
    let program = program()?;
    CASES.iter().try_for_each(|case| is_the_same(&[&program, case], None))
}

#[test]
fn other_allocators_run_as_without_the_library() -> Result<()> {
    let program = program()?;
    for allocator in preload::ALLOCATORS {
        // Debian's mimalloc does not report the usable size of aligned blocks, without the library
        // either.
        let knows_sizes = !allocator.contains("mimalloc");
        let cases = ["life", "fork", "threads"].into_iter().chain(knows_sizes.then_some("calls"));
        for case in cases {
            is_the_same(&[&program, case], Some(allocator))?;
        }
    }
    Ok(())
}

#[test]
fn programs_that_load_libraries_run_as_without_it() -> Result<()> {
    let library = build::compile("library.c", &["-shared", "-fPIC"])?.display().to_string();
    is_the_same(&[&program()?, "dlopen", &library], None)
}

/// The programs of a small Debian system.
#[test]
fn programs_print_the_same_as_without_the_library() -> Result<()> {
    let python = "import json,re\nd=[{'k%d'%i:[i]*9} for i in range(9000)]\nprint(len(json.dumps(d)),len(re.findall('k1',str(d))))";
    let node = "const a=[];for(let i=0;i<50000;i++)a.push({i,s:'x'.repeat(i%100)});console.log(JSON.stringify(a).length, Buffer.alloc(1<<20,1).toString('hex').length)";
    let git = "d=$(mktemp -d) && trap 'rm -rf $d' EXIT && cd $d && git init -q && seq 9000 > a && git add a && git -c user.name=a -c user.email=a@b commit -qm one && seq 3 2 9001 > a && git diff | md5sum && git log --format=%s --stat";
    let perl = "my %h; $h{$_ x 3}=[1..9] for 1..20000; print scalar(keys %h), \"\\n\"";
    let sql = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<30000) insert into t select x, hex(x*7) from c; create index i on t(b); select count(*), sum(length(b)) from t; pragma integrity_check";
    for command in [
        &["bash", "-c", "for i in {1..300}; do a[$i]=$(echo $i); done; echo ${a[@]} | md5sum"][..],
        &["ls", "-lR", "/usr/share/perl"],
        &["sort", "-r", "/etc/services"],
        &["git", "--help"],
        &["bash", "-c", git],
        &["awk", "{ a[NR] = $0 } END { for (i = NR; i > 0; i--) print a[i] }", "/etc/services"],
        &["node", "-e", node],
        &["perl", "-e", perl],
        &["python3", "-c", python],
        &["sqlite3", ":memory:", sql],
        &[
            "gcc",
            "-O1",
            "-S",
            "-o",
            "-",
            "-x",
            "c",
            concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/library.c"),
        ],
    ] {
        is_the_same(command, None)?;
    }
    Ok(())
}

/// The compiler proper: its output has the same bytes.
#[test]
fn a_compiler_makes_the_same_code() -> Result<()> {
    let script = "printf '#include <map>\n#include <string>\nstd::map<std::string,int> m;int f(const char*k){return m[k]++;}' | g++ -O1 -S -x c++ -o - -";
    is_the_same(&["bash", "-c", script], None)
}

/// A server that holds data of its clients: the digest of all its data is the same.
#[test]
fn a_server_has_the_same_contents() -> Result<()> {
    is_the_same(&["bash", "-c", REDIS], None)
}

/// Fills a redis-server of its own, deletes some keys and asks for the digest. The script waits for
/// the server's socket.
const REDIS: &str = r#"
d=$(mktemp -d) && trap 'rm -rf $d' EXIT
redis-server --port 0 --unixsocket $d/s --save '' --appendonly no --enable-debug-command yes > $d/log &
ask() { redis-cli -s $d/s "$@"; }
for i in {1..600}; do ask ping > $d/pong 2>&1 && break; sleep 0.05; done
set -e
grep -q PONG $d/pong
ask eval "for i=1,8000 do local v=string.rep('x',i%700)
redis.call('set','s'..i,v) redis.call('hset','h'..i%50,i,v) redis.call('rpush','l'..i%9,v) redis.call('zadd','z',i,i) redis.call('sadd','t'..i%7,v)
if i%3==0 then redis.call('del','s'..i-1) end end return redis.call('dbsize')" 0
ask debug digest | grep -Ev '^0+$' | grep -E '^[0-9a-f]{40}$'
ask shutdown nosave
wait
"#;

/// The program is killed while its threads allocate. Nothing hangs, and the next program is sampled
/// as usual.
#[test]
fn a_program_may_be_killed_at_any_time() -> Result<()> {
    let program = build::compile("preload.c", &[])?;
    let daemon = listener(std::process::id())?;
    for round in 0..12u64 {
        let mut command = Command::new(&program);
        preload::preload(command.arg("busy"), INTERVAL, None)?;
        let mut child = Child::start("busy", &mut command)?;
        ensure!(child.line()? == "busy");
        let pid = child.pid().to_string();
        // The program has samples by now. The kill comes at another moment each time.
        daemon.profile_where("its samples", "alloc", &["--pid", &pid], |of| {
            of.samples > round * 20
        })?;
        child.signal(9)?;
        child.wait()?;
    }
    ensure!(daemon.status()?["outcomes"].is_array() || daemon.status()?["outcomes"].is_object());
    daemon.stop()
}
