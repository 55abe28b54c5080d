//! The target with all loaded programs that can be attached to it.

use super::cases::Setup;
use super::ours::{Ours, Probes};
use super::target::Target;
use anyhow::Result;
use sampler_daemon::bpf::Link;
use sampler_daemon::bpf::bench::{Comparison, ComparisonProgram, Hook};

/// The daemon's default interval.
const DEFAULT_INTERVAL_BYTES: u64 = 512 << 10;

/// The target and all programs, loaded but not attached.
pub(crate) struct Bench {
    /// The process that is measured.
    pub(crate) target: Target,
    few: Ours,
    many: Ours,
    sampling: Ours,
    empty_session: ComparisonProgram,
    empty_entry: ComparisonProgram,
    empty_return: ComparisonProgram,
    memleak_enter: ComparisonProgram,
    memleak_leave: ComparisonProgram,
    memleak_free: ComparisonProgram,
}

impl Bench {
    /// Starts the target, loads all programs, fills the live sets.
    ///
    /// # Errors
    /// If something does not compile, start or load.
    pub(crate) fn prepare() -> Result<Bench> {
        let mut target = Target::start()?;
        let others = Comparison::load()?;
        Ok(Bench {
            few: Ours::with_live(&mut target, 1_000)?,
            many: Ours::with_live(&mut target, 100_000)?,
            sampling: Ours::load(&target, DEFAULT_INTERVAL_BYTES)?,
            empty_session: others.program("empty_session", Hook::Session)?,
            empty_entry: others.program("empty", Hook::Entry)?,
            empty_return: others.program("empty", Hook::Return)?,
            memleak_enter: others.program("memleak_enter", Hook::Entry)?,
            memleak_leave: others.program("memleak_leave", Hook::Return)?,
            memleak_free: others.program("memleak_free", Hook::Entry)?,
            target,
        })
    }

    /// Attaches what `setup` says; dropping the links detaches.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn attach(&mut self, setup: Setup) -> Result<Vec<Link>> {
        let target = &self.target;
        let at = |program: &ComparisonProgram, offset| {
            program.attach(&target.file, target.pid(), offset)
        };
        // memleak attaches to the first instruction, whatever the instruction is.
        let (malloc, free) = (target.malloc.offset, target.free.offset);
        match setup {
            Setup::Nothing => Ok(Vec::new()),
            Setup::EmptySession => Ok(vec![at(&self.empty_session, target.malloc.probed())?]),
            Setup::EmptyFree => Ok(vec![at(&self.empty_entry, target.free.probed())?]),
            Setup::OurMalloc => self.few.attach(target, Probes::Malloc),
            Setup::OurFreeFew => self.few.attach(target, Probes::Free),
            Setup::OurFreeMany => self.many.attach(target, Probes::Free),
            Setup::OurPair => self.sampling.attach(target, Probes::Both),
            Setup::EmptyMemleak => Ok(vec![
                at(&self.empty_return, malloc)?,
                at(&self.empty_entry, malloc)?,
                at(&self.empty_entry, free)?,
            ]),
            Setup::Memleak => Ok(vec![
                at(&self.memleak_leave, malloc)?,
                at(&self.memleak_enter, malloc)?,
                at(&self.memleak_free, free)?,
            ]),
        }
    }
}
