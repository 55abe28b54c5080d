//! The profiled programs, each with a round of work that it does on command.

use crate::scratch::Variable;
use anyhow::{Context, Result, bail};
use sampler_tests::build;
use sampler_tests::progress::Progress;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Pairs of malloc and free on one thread.
    Pairs,
    /// Pairs of malloc and free on two threads.
    PairsTwo,
    /// sqlite3: tables, an index and a join.
    Sqlite,
    /// jq on a document.
    Jq,
    /// perl: hashes, sorting, regular expressions.
    Perl,
    /// python3: json, a syntax tree, text.
    Python,
    /// python3 with every object from malloc.
    PythonMalloc,
    /// redis-server under redis-benchmark.
    Redis,
    /// The C++ compiler proper.
    Compiler,
}

/// Measures each workload of a part of the benchmark, with a bar. A workload that fails is named
/// and left out.
pub(crate) fn each<T>(
    workloads: &[Workload],
    part: &'static str,
    mut measure: impl FnMut(Workload) -> Result<T>,
) -> Vec<T> {
    let progress = Progress::of(part, workloads.len());
    let mut all = Vec::new();
    for workload in workloads {
        match measure(*workload) {
            Ok(of) => all.push(of),
            Err(error) => progress.say(format_args!("{}: {error:#}", workload.name())),
        }
        progress.done();
    }
    all
}

/// How a program is asked to work, and how it reports the end of a round.
pub(crate) enum Protocol {
    /// The program reads these lines and answers with one line.
    Lines {
        /// The lines.
        input: String,
        /// Whether the program prints a line before the first round.
        greets: bool,
    },
    /// redis-benchmark connects to the program's socket.
    Redis,
    /// The program reads a source from its standard input, and ends: each round is a process.
    Source(String),
}

/// How a program is started.
pub(crate) struct Start {
    /// File and arguments.
    pub(crate) command: Vec<String>,
    /// Environment added to the inherited one.
    pub(crate) environment: Vec<Variable>,
    /// Protocol of a round.
    pub(crate) protocol: Protocol,
}

impl Workload {
    /// All workloads, in the order of the tables.
    pub(crate) const ALL: [Workload; 9] = [
        Workload::Pairs,
        Workload::PairsTwo,
        Workload::Sqlite,
        Workload::Jq,
        Workload::Perl,
        Workload::Python,
        Workload::PythonMalloc,
        Workload::Redis,
        Workload::Compiler,
    ];

    /// Name in tables and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Pairs => "pairs",
            Workload::PairsTwo => "pairs-2",
            Workload::Sqlite => "sqlite3",
            Workload::Jq => "jq",
            Workload::Perl => "perl",
            Workload::Python => "python3",
            Workload::PythonMalloc => "python3-malloc",
            Workload::Redis => "redis-server",
            Workload::Compiler => "cc1plus",
        }
    }

    /// The workload with this name.
    ///
    /// # Errors
    /// If there is no such workload.
    pub(crate) fn named(name: &str) -> Result<Workload> {
        let names = Workload::ALL.map(Workload::name).join(", ");
        let found = Workload::ALL.into_iter().find(|of| of.name() == name);
        found.with_context(|| format!("no workload {name:?} (there are {names})"))
    }

    /// How the workload is started. `templates` is the number of templates that the compiler
    /// instantiates; `socket` is where a server may listen.
    ///
    /// # Errors
    /// If the program is not installed or does not compile.
    pub(crate) fn start(self, templates: u32, socket: &Path) -> Result<Start> {
        let lines = |command: &[&str], input: String| Start {
            command: owned(command),
            environment: Vec::new(),
            protocol: Protocol::Lines { input, greets: false },
        };
        let script = |name: &str| format!("{}/benches/{name}", env!("CARGO_MANIFEST_DIR"));
        Ok(match self {
            Workload::Pairs | Workload::PairsTwo => {
                let threads = if self == Workload::Pairs { "1" } else { "2" };
                let program = build::compile_bench("pairs.c")?.display().to_string();
                lines(&[&program, threads], "20000".to_owned())
            }
            Workload::Sqlite => lines(&[installed("/usr/bin/sqlite3")?], SQL.to_owned()),
            Workload::Jq => {
                lines(&[installed("/usr/bin/jq")?, "-c", "--unbuffered", FILTER], document())
            }
            Workload::Perl => {
                lines(&[installed("/usr/bin/perl")?, &script("work.pl")], "1".to_owned())
            }
            Workload::Python | Workload::PythonMalloc => {
                let malloc = ("PYTHONMALLOC", "malloc".to_owned());
                Start {
                    command: owned(&[installed("/usr/bin/python3")?, &script("blocks.py")]),
                    environment: (self == Workload::PythonMalloc)
                        .then_some(malloc)
                        .into_iter()
                        .collect(),
                    protocol: Protocol::Lines { input: "1".to_owned(), greets: true },
                }
            }
            Workload::Redis => {
                let socket = socket.display().to_string();
                let options = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"];
                let program = [installed("/usr/bin/redis-server")?];
                Start {
                    command: owned(&[&program[..], &options, &[&socket]].concat()),
                    environment: Vec::new(),
                    protocol: Protocol::Redis,
                }
            }
            Workload::Compiler => {
                let options = ["-quiet", "-O1", "-imultiarch", "x86_64-linux-gnu", "-"];
                let compiler = compiler()?.display().to_string();
                Start {
                    command: owned(&[&[&*compiler][..], &options, &["-o", "/dev/null"]].concat()),
                    environment: Vec::new(),
                    protocol: Protocol::Source(source(templates)),
                }
            }
        })
    }
}

