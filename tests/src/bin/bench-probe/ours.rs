//! samplerd's own programs on the target, attached as samplerd attaches them.

use super::target::Target;
use anyhow::{Context, Result, ensure};
use sampler_common::limits::{CLASSES, DEFAULT_MAX_LIVE};
use sampler_common::sampling::{Design, Rate, Strategy};
use sampler_common::wire::{Cookie, Role};
use sampler_daemon::bpf::btf::TaskOffsets;
use sampler_daemon::bpf::{Attacher, Kernel, Link, Points, ProbeEngine, Settings};
use sampler_daemon::inspect::allocator::Function;

/// The slot of the target.
const SLOT: u32 = 0;

/// A loaded kernel side with the target in one of its slots.
pub(crate) struct Ours {
    kernel: Kernel,
}

/// Which of samplerd's probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probes {
    /// The probe on malloc.
    Malloc,
    /// The probe on free.
    Free,
    /// Both probes.
    Both,
}

impl Ours {
    /// Loads the programs as samplerd does by default. `interval_bytes` is the mean number of bytes
    /// between samples.
    pub(crate) fn load(target: &Target, interval_bytes: u64) -> Result<Ours> {
        let settings = Settings {
            engine: ProbeEngine::Session,
            frame_pointers: false,
            snapshot_bytes: 32 << 10,
            stack_cache: true,
            track_live: true,
            max_live: DEFAULT_MAX_LIVE,
            ring_bytes: 16 << 20,
            slots: sampler_common::limits::MAX_PROCESSES,
            everyone: false,
            shares: false,
            usdt: false,
            mappings: false,
            follow: false,
            pid_namespace: None,
            tasks: TaskOffsets::of_kernel().ok(),
            // Ring pressure is off, because nobody reads the ring.
            ring_pressure: false,
            windows: None,
        };
        let mut kernel = Kernel::load(&settings, Attacher::Here)?;
        kernel.slots.renew(SLOT);
        kernel.totals.reset(SLOT)?;
        kernel.hits.reset(SLOT);
        kernel.targets.enter(target.pid(), SLOT)?;
        let mut ours = Ours { kernel };
        ours.set_interval(interval_bytes)?;
        Ok(ours)
    }

    /// Loads the programs, and fills the live set with `count` blocks of the target. After that the
    /// interval is 4 GiB, so that nearly nothing is sampled.
    pub(crate) fn with_live(target: &mut Target, count: u32) -> Result<Ours> {
        let mut ours = Ours::load(target, 1)?;
        let links = ours.attach(target, Probes::Malloc)?;
        target.hold(count)?;
        drop(links);
        let live = ours.kernel.live.len();
        ensure!(live == u64::from(count), "{live} live samples instead of {count}");
        ours.set_interval(1 << 32)?;
        Ok(ours)
    }

    fn set_interval(&mut self, interval_bytes: u64) -> Result<()> {
        let rate = Rate::from_interval(interval_bytes);
        let rate = rate.with_context(|| format!("interval {interval_bytes}"))?;
        self.kernel.slots.set_designs(SLOT, &[Design::new(Strategy::Geometric, rate); CLASSES]);
        Ok(())
    }

    /// Attaches the probes; dropping the links detaches them.
    pub(crate) fn attach(&mut self, target: &Target, probes: Probes) -> Result<Vec<Link>> {
        let point = |function: &Function, role| {
            let cookie = Cookie::new(SLOT, role).placed(function.placement.emulated);
            vec![(function.probed(), cookie.0)]
        };
        let mut points = Points::default();
        if probes != Probes::Free {
            points.allocating = point(&target.malloc, Role::Malloc);
        }
        if probes != Probes::Malloc {
            points.freeing = point(&target.free, Role::Free);
        }
        // The ring is emptied first: earlier records must not change how later samples end.
        let until = self.kernel.ring.produced();
        self.kernel.ring.read(usize::MAX, until, |_| ());
        self.kernel.attach(&target.file, Some(target.pid()), &points)
    }
}
