//! Blind spots of a process that do not depend on its allocator. Such are programs of another word
//! size, and runtimes that map the memory of their objects themselves and never call `malloc` for
//! it.

use super::process::environment::variable;
use super::process::program;
use sampler_common::note::BlindSpot;

/// A runtime with a heap of its own.
struct Runtime {
    /// Beginnings of the file names of its executable or library.
    files: &'static [&'static str],
    /// What is not seen.
    blind_spot: &'static str,
}

const RUNTIMES: &[Runtime] = &[
    Runtime {
        files: &["libjvm.so", "libj9vm"],
        blind_spot: "the Java heap is mapped by the JVM: only what native code allocates is seen",
    },
    Runtime {
        files: &[
            "node",
            "nodejs",
            "libnode.so",
            "libv8.so",
            "deno",
            "chrome",
            "chromium",
            "electron",
        ],
        blind_spot: "JavaScript objects live in V8's own heap: only what native code allocates is seen",
    },
    Runtime {
        files: &["libcoreclr.so", "libclrgc.so", "libmono"],
        blind_spot: "the .NET heap is mapped by its runtime: only what native code allocates is seen",
    },
    Runtime {
        files: &["php", "libphp"],
        blind_spot: "PHP values live in chunks that PHP maps: only what native code allocates is seen (USE_ZEND_ALLOC=0 shows them)",
    },
    Runtime {
        files: &["beam.smp"],
        blind_spot: "Erlang terms live in carriers that the BEAM maps: only what is above their size is seen",
    },
];
/// Python's small objects, unless Python is set to use malloc.
const PYTHON: &str = "Python's objects up to 512 bytes live in arenas that it maps: not seen (PYTHONMALLOC=malloc shows them)";
const THIRTY_TWO_BIT: &str = "a 32-bit process: only 64-bit ones can be probed";

/// Completes the blind spots of process `pid`, which has code mapped from the files at `paths`.
pub(super) fn complete<'a>(
    pid: u32,
    paths: impl Iterator<Item = &'a str>,
    blind_spots: &mut Vec<BlindSpot>,
) {
    let paths: Vec<&str> = paths.collect();
    // Every file that could not be read or has no malloc has a line already. In a 32-bit process,
    // one line replaces them all.
    if !blind_spots.is_empty() && program::is_32_bit(pid).unwrap_or(false) {
        *blind_spots = vec![THIRTY_TWO_BIT.into()];
        return;
    }
    blind_spots.extend(runtimes(&paths).map(BlindSpot::from));
    if is_python(&paths) && !has_plain_python_malloc(pid) {
        blind_spots.push(PYTHON.into());
    }
}

fn names<'a>(paths: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    paths.iter().map(|path| path.rsplit('/').next().unwrap_or(path))
}

fn runtimes<'a>(paths: &'a [&'a str]) -> impl Iterator<Item = &'static str> + 'a {
    let is_there = |runtime: &&Runtime| {
        names(paths).any(|name| runtime.files.iter().any(|file| is_named(name, file)))
    };
    RUNTIMES.iter().filter(is_there).map(|runtime| runtime.blind_spot)
}

/// Whether the name is the file's, perhaps with a version: `php8.2` and `libjvm.so` are, `phpize`
/// and `nodelet` are not.
fn is_named(name: &str, file: &str) -> bool {
    let rest = name.strip_prefix(file);
    rest.is_some_and(|rest| rest.chars().all(|c| !c.is_ascii_alphabetic()) || rest.contains(".so"))
}

fn is_python(paths: &[&str]) -> bool {
    names(paths).any(|name| is_named(name, "python") || name.starts_with("libpython"))
}

/// Whether Python was started with `PYTHONMALLOC=malloc`.
fn has_plain_python_malloc(pid: u32) -> bool {
    variable(pid, "PYTHONMALLOC").is_some_and(|value| value.starts_with(b"malloc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_recognized_by_their_files() {
        let of = |path: &'static str| runtimes(&[path]).collect::<Vec<_>>().join(" ");
        for (path, words) in [
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", "Java heap"),
            ("/usr/bin/node", "V8"),
            ("/usr/lib/x86_64-linux-gnu/libnode.so.108", "V8"),
            ("/usr/sbin/php-fpm8.2", ""),
            ("/usr/bin/php8.2", "PHP"),
            ("/usr/lib/apache2/modules/libphp8.2.so", "PHP"),
            ("/usr/lib/erlang/erts-13/bin/beam.smp", "BEAM"),
            ("/usr/share/dotnet/shared/8.0/libcoreclr.so", ".NET"),
            ("/usr/bin/nodelet", ""),
            ("/usr/bin/phpize", ""),
            ("/usr/lib/libc.so.6", ""),
        ] {
            assert!(of(path).contains(words) && of(path).is_empty() == words.is_empty(), "{path}");
        }
        for path in ["/usr/bin/python3", "/x/bin/python3.11", "/usr/lib/libpython3.11.so.1.0"] {
            assert!(is_python(&[path]), "{path}");
        }
        assert!(!is_python(&["/usr/bin/python-config", "/usr/bin/ipython"]));
    }

    #[test]
    fn a_process_without_a_runtime_gets_no_reason() {
        let own = std::env::current_exe().unwrap();
        let mut blind_spots = vec!["something else".into()];
        complete(std::process::id(), [own.to_str().unwrap()].into_iter(), &mut blind_spots);
        assert_eq!(blind_spots, ["something else".into()]);
    }
}