fn owned(command: &[&str]) -> Vec<String> {
    command.iter().map(|part| (*part).to_owned()).collect()
}

fn installed(path: &str) -> Result<&str> {
    if !Path::new(path).is_file() {
        bail!("{path} is not installed");
    }
    Ok(path)
}

/// The compiler proper, which `g++` runs.
fn compiler() -> Result<PathBuf> {
    let output = Command::new("g++").arg("-print-prog-name=cc1plus").output().context("run g++")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !path.is_file() {
        bail!("g++ names no compiler: {}", path.display());
    }
    Ok(path)
}

/// A round of sqlite3. Closing the file that `.once` opens flushes the answer.
const SQL: &str = "DROP TABLE IF EXISTS t;
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, part INTEGER);
INSERT INTO t WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000) \
SELECT x, 'name ' || x, x % 97 FROM c;
CREATE INDEX by_part ON t(part);
.once /dev/stdout
SELECT sum(length(upper(a.name) || b.name)) FROM t a JOIN t b ON a.part = b.part WHERE a.id < 500;";

/// The filter that jq applies to a document.
const FILTER: &str = "[.items[] | select(.id % 2 == 0) \
    | {id, name: (.name | ascii_upcase), tags: (.tags | length), all: (.tags | join(\",\"))}] \
    | group_by(.tags) | map(length)";

/// A document of one line.
fn document() -> String {
    let item = |id: u32| {
        let (a, b) = (id % 7, id % 11);
        format!(r#"{{"id":{id},"name":"item {id}","tags":["a{a}","b{b}","c"],"at":{id}.25}}"#)
    };
    let items: Vec<String> = (0..1500).map(item).collect();
    format!(r#"{{"items":[{}]}}"#, items.join(","))
}

/// The source that the compiler compiles.
const SOURCE: &str = "#include <map>
#include <string>
#include <vector>
#include <algorithm>
template <int N> struct Table {
    std::map<std::string, std::vector<int>> rows;
    int sum() const { int s = N; for (auto &r : rows) for (int x : r.second) s += x; return s; }
    void add(const std::string &k, int x) { rows[k].push_back(x * N); }
    void order() { for (auto &r : rows) std::sort(r.second.begin(), r.second.end(), \
[](int a, int b) { return (a ^ N) < (b ^ N); }); }
};
";

fn source(templates: u32) -> String {
    let instances = (1..=templates).map(|n| format!("template struct Table<{n}>;\n"));
    instances.fold(SOURCE.to_owned(), |source, instance| source + &instance)
}
