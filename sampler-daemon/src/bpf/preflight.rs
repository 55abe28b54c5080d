//! Checks, before anything is loaded, whether this machine and user can profile at all.

use rustix::thread::{CapabilitySet, capabilities};

/// Capabilities that samplerd needs, with the kernel's names (capabilities(7)).
///
/// In this order, they allow: loading eBPF programs; attaching uprobes and reading what they see;
/// reading memory and mappings of other processes; reading the files of other processes.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// The reason why profiling cannot work here. Each message is one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Capabilities are missing.
    #[error(
        "samplerd has no {missing} (user id {user}): run it as root (sudo samplerd …), or give it what packaging/samplerd.service does"
    )]
    Capabilities {
        /// Names, separated by spaces.
        missing: String,
        /// User id of the process.
        user: u32,
    },
    /// The processor is not supported.
    #[error("this machine is {0}; samplerd knows x86_64 only")]
    Architecture(&'static str),
}

/// Checks everything that can be checked without loading a program.
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
