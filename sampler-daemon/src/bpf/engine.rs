//! The kinds of uprobes that the kernel offers. The kernel is asked; its version is not used.

use super::sys;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// The three ways to attach uprobes, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEngine {
    /// One program for entry and return, which skips the return of calls that are not followed
    /// (Linux 6.13).
    Session,
    /// Entry and return links over many functions (Linux 6.6; the process filter works from 6.10
    /// on).
    Multi,
    /// A perf event for every probe (Linux 5.15, for the attach cookie).
    Perf,
}

impl ProbeEngine {
    /// The name on the command line and in `status`.
    pub const fn name(self) -> &'static str {
        match self {
            ProbeEngine::Session => "session",
            ProbeEngine::Multi => "multi",
            ProbeEngine::Perf => "perf",
        }
    }

    /// The best engine that this kernel supports.
    pub fn detect() -> io::Result<ProbeEngine> {
        for engine in [ProbeEngine::Session, ProbeEngine::Multi] {
            if engine.is_supported()? {
                return Ok(engine);
            }
        }
        Ok(ProbeEngine::Perf)
    }

    /// Whether this kernel supports the engine.
    ///
    /// The test is a link on "/". A kernel that knows the attach type refuses the link because "/"
    /// is not a regular file (EBADF). Other kernels return EINVAL. Loading a program does not check
    /// the attach type.
    pub fn is_supported(self) -> io::Result<bool> {
        let attach_type = match self {
            ProbeEngine::Session => sys::ATTACH_SESSION,
            ProbeEngine::Multi => sys::ATTACH_MULTI,
            ProbeEngine::Perf => return Ok(true),
        };
        // r0 = 0; exit
        let program = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
        let program = sys::load_program("sampler_probe", &program, None, attach_type)?;
        let refused = |pid| {
            sys::link_uprobes(program.as_fd(), attach_type, "/", &[1], &[], 0, pid)
                .err()
                .and_then(|error| error.raw_os_error())
        };
        // Kernels before 6.10 filter by thread instead of process, and accept a pid of −1 here.
        Ok(refused(0) == Some(libc::EBADF) && refused(u32::MAX) == Some(libc::EINVAL))
    }
}

impl fmt::Display for ProbeEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
