//! Runs `sampler-inject`: one short-lived process for each operation, so that any failure ends with
//! that process. samplerd itself never traces a process.

use crate::inspect::mappings::{self, Backing};
use crate::inspect::process::injected;
use crate::inspect::process::pids;
use crate::installed;
use sampler_common::injected::LEFT_OUT;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The program of an operation, and the library that it injects.
const HELPER: &str = "sampler-inject";
const LIBRARY: &str = "libsampler_preload.so";

/// Device and inode of an image's memory file: a process and all its descendants by fork have the
/// same.
type ImageFile = ((i32, i32), u64);

/// The installed program and the library. All clones share the list of injections.
#[derive(Clone, Debug)]
pub struct Injector {
    helper: PathBuf,
    library: PathBuf,
    /// Images that were injected.
    images: Arc<Mutex<HashSet<ImageFile>>>,
}

impl Injector {
    /// Finds the program and the library next to samplerd.
    ///
    /// # Errors
    /// One line with the remedy.
    pub fn find() -> Result<Injector, String> {
        let find = |name: &str| {
            installed::find(name).ok_or_else(|| {
                format!("{name} is not beside samplerd (cargo build --release --bins and cargo xtask build-preload make both)")
            })
        };
        Ok(Injector { helper: find(HELPER)?, library: find(LIBRARY)?, images: Arc::default() })
    }

    /// The program that injects.
    pub fn program(&self) -> &Path {
        &self.helper
    }

    /// Injects the sampler into a process. Returns for how long the process stood still. The log has
    /// the rest, for `RUST_LOG=debug`.
    ///
    /// # Errors
    /// One line: why the process is left alone, or what failed.
    pub fn inject(&self, pid: u32, interval_bytes: u64) -> Result<String, String> {
        let mut command = self.command("inject", pid);
        command.arg("--library").arg(&self.library);
        let done = run(command.args(["--interval", &interval_bytes.to_string()]))?;
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.extend(image_file(pid));
        tracing::debug!(pid, "{done}");
        if let Some((_, why)) = done.split_once(LEFT_OUT) {
            tracing::warn!(pid, "not sampled: {why}");
        }
        Ok(pause(&done))
    }

    /// Ejects all injected images, also from processes that were forked later. Each result is
    /// logged.
    pub fn eject_all(&self) {
        let images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = HashSet::new();
        // A process that was forked meanwhile is found by the next search.
        while !images.is_empty() {
            let has_image = |pid: &u32| image_file(*pid).is_some_and(|file| images.contains(&file));
            let mut found = pids();
            found.retain(|pid| !done.contains(pid) && has_image(pid));
            if found.is_empty() {
                return;
            }
            found.iter().for_each(|pid| self.eject(*pid));
            done.extend(found);
        }
    }

    fn eject(&self, pid: u32) {
        match run(&mut self.command("eject", pid)) {
            Ok(line) => {
                tracing::debug!(pid, "{line}");
                tracing::info!(pid, "the sampler is out: {}", pause(&line));
            }
            Err(_) if image_file(pid).is_none() => {}
            Err(why) => {
                tracing::warn!(
                    pid,
                    "the sampler stays in, and sleeps: {why} (sampler-inject eject --pid {pid})"
                );
            }
        }
    }

    /// Checks, only by reading, whether the process could be injected. The process is not touched.
    ///
    /// # Errors
    /// As of [`Injector::inject`].
    pub fn examine(&self, pid: u32) -> Result<String, String> {
        run(self.command("examine", pid).arg("--library").arg(&self.library))
    }

    fn command(&self, verb: &str, pid: u32) -> Command {
        let mut command = Command::new(&self.helper);
        command.args([verb, "--pid", &pid.to_string()]);
        command
    }
}

/// For how long the process stood still, in words, from the line of the program.
fn pause(line: &str) -> String {
    let mut figures = line.split(' ').filter_map(|word| word.strip_prefix("stopped_us="));
    figures
        .next()
        .map_or_else(|| line.to_owned(), |us| format!("the process stood still for {us} µs"))
}

/// The memory file of the image in a process; `None`: the process has no image, or has ended. The
/// process that reads names maps the file too, but not to execute it.
fn image_file(pid: u32) -> Option<ImageFile> {
    let mappings = mappings::read_some(pid).ok()?;
    let is_image = |of: &&mappings::Mapping| matches!(&of.backing, Backing::File(path) if path == injected::PATH && of.executable);
    mappings.iter().find(is_image).map(|of| (of.device, of.inode))
}

/// Runs an operation. Returns its last line.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("start {HELPER}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim().lines().last().unwrap_or_default().to_owned();
    match output.status.success() {
        true => Ok(line),
        false if line.is_empty() => Err(format!("{HELPER} ended with {}", output.status)),
        false => Err(line.trim_start_matches("refused: ").to_owned()),
    }
}
