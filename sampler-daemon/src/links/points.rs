//! The probed places of an allocator, and the attaching itself.

use crate::bpf::{Kernel, Link, Points, Settings, UsdtPoint, all_or_none, close_and_wait};
use crate::inspect::allocator::Allocator;
use crate::inspect::discovery::SelfSampler;
use sampler_common::wire::{Cookie, Role, SHARED};

/// The processes whose calls a link counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// The process in a slot.
    Process { pid: u32, slot: u32 },
    /// All processes that map the file.
    All,
}

impl Owner {
    fn pid(self) -> Option<u32> {
        match self {
            Owner::Process { pid, .. } => Some(pid),
            Owner::All => None,
        }
    }

    fn slot(self) -> u32 {
        match self {
            Owner::Process { slot, .. } => slot,
            Owner::All => SHARED,
        }
    }
}

/// Attaches to an allocator.
pub(super) fn attach(
    kernel: &mut Kernel,
    allocator: &Allocator,
    owner: Owner,
    settings: &Settings,
) -> anyhow::Result<Vec<Link>> {
    let points = points(allocator, owner.slot(), settings);
    kernel.attach(&allocator.file, owner.pid(), &points)
}

/// Attaches to the USDT probes of a file that samples by itself.
pub(super) fn attach_sampler(
    kernel: &mut Kernel,
    sampler: &SelfSampler,
    owner: Owner,
    settings: &Settings,
) -> anyhow::Result<Vec<Link>> {
    let Some(programs) = &mut kernel.usdt else { return Ok(Vec::new()) };
    let probes =
        sampler.usdt.probes.iter().filter(|of| settings.track_live || of.role != Role::OtelFree);
    let points: Vec<UsdtPoint> = probes
        .map(|probe| UsdtPoint {
            role: probe.role,
            offset: probe.offset,
            semaphore: probe.semaphore,
            site: probe.site,
            is_in_library: sampler.preloaded.is_some(),
        })
        .collect();
    programs.attach(&sampler.allocator.file, owner.pid(), owner.slot(), &points)
}

/// Replaces the links `old` of an allocator by links to the functions that are left in `allocator`.
/// Frees are probed without a gap: a free that is counted twice harms nothing. All other functions
/// are probed by the old links or by the new links, never by both, because each call would count
/// twice.
pub(super) fn reattach(
    kernel: &mut Kernel,
    allocator: &Allocator,
    owner: Owner,
    settings: &Settings,
    old: Vec<Link>,
) -> anyhow::Result<Vec<Link>> {
    let (pid, rest) = (owner.pid(), points(allocator, owner.slot(), settings));
    let frees = Points { freeing: rest.freeing.clone(), ..Points::default() };
    let rest = Points { freeing: Vec::new(), ..rest };
    let freeing = kernel.attach(&allocator.file, pid, &frees);
    close_and_wait(old);
    all_or_none(|links| {
        links.extend(freeing?);
        links.extend(kernel.attach(&allocator.file, pid, &rest)?);
        Ok(())
    })
}

/// Returns the points to attach to, for the process of a slot or for all processes that share a
/// link.
fn points(allocator: &Allocator, slot: u32, settings: &Settings) -> Points {
    let mut points = Points::default();
    let mut functions: Vec<_> = allocator.functions.iter().collect();
    // Probes are inserted one after another. Functions that can end a block come first, the
    // function that is called most often comes last.
    functions.sort_by_key(|function| {
        let place = match function.role {
            Role::Realloc | Role::Unmap | Role::Remap => 0,
            Role::Malloc => 2,
            _ => 1,
        };
        (place, function.offset)
    });
    for function in functions {
        let offset = function.probed();
        if function.role.is_mapping() && !settings.mappings {
            continue;
        }
        let cookie = Cookie::shaped(slot, function.role, function.shape);
        let point = (offset, cookie.placed(function.placement.emulated).0);
        match function.role {
            Role::Free if settings.track_live => points.freeing.push(point),
            Role::Free => {}
            // The return of a function that can throw must not be probed.
            Role::New => points.entering.push(point),
            _ => points.allocating.push(point),
        }
    }
    points
}
