//! The copy of this program that becomes COMMAND.
//!
//! The copy takes the user's identity and finds the command. It sends the parent the files that the
//! command will map, and waits until the parent's samplerd has attached. Then the program replaces
//! the copy. Pid, group, terminal, directory, environment and standard streams are those that the
//! program would have had. The program inherits no descriptor: the copy opens the parent's pipes
//! through `/proc`, and they close at `execve`.

use super::args::StartVerb;
use super::{preload, program, user};
use crate::output::{reason, say};
use anyhow::{Context as _, Result};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The copy's message to the parent if the program could not be started.
pub(super) const FAILED: &[u8] = b"failed";
/// Exit code if the command exists and cannot be run (POSIX, Shell Command Language 2.8.2).
const CANNOT_RUN: u8 = 126;
/// Exit code if the command does not exist.
const NOT_FOUND: u8 = 127;

/// Becomes the command. Returns only if that fails, with a shell's exit code for the failure.
pub(crate) fn start(verb: &StartVerb) -> ExitCode {
    let Some((command, arguments)) = verb.command.split_first() else {
        return ExitCode::from(CANNOT_RUN);
    };
    let prepared = prepare(verb);
    let (mut go, mut report) = match prepared {
        Ok(pipes) => pipes,
        Err(error) => {
            say(&format!("sampler: run: {error:#}\n"));
            return ExitCode::FAILURE;
        }
    };
    let path = match program::find(command) {
        Ok(path) => path,
        Err(error) => return failed(command, &error),
    };
    // If writing or reading fails, the parent is gone, and nothing is run.
    let environment = preload::environment(verb);
    let files = program::files(&path, &environment);
    if write_files(&mut report, &files).is_err() || go.read_exact(&mut [0]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut program = Command::new(&path);
    let error = program.arg0(command).args(arguments).envs(environment).exec();
    let _ = report.write_all(FAILED);
    failed(command, &error)
}

fn prepare(verb: &StartVerb) -> Result<(File, File)> {
    let of_parent = |descriptor: i32| format!("/proc/{}/fd/{descriptor}", parent_id());
    let go = File::open(of_parent(verb.go)).context("open the parent's pipe")?;
    let report = OpenOptions::new().write(true).open(of_parent(verb.report));
    let report = report.context("open the parent's pipe")?;
    user::take(verb)?;
    preload::check(verb)?;
    Ok((go, report))
}

/// Writes the paths, each with a NUL at its end, and one more NUL.
fn write_files(report: &mut File, files: &[PathBuf]) -> io::Result<()> {
    let mut text = Vec::new();
    for file in files {
        text.extend_from_slice(file.as_os_str().as_bytes());
        text.push(0);
    }
    text.push(0);
    report.write_all(&text)
}

fn failed(command: &OsStr, error: &io::Error) -> ExitCode {
    let (code, why) = match error.kind() {
        ErrorKind::NotFound => (NOT_FOUND, "not found".to_owned()),
        _ => (CANNOT_RUN, reason(error)),
    };
    say(&format!("sampler: run: {}: {why}\n", command.to_string_lossy()));
    ExitCode::from(code)
}
