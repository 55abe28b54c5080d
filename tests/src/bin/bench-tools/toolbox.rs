//! The tools, ready to attach. Tools that cannot run here have a reason.

use crate::attached::Attached;
use crate::headers;
use crate::scratch::{Scratch, bound, tail};
use crate::tool::{HEAPTRACK_INTERPRET, Ours, Tool};
use anyhow::{Context, Result, bail, ensure};
use sampler_common::wire::Role;
use sampler_daemon::bpf::bench::{Comparison, ComparisonProgram, Hook};
use sampler_daemon::inspect::allocator::{Allocator, Function};
use sampler_daemon::inspect::discoverer::Discoverer;
use sampler_tests::breakpoints::{self, Site};
use sampler_tests::child::{Child, finish};
use sampler_tests::{Daemon, preload, wait};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prepared resources for attaching tools.
pub(crate) struct Toolbox {
    empty: Result<Empty, String>,
    headers: Result<PathBuf, String>,
}

/// Empty programs, loaded into the kernel.
struct Empty {
    session: ComparisonProgram,
    entry: ComparisonProgram,
}

impl Toolbox {
    /// Prepares the resources that all runs share. `directory` keeps files that later runs of the
    /// benchmark use again.
    ///
    /// # Errors
    /// If samplerd is not built.
    pub(crate) fn open(directory: &Path) -> Result<Toolbox> {
        Ok(Toolbox {
            empty: Empty::load().map_err(|error| format!("{error:#}")),
            headers: headers::merged(directory).map_err(|error| format!("{error:#}")),
        })
    }

    /// Why `tool` cannot run here; `None` if it can.
    pub(crate) fn missing(&self, tool: Tool) -> Option<String> {
        if let Some(file) = tool.files().iter().find(|file| !Path::new(file).is_file()) {
            return Some(format!("{file} is not installed"));
        }
        match tool {
            Tool::Empty => self.empty.as_ref().err().cloned(),
            Tool::Memleak => self.headers.as_ref().err().cloned(),
            Tool::Ours(Ours::Preload) => preload::library().err().map(|error| format!("{error:#}")),
            _ => None,
        }
    }

    /// Starts what has to run before a program starts under `tool`.
    ///
    /// # Errors
    /// If that process does not start.
    pub(crate) fn before(&self, tool: Tool, scratch: &Scratch) -> Result<Attached> {
        if tool != Tool::Heaptrack {
            return Ok(Attached::Nothing);
        }
        // As the script `heaptrack` does, except for the file: the recorded data are discarded.
        let pipe = scratch.path("heaptrack");
        let _ = std::fs::remove_file(&pipe);
        let made = finish(Command::new("mkfifo").arg(&pipe))?;
        made.success("mkfifo")?;
        let script = format!("{HEAPTRACK_INTERPRET} < \"$0\" | gzip -c > /dev/null");
        let mut command = bound("sh", &[]);
        command.args(["-c", &script]).arg(&pipe);
        command.stderr(Stdio::null());
        Ok(Attached::Process(Child::start("heaptrack", &mut command)?))
    }

    /// Attaches `tool` to the waiting process `pid`. Returns once the probes of `tool` are
    /// attached.
    ///
    /// # Errors
    /// If `tool` does not attach.
    pub(crate) fn attach(&self, tool: Tool, pid: u32, scratch: &Scratch) -> Result<Attached> {
        match tool {
            Tool::Empty => match &self.empty {
                Ok(empty) => empty.attach(pid),
                Err(reason) => bail!("{reason}"),
            },
            Tool::Ours(mode) => ours(pid, mode.options()),
            Tool::Memleak => self.memleak(pid, scratch),
            Tool::Bpftrace => bpftrace(pid, scratch),
            _ => Ok(Attached::Nothing),
        }
    }

    fn memleak(&self, pid: u32, scratch: &Scratch) -> Result<Attached> {
        let Ok(headers) = &self.headers else { bail!("no kernel headers") };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/memleak.py");
        let allocator = allocator(pid)?;
        let source = [("BCC_KERNEL_SOURCE", headers.display().to_string())];
        let mut command = bound("/usr/bin/python3", &source);
        command.args([script, "-p", &pid.to_string(), "-O", &allocator.path]);
        probing("memleak", command, pid, &allocator, scratch)
    }
}

/// Starts samplerd on `pid`.
///
/// # Errors
/// If samplerd does not attach.
pub(crate) fn ours(pid: u32, options: &[&str]) -> Result<Attached> {
    let options = [&["--until-stdin-closes"], options].concat();
    Ok(Attached::Daemon(Daemon::start(&[pid], &options)?))
}

