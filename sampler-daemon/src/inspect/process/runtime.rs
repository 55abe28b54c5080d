//! Which runtime generates the code of a process, and whether it can write a perf map on request.

use crate::inspect::mappings::{self, Backing, Mapping};
use crate::pid_namespace::pids;
use memchr::memmem::Finder;
use sampler_common::note::Runtime;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Name of the JVM's command that writes a perf map. A JVM that has the command has this text.
const PERF_MAP_COMMAND: &[u8] = b"Compiler.perfmap";

/// Most bytes of a JVM that are searched. JVMs have 20 MB, and debug builds 300 MB.
const MAX_SEARCHED_BYTES: u64 = 512 << 20;

/// Bytes per read.
const CHUNK_BYTES: usize = 256 * 1024;

/// The runtime of a running process, by the files that it has mapped as code. `Other` if no known
/// runtime is there.
pub fn of_process(pid: u32) -> Runtime {
    let mappings = mappings::executable(pid).unwrap_or_default();
    match mappings.iter().map(of_mapping).min() {
        Some(Runtime::Java) => {
            let java = mappings.iter().filter(|mapping| of_mapping(mapping) == Runtime::Java);
            let files: Vec<_> = java.map(|mapping| mappings::open(pid, mapping)).collect();
            // A JVM that cannot be read may have the command. The file `java` only starts the JVM.
            match files.into_iter().any(|file| file.map_or(true, has_command)) {
                true => Runtime::Java,
                false => Runtime::OldJava,
            }
        }
        runtime => runtime.unwrap_or(Runtime::Other),
    }
}

/// The id of a process in its own pid namespace, if that is another namespace than that of `/proc`.
pub fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    pids(&status)?.skip(1).last()?.parse().ok()
}

fn of_mapping(mapping: &Mapping) -> Runtime {
    match &mapping.backing {
        Backing::File(path) => of_path(path),
        _ => Runtime::Other,
    }
}

/// The runtime whose program or library is at a path.
pub fn of_path(path: &str) -> Runtime {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    name.map_or(Runtime::Other, Runtime::of_file)
}

/// Whether a JVM can write a perf map on request.
fn has_command(file: File) -> bool {
    let finder = Finder::new(PERF_MAP_COMMAND);
    let mut file = file.take(MAX_SEARCHED_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut kept = 0;
    while let Ok(count @ 1..) = file.read(&mut chunk[kept..]) {
        let filled = kept + count;
        if finder.find(&chunk[..filled]).is_some() {
            return true;
        }
        // The text may go on in the next chunk.
        kept = filled.min(PERF_MAP_COMMAND.len() - 1);
        chunk.copy_within(filled - kept..filled, 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, Write as _};

    #[test]
    fn a_jvm_with_the_command_is_recognized_wherever_the_text_is() {
        for begin in [0, CHUNK_BYTES - 16, CHUNK_BYTES - 7, CHUNK_BYTES - 1, 3 * CHUNK_BYTES] {
            let file = |text: &[u8]| {
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(&vec![b'C'; begin]).unwrap();
                file.write_all(text).unwrap();
                file.write_all(b"and more").unwrap();
                file.rewind().unwrap();
                file
            };
            assert!(has_command(file(PERF_MAP_COMMAND)), "{begin}");
            assert!(!has_command(file(b"Compiler.codelist")), "{begin}");
        }
    }

    #[test]
    fn this_process_is_of_no_known_runtime() {
        let own = std::process::id();
        assert_eq!((of_process(own), inner_pid(own)), (Runtime::Other, None));
        assert_eq!(of_path("/usr/lib/jvm/lib/server/libjvm.so"), Runtime::Java);
    }
}
