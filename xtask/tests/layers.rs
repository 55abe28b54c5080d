//! Each layer knows only what lies below it: words that must not be written outside their folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Words of the programs' sources, and the folders (or files) that may use them. A word ending in
/// `::` is the beginning of a path.
struct Rule {
    why: &'static str,
    words: &'static [&'static str],
    searched: &'static [&'static str],
    allowed: &'static [&'static str],
}

const PROGRAMS: &[&str] = &["sampler-common/src", "sampler-daemon/src", "sampler-ebpf/src"];

const RULES: &[Rule] = &[
    Rule {
        why: "protocol types stay at the edge",
        words: &["tonic", "v1::"],
        searched: PROGRAMS,
        allowed: &[
            "sampler-daemon/src/export/grpc_client.rs",
            "sampler-daemon/src/rpc",
            "sampler-daemon/src/bin/sampler",
        ],
    },
    Rule {
        why: "protobuf is for the protocol and for file formats that are made of it",
        words: &["prost", "sampler_messages"],
        searched: PROGRAMS,
        allowed: &[
            "sampler-daemon/src/rpc",
            "sampler-common/src/encode/otlp",
            "sampler-common/src/encode/perfetto",
            "sampler-common/src/encode/pprof",
        ],
    },
    Rule {
        why: "Parquet is one format among others",
        words: &["parquet::"],
        searched: PROGRAMS,
        allowed: &["sampler-common/src/encode/tables"],
    },
    Rule {
        why: "the kernel side is asked through bpf/",
        words: &["aya", "aya_log", "aya_obj"],
        searched: PROGRAMS,
        allowed: &["sampler-daemon/src/bpf"],
    },
    Rule {
        why: "only the table of links attaches and detaches",
        words: &["Points", "UsdtPoint", "begin_close"],
        searched: &["sampler-daemon/src"],
        allowed: &["sampler-daemon/src/bpf", "sampler-daemon/src/links"],
    },
    Rule {
        why: "a layer names no layer above it",
        words: &["pipeline::", "store::", "rpc::", "http::"],
        searched: &["sampler-daemon/src/links"],
        allowed: &[],
    },
    Rule {
        why: "a layer names no layer above it, nor one beside it",
        words: &["pipeline::", "store::", "rpc::", "http::", "bpf::", "links::"],
        searched: &["sampler-daemon/src/parser"],
        allowed: &[],
    },
    Rule {
        why: "a layer names no layer above it, nor one beside it",
        words: &["pipeline::", "store::", "rpc::", "bpf::", "links::"],
        searched: &["sampler-daemon/src/debuginfod"],
        allowed: &[],
    },
    Rule {
        why: "debuginfod servers are asked in one place",
        words: &["ureq"],
        searched: PROGRAMS,
        allowed: &["sampler-daemon/src/debuginfod"],
    },
    Rule {
        why: "certificates are checked where connections to others are made",
        words: &["rustls", "rustls_native_certs"],
        searched: PROGRAMS,
        allowed: &[
            "sampler-daemon/src/debuginfod",
            "sampler-daemon/src/export/backend.rs",
            "sampler-daemon/src/export/tls.rs",
        ],
    },
    Rule {
        why: "files of other users are read up to a bound",
        words: &["ReadCache"],
        searched: &["sampler-daemon/src", "sampler-inject/src"],
        // The memory of the parser's process and of the injector is limited.
        allowed: &[
            "sampler-daemon/src/bounded_file.rs",
            "sampler-daemon/src/symbolize",
            "sampler-inject/src/elf.rs",
        ],
    },
    Rule {
        why: "names are read from files in one place",
        words: &["addr2line", "blazesym", "cpp_demangle", "rustc_demangle"],
        searched: &["sampler-daemon/src"],
        allowed: &["sampler-daemon/src/symbolize"],
    },
    Rule {
        why: "and by the parser's process alone",
        words: &["symbolize::elf"],
        searched: &["sampler-daemon/src"],
        allowed: &["sampler-daemon/src/parser/serve.rs"],
    },
    Rule {
        why: "unsafe code is only at the kernel's boundary",
        words: &["unsafe"],
        searched: &["sampler-common", "sampler-daemon", "sampler-inject/src", "tests", "xtask/src"],
        // A handler of SIGSYS answers the system calls that the parser may not make. The allocator's
        // options are a C interface. A workload calls malloc, as code in C does.
        allowed: &[
            "sampler-daemon/src/bin/samplerd/allocator.rs",
            "sampler-daemon/src/bpf",
            "sampler-daemon/src/parser/trap.rs",
            "sampler-inject/src/kernel.rs",
            "tests/src/bin/rust-jemalloc/heap.rs",
        ],
    },
    Rule {
        why: "only the injector stops and changes other processes, and it asks the kernel in one place",
        words: &["ptrace", "SYS_ptrace", "PTRACE_SEIZE"],
        searched: &[
            "sampler-common/src",
            "sampler-daemon/src",
            "sampler-inject/src",
            "sampler-preload/src",
            "tests/src",
            "xtask/src",
        ],
        allowed: &["sampler-inject/src/kernel.rs"],
    },
    Rule {
        why: "the preloaded library's table, filter and arithmetic need none",
        words: &["unsafe"],
        searched: &["sampler-preload/src"],
        allowed: &[
            "sampler-preload/src/boot.rs",
            "sampler-preload/src/clock.rs",
            "sampler-preload/src/entry.rs",
            "sampler-preload/src/file.rs",
            "sampler-preload/src/first.rs",
            "sampler-preload/src/heap.rs",
            "sampler-preload/src/float.rs",
            "sampler-preload/src/fork.rs",
            "sampler-preload/src/inject.rs",
            "sampler-preload/src/inside.rs",
            "sampler-preload/src/load.rs",
            "sampler-preload/src/new.rs",
            "sampler-preload/src/next.rs",
            "sampler-preload/src/next_allocator.rs",
            "sampler-preload/src/operators.rs",
            "sampler-preload/src/pages.rs",
            "sampler-preload/src/probes.rs",
            "sampler-preload/src/release.rs",
            "sampler-preload/src/settings.rs",
            "sampler-preload/src/start.rs",
            "sampler-preload/src/thread.rs",
        ],
    },
    Rule {
        why: "the preloaded library asks nobody for anything, but the kernel for small pages",
        words: &["libc::", "std::fs", "std::env", "std::sync::Mutex", "syscall"],
        searched: &["sampler-preload/src"],
        allowed: &["sampler-preload/src/pages.rs"],
    },
    Rule {
        why: "what decides where a process is hooked is pure, so that it can be tested offline",
        words: &["unsafe", "std::fs", "std::process", "std::io", "File", "ptrace", "Instant"],
        searched: &[
            "sampler-inject/src/filter",
            "sampler-inject/src/plan",
            "sampler-inject/src/prologue",
        ],
        allowed: &[],
    },
    Rule {
        why: "the mathematics does no I/O and has no clock",
        words: &[
            "std::fs",
            "std::net",
            "std::env",
            "std::process",
            "Instant",
            "SystemTime",
            "stdout",
            "stderr",
            "println",
            "eprintln",
            "libc",
            "tokio",
        ],
        searched: &["sampler-common/src"],
        // Golden files of the tests.
        allowed: &["sampler-common/src/encode/fixture.rs", "sampler-common/src/encode/large.rs"],
    },
    Rule {
        why: "files and /proc are read in bpf/, inspect/, unwind/ and symbolize/",
        words: &["std::fs", "fs::", "File", "procfs", "libc"],
        searched: &["sampler-daemon/src/pipeline", "sampler-daemon/src/store"],
        // A test that unwinds by a file that lies beside it.
        allowed: &["sampler-daemon/src/pipeline/recorded"],
    },
    Rule {
        why: "a synchronous library: async only at the edge and in the worker's channels",
        words: &["tokio"],
        searched: &["sampler-daemon/src"],
        allowed: &[
            // The part of the edge that rpc/ and http/ share.
            "sampler-daemon/src/accept.rs",
            "sampler-daemon/src/rpc",
            "sampler-daemon/src/bin",
            "sampler-daemon/src/export",
            "sampler-daemon/src/http",
            "sampler-daemon/src/pipeline",
        ],
    },
    Rule {
        why: "HTTP stays at the edge",
        words: &["axum", "hyper", "percent_encoding"],
        searched: PROGRAMS,
        allowed: &["sampler-daemon/src/export", "sampler-daemon/src/http"],
    },
    Rule {
        why: "nothing below the edge knows that profiles are pushed",
        words: &["export::"],
        searched: &["sampler-common/src", "sampler-daemon/src"],
        allowed: &[
            "sampler-daemon/src/bin/sampler/names.rs",
            "sampler-daemon/src/bin/samplerd",
            "sampler-daemon/src/export",
            "sampler-daemon/src/http",
            "sampler-daemon/src/rpc",
        ],
    },
    Rule {
        why: "the client knows the protocol and nothing else of the daemon",
        words: &["bpf::", "pipeline::", "store::", "symbolize::", "inspect::", "unwind::"],
        searched: &["sampler-daemon/src/bin/sampler"],
        allowed: &[],
    },
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether `word` stands in the code of `line` and is no part of a longer word.
fn uses(line: &str, word: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let ends = word.ends_with("::") || !after.is_some_and(in_word);
        !before.is_some_and(in_word) && ends
    })
}