fn bpftrace(pid: u32, scratch: &Scratch) -> Result<Attached> {
    let allocator = allocator(pid)?;
    let file = &allocator.path;
    // bpftrace's --pid does not filter uprobes: every process that maps the file hits the probes.
    let program = format!(
        "uprobe:{file}:malloc /pid == {pid}/ {{ @bytes[ustack] = sum(arg0) }} \
         uprobe:{file}:free /pid == {pid}/ {{ @frees = count() }}"
    );
    let mut command = bound("/usr/bin/bpftrace", &[]);
    command.args(["-e", &program]);
    probing("bpftrace", command, pid, &allocator, scratch)
}

/// Starts a profiler, and waits until its breakpoints are at the first instructions of malloc and
/// free.
fn probing(
    name: &str,
    mut command: Command,
    pid: u32,
    allocator: &Allocator,
    scratch: &Scratch,
) -> Result<Attached> {
    let log = scratch.path("tool-log");
    command.stderr(File::create(&log).context("create a log")?);
    let mut child = Child::start(name, &mut command)?;
    let sites = entries(allocator)?;
    wait::until(&format!("the probes of {name}"), || {
        if let Some(status) = child.ended()? {
            bail!("{name} ended with {status}: {}", tail(&log));
        }
        Ok((breakpoints::standing(pid, &sites)? == sites.len()).then_some(()))
    })?;
    Ok(Attached::Process(child))
}

/// The first instructions of malloc and free.
fn entries(allocator: &Allocator) -> Result<Vec<Site>> {
    let named = |function: &&Function| {
        function.symbols.iter().any(|symbol| symbol == "malloc" || symbol == "free")
    };
    let named = allocator.functions.iter().filter(named);
    let sites: Vec<Site> = named.map(|of| Site::at(&allocator.path, of.offset)).collect();
    ensure!(sites.len() == 2, "{} has no malloc and free", allocator.path);
    Ok(sites)
}

/// Waits until nobody probes `pid`. On a shared machine others may probe it at times.
///
/// # Errors
/// If others do not stop, or the process is gone.
pub(crate) fn nobody_probes(pid: u32) -> Result<()> {
    wait::until("others to take their probes off this program", || {
        Ok((!is_probed(pid)?).then_some(()))
    })
}

/// Whether anybody probes malloc or free of `pid`, at their first instructions or where samplerd
/// probes.
///
/// # Errors
/// If the process is gone.
pub(crate) fn is_probed(pid: u32) -> Result<bool> {
    let allocator = allocator(pid)?;
    let displaced = |of: &Function| Site::at(&allocator.path, of.probed());
    let mut sites: Vec<Site> = allocator.functions.iter().map(displaced).collect();
    sites.extend(entries(&allocator)?);
    Ok(breakpoints::standing(pid, &sites)? > 0)
}

/// The allocator whose malloc the process uses, even behind a library that forwards to the
/// allocator.
pub(crate) fn allocator(pid: u32) -> Result<Allocator> {
    let discovery = Discoverer::default().discover(pid).context("look for its allocator")?;
    let path = discovery.in_force.map(|of| of.path);
    let mut found = discovery.allocators;
    let used = found.iter().position(|of| path.as_ref().is_none_or(|path| of.path == *path));
    (!found.is_empty())
        .then(|| found.swap_remove(used.unwrap_or(0)))
        .context("the program has no malloc that is known")
}

impl Empty {
    fn load() -> Result<Empty> {
        let all = Comparison::load()?;
        let session = all.program("empty_session", Hook::Session)?;
        Ok(Empty { session, entry: all.program("empty", Hook::Entry)? })
    }

    /// Attaches empty programs to every instruction that samplerd would probe in `pid`.
    fn attach(&self, pid: u32) -> Result<Attached> {
        let discovery = Discoverer::default().discover(pid).context("look for its allocator")?;
        let mut links = Vec::new();
        for allocator in &discovery.allocators {
            for function in &allocator.functions {
                let program = match function.role {
                    // samplerd does not probe the return of these functions.
                    Role::Free | Role::New => &self.entry,
                    _ => &self.session,
                };
                let offset = function.probed();
                links.push(program.attach(&allocator.file, pid, offset)?);
            }
        }
        ensure!(!links.is_empty(), "the program has no malloc that is known");
        Ok(Attached::Links(links))
    }
}
