//! The copy of this program that becomes COMMAND.
//!
//! It takes the user's identity, finds the command, sends the parent the files that it will map, waits until that has
//! attached to it, and is then replaced by the program: pid, group, terminal, directory, environment and standard streams
//! are those that the program would have had. It inherits no descriptor: the parent's pipes are opened through
//! `/proc`, and close with `execve`.

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

/// What the parent reads when the program could not be started after all.
pub(super) const FAILED: &[u8] = b"failed";
/// The command is there and cannot be run (POSIX, Shell Command Language 2.8.2).
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Becomes the command; returns only if that failed, with the code that a shell has for it.
pub(crate) fn start(verb: &StartVerb) -> ExitCode {
    let Some((command, arguments)) = verb.command.split_first() else {
        return ExitCode::from(CANNOT_RUN);
    };
    let prepared = prepare(verb);
    let (mut go, mut told) = match prepared {
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
    // Nobody there any more: nothing is to be run.
    let environment = preload::environment(verb);
    let files = program::files(&path, &environment);
    if write_files(&mut told, &files).is_err() || go.read_exact(&mut [0]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut program = Command::new(&path);
    let error = program.arg0(command).args(arguments).envs(environment).exec();
    let _ = told.write_all(FAILED);
    failed(command, &error)
}

fn prepare(verb: &StartVerb) -> Result<(File, File)> {
    let of_parent = |descriptor: i32| format!("/proc/{}/fd/{descriptor}", parent_id());
    let go = File::open(of_parent(verb.go)).context("open the parent's pipe")?;
    let told = OpenOptions::new().write(true).open(of_parent(verb.told));
    let told = told.context("open the parent's pipe")?;
    user::take(verb)?;
    preload::check(verb)?;
    Ok((go, told))
}

/// Paths with a NUL behind each, and one more at the end.
fn write_files(told: &mut File, files: &[PathBuf]) -> io::Result<()> {
    let mut text = Vec::new();
    for file in files {
        text.extend_from_slice(file.as_os_str().as_bytes());
        text.push(0);
    }
    text.push(0);
    told.write_all(&text)
}

fn failed(command: &OsStr, error: &io::Error) -> ExitCode {
    let (code, why) = match error.kind() {
        ErrorKind::NotFound => (NOT_FOUND, "not found".to_owned()),
        _ => (CANNOT_RUN, reason(error)),
    };
    say(&format!("sampler: run: {}: {why}\n", command.to_string_lossy()));
    ExitCode::from(code)
}