/// Where `rule` is broken, as `file:line: code`.
fn breaches(rule: &Rule) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for folder in rule.searched {
        sources(&root().join(folder), &mut files)?;
    }
    let allowed: Vec<PathBuf> = rule.allowed.iter().map(|folder| root().join(folder)).collect();
    let mut breaches = Vec::new();
    for file in files {
        if allowed.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        for (number, line) in text.lines().enumerate() {
            if rule.words.iter().any(|word| uses(line, word)) {
                breaches.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    Ok(breaches)
}

#[test]
fn layers_know_only_what_lies_below() -> io::Result<()> {
    let mut broken = Vec::new();
    for rule in RULES {
        let breaches = breaches(rule)?;
        if !breaches.is_empty() {
            broken.push(format!("{}:\n  {}", rule.why, breaches.join("\n  ")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// A folder that was renamed must not make a rule empty.
#[test]
fn every_exception_to_a_rule_exists_and_is_needed() -> io::Result<()> {
    for rule in RULES {
        for place in rule.allowed {
            assert!(root().join(place).exists(), "{place} is gone ({})", rule.why);
        }
        let open = Rule { allowed: &[], ..*rule };
        assert_eq!(breaches(&open)?.is_empty(), rule.allowed.is_empty(), "{}", rule.why);
    }
    Ok(())
}

#[test]
fn only_whole_words_are_found() {
    assert!(uses("use tonic::Status;", "tonic"));
    assert!(uses("x: crate::rpc::v1::Kind,", "v1::"));
    assert!(!uses("use tonic_health::X;", "tonic"));
    assert!(!uses("// unsafe", "unsafe"));
    assert!(!uses("#[allow(unsafe_code)]", "unsafe"));
}
