//! The machine on which figures were taken.

use anyhow::{Context, Result};
use std::fs;

/// Processor, kernel, load.
pub struct Machine {
    /// Model of the processor, from /proc/cpuinfo.
    pub processor: String,
    /// Processors online.
    pub cpus: usize,
    /// Whether the machine is virtual.
    pub is_virtual: bool,
    /// Release of the kernel.
    pub kernel: String,
    /// Load average of the last minute: how much else was running.
    pub load: String,
}

impl Machine {
    /// One line for the head of a report.
    pub fn line(&self) -> String {
        let kind = if self.is_virtual { "virtual machine" } else { "no hypervisor" };
        let Machine { processor, cpus, kernel, load, .. } = self;
        format!("{processor}, {cpus} CPUs, {kind}, Linux {kernel}, load {load} at the start")
    }
}

/// Describes this machine.
///
/// # Errors
/// If a file of /proc cannot be read.
pub fn describe() -> Result<Machine> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let cpuinfo = read("/proc/cpuinfo")?;
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let load = read("/proc/loadavg")?;
    Ok(Machine {
        processor: field("model name").unwrap_or_else(|| "unknown".to_owned()),
        cpus: std::thread::available_parallelism().context("count the processors")?.get(),
        is_virtual: field("flags").is_some_and(|flags| flags.contains(" hypervisor")),
        // The version, without the builder's suffix.
        kernel: read("/proc/sys/kernel/osrelease")?
            .trim()
            .split('-')
            .next()
            .unwrap_or_default()
            .to_owned(),
        load: load.split(' ').next().unwrap_or_default().to_owned(),
    })
}
