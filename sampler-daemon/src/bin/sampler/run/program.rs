//! Finds the files that a command maps when it runs: the executable, its interpreter, and the
//! libraries that its loader maps, including preloaded ones.

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use sampler_daemon::bounded_file::{BoundedFile, MAX_HEADER_BYTES};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Maximum number of nested script interpreters (the kernel's own bound is 4).
const MAX_SCRIPTS: usize = 4;
/// Maximum number of bytes that the kernel reads of a script's first line.
const FIRST_LINE: u64 = 256;
/// The search path without `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables that are changed in the program's environment.
pub(super) type Environment = Vec<(&'static str, OsString)>;

/// Finds the file that a shell would run.
///
/// # Errors
/// `NotFound` or `PermissionDenied`, as in `execvp`.
pub(super) fn find(command: &OsStr) -> io::Result<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return executable(Path::new(command)).map(|()| command.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut failed = io::Error::from(ErrorKind::NotFound);
    for directory in std::env::split_paths(&path) {
        // An empty entry is the working directory.
        let candidate = Path::new(".").join(directory).join(command);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            // A file that may not be run explains more than a missing file.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => failed = error,
            Err(_) => {}
        }
    }
    Err(failed)
}

fn executable(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    match metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// Returns every file whose code the program will map, as far as this is known before the program
/// runs. Files that the program opens itself are unknown.
pub(super) fn files(program: &Path, environment: &Environment) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut program = program.to_owned();
    for _ in 0..=MAX_SCRIPTS {
        files.push(program.clone());
        let Some(next) = script_interpreter(&program) else { break };
        program = next;
    }
    if let Ok(Some(loader)) = loader(&program) {
        files.extend(libraries(&loader, &program, environment));
    }
    // The paths are made absolute, because samplerd may have a different working directory.
    files.iter().filter_map(|file| fs::canonicalize(file).ok()).collect()
}

/// Returns `/bin/sh` for a script that begins with `#!/bin/sh -e`.
fn script_interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(OsString::from_vec(words.next()?.to_vec()).into())
}

/// Returns the dynamic loader of an ELF program; `None` if the program is static, or no ELF
/// program.
fn loader(path: &Path) -> object::Result<Option<PathBuf>> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    let data = BoundedFile::new(file, MAX_HEADER_BYTES);
    let header = FileHeader64::<Endianness>::parse(&data)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, &data)? {
        if let Some(path) = segment.interpreter(endian, &data)? {
            return Ok(Some(OsStr::from_bytes(path).into()));
        }
    }
    Ok(None)
}

/// Returns the files that the loader would map. The loader itself lists them (`ld.so --list`, as
/// for ldd), so its cache, search paths and preloads count. The loader runs as the program's user.
fn libraries(loader: &Path, program: &Path, environment: &Environment) -> Vec<PathBuf> {
    let is_known = loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-"));
    if !is_known {
        return Vec::new();
    }
    let mut list = Command::new(loader);
    let list = list.arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    let list = list.envs(environment.iter().map(|(name, value)| (name, value)));
    list.output().map(|said| listed(&said.stdout)).unwrap_or_default()
}

/// Parses lines like `libc.so.6 => /lib/libc.so.6 (0x00007f…)` and `/lib/preloaded.so (0x00007f…)`.
fn listed(text: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(text);
    let paths = text.lines().filter_map(|line| {
        let line = line.trim().rsplit_once(" (0x")?.0;
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_by_shells() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        let missing = find(OsStr::new("no-such-command-anywhere")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let denied = find(OsStr::new("/etc/passwd")).unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
        assert_eq!(find(OsStr::new("/etc")).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn scripts_lead_to_their_interpreters_and_libraries() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#! /bin/sh -e\nexit 0\n").unwrap();
        assert_eq!(script_interpreter(&script).unwrap(), Path::new("/bin/sh"));
        let files = files(&script, &Environment::new());
        let has =
            |name: &str| files.iter().any(|file| file.file_name().is_some_and(|of| of == name));
        assert!(has("script") && has("libc.so.6"), "{files:?}");
        assert_eq!(loader(&script).ok().flatten(), None);
    }

    #[test]
    fn lists_of_both_loaders_are_read() {
        let glibc = b"\tlinux-vdso.so.1 (0x00007ffd)\n\t/lib/p.so (0x00007f00)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f01)\n\tlibx.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let paths = ["/lib/p.so", "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(listed(glibc), paths.map(PathBuf::from));
        let musl = b"\t/lib/ld-musl-x86_64.so.1 (0x7f00)\n\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f00)\n";
        assert_eq!(listed(musl), vec![PathBuf::from("/lib/ld-musl-x86_64.so.1"); 2]);
        assert_eq!(listed(b"statically linked\n"), Vec::<PathBuf>::new());
    }
}
