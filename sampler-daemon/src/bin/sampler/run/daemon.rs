//! The private samplerd of one run: found, started on a private socket, and ended with the run.

use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;

/// Name of samplerd's executable.
const NAME: &str = "samplerd";
/// Maximum number of bytes of samplerd's messages that are kept.
const MESSAGES: u64 = 64 * 1024;

/// A running samplerd. Dropping the value ends it. samplerd also ends when this process is killed,
/// because its standard input closes.
pub(super) struct Daemon {
    child: Child,
    messages: Option<JoinHandle<String>>,
}

impl Daemon {
    /// Starts `program`. samplerd is attached when [`Daemon::ready`] returns.
    pub(super) fn start(program: &Path, arguments: &[OsString]) -> Result<Daemon> {
        let mut command = Command::new(program);
        command.args(arguments).arg("--until-stdin-closes");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        // samplerd gets its own process group. A terminal's signals to the program's group must not
        // end it before it returns the profile.
        command.process_group(0);
        let child = command.spawn();
        let mut child = child.with_context(|| format!("start {}", program.display()))?;
        let messages = child.stderr.take().map(|pipe| std::thread::spawn(move || read(pipe)));
        Ok(Daemon { child, messages })
    }

    /// Waits until samplerd is attached and serves.
    pub(super) fn ready(&mut self) -> Result<()> {
        let pipe = self.child.stdout.take().context("samplerd has no output")?;
        let mut line = String::new();
        BufReader::new(pipe).read_line(&mut line).context("read from samplerd")?;
        if line.starts_with("ready ") {
            return Ok(());
        }
        let _ = self.child.kill();
        let status = self.child.wait().context("wait for samplerd")?;
        let said = self.said();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        match last.map(|line| line.strip_prefix("samplerd: ").unwrap_or(line)) {
            Some(line) => bail!("{line}"),
            None => bail!("samplerd ended before it was attached ({status})"),
        }
    }

    /// Ends samplerd. Returns its messages.
    pub(super) fn stop(mut self) -> String {
        self.end();
        self.said()
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        // samplerd detaches and exits.
        let _ = self.child.wait();
    }

    fn said(&mut self) -> String {
        self.messages.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(mut pipe: ChildStderr) -> String {
    let mut text = Vec::new();
    // Further messages are read and dropped, so that samplerd never blocks on a full pipe.
    let _ = pipe.by_ref().take(MESSAGES).read_to_end(&mut text);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&text).into_owned()
}

/// Finds samplerd's executable: in this program's directory, else in `PATH`.
pub(crate) fn find() -> Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|directory| directory.join(NAME));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join(NAME));
    let mut candidates = beside.into_iter().chain(in_path);
    candidates.find(|candidate| candidate.is_file()).ok_or_else(|| {
        anyhow!("{NAME} is neither beside this program nor in PATH (install both together)")
    })
}

/// A private directory for a socket. Dropping the value removes the directory and the socket.
pub(super) struct Private(PathBuf);

impl Private {
    /// Creates the directory.
    pub(super) fn make() -> Result<Private> {
        let parents = [PathBuf::from("/run"), std::env::temp_dir()];
        let parent =
            parents.iter().find(|parent| parent.is_dir()).context("no /run and no /tmp")?;
        for attempt in 0..64 {
            let path = parent.join(format!("sampler-run.{}.{attempt}", std::process::id()));
            // The directory must be created by this process. An existing directory may belong to
            // somebody else.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Private(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("make {}", path.display()));
                }
            }
        }
        bail!("make a directory in {}: all names are taken", parent.display())
    }

    /// Returns the path of the socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The directory may be gone already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_directory_is_private_and_removed_on_drop() {
        let (first, second) = (Private::make().unwrap(), Private::make().unwrap());
        let path = first.0.clone();
        assert_ne!(path, second.0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(first.socket(), "").unwrap();
        drop(first);
        assert!(!path.exists());
    }
}
