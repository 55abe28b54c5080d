//! Asks, before anything is loaded, whether this machine and user can profile at all.

/// Why profiling cannot work here. Each message is one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Not root.
    #[error("must run as root to load eBPF programs (user id is {0}; try: sudo samplerd …)")]
    NotRoot(u32),
    /// The processor.
    #[error("this machine is {0}; samplerd knows x86_64 only")]
    Architecture(&'static str),
}

/// Checks what can be checked without loading a program.
pub fn check() -> Result<(), PreflightError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(PreflightError::Architecture(std::env::consts::ARCH));
    }
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Err(PreflightError::NotRoot(user.as_raw()));
    }
    Ok(())
}
