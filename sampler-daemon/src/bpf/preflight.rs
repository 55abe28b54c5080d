//! Asks, before anything is loaded, whether this machine and user can profile at all.

use rustix::thread::{CapabilitySet, capabilities};

/// What samplerd needs, with the names that the kernel gives it (capabilities(7)).
///
/// In this order: to load eBPF programs; to attach uprobes and to read what they see; to read memory and mappings of others; to read their files.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// Why profiling cannot work here. Each message is one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Some capability is missing.
    #[error(
        "samplerd has no {missing} (user id {user}): run it as root (sudo samplerd …), or give it what packaging/samplerd.service does"
    )]
    Capabilities {
        /// Names, with spaces between them.
        missing: String,
        /// Whose process it is.
        user: u32,
    },
    /// The processor.
    #[error("this machine is {0}; samplerd knows x86_64 only")]
    Architecture(&'static str),
}

/// Checks what can be checked without loading a program.
///
/// # Errors
/// If samplerd cannot profile anything here.
pub fn check() -> Result<(), PreflightError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(PreflightError::Architecture(std::env::consts::ARCH));
    }
    let missing = missing(capabilities(None).map_or(CapabilitySet::empty(), |of| of.effective));
    match missing.is_empty() {
        true => Ok(()),
        false => {
            let user = rustix::process::geteuid().as_raw();
            Err(PreflightError::Capabilities { missing: missing.join(" "), user })
        }
    }
}

fn missing(effective: CapabilitySet) -> Vec<&'static str> {
    let missing = NEEDED.iter().filter(|(needed, _)| !effective.contains(*needed));
    missing.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert!(missing(CapabilitySet::all()).is_empty());
        assert_eq!(missing(CapabilitySet::all() - CapabilitySet::PERFMON), ["CAP_PERFMON"]);
        assert_eq!(missing(CapabilitySet::empty()).len(), NEEDED.len());
    }
}
