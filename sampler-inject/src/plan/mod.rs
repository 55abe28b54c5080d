//! Chooses the hook place of each function, and the pages to map for it.
//!
//! A place needs memory at each of its landings. [`plan`] takes the first place of each function
//! whose landings are free, or lie on pages that another hook needs anyway. [`Plan::contents`]
//! builds the contents of those pages: trampolines, the pointers that they jump through, and copies
//! of the original functions. A page is never written once it is mapped.
//!
//! The caller reads the target's mappings and maps the pages (`MAP_FIXED_NOREPLACE`). If a page is
//! taken meanwhile, the caller plans again.

mod layout;
mod room;

use crate::prologue::{Error, Function, HookPlace, original, trampoline, trampoline_length};

pub use layout::{HEAP_GROWTH_BYTES, Layout, PAGE_BYTES};
use room::Room;

/// Fills unused bytes of a page: `int3`.
const FILL: u8 = 0xcc;
/// Bytes of a pointer that a trampoline jumps through.
const SLOT_BYTES: u64 = 8;
/// Extra bytes for a copy of instructions: a far branch is longer than a near one.
const SLACK_BYTES: u64 = 32;

/// A function to hook, and its places in order of preference.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The function.
    pub function: Function<'a>,
    /// The function's hook places.
    pub places: Vec<HookPlace>,
}

/// One hook of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Index of the candidate that is hooked.
    pub candidate: usize,
    /// The hook's place: its byte and its landings.
    pub place: HookPlace,
    /// For each landing: the address of the pointer of its trampoline.
    pub slots: Vec<u64>,
    /// Address of the copy of the original function.
    pub original: u64,
    /// Machine code of the copy.
    code: Vec<u8>,
}

/// The hooks, and the pages to map for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The hooks in the order of the candidates.
    pub hooks: Vec<Hook>,
    /// Indexes of the candidates without a place whose landings are all free.
    pub unplaced: Vec<usize>,
    /// Addresses of the pages that have to be mapped, in ascending order.
    pub pages: Vec<u64>,
}

/// A page to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Address of the page.
    pub address: u64,
    /// [`PAGE_BYTES`] bytes, to be mapped readable and executable.
    pub bytes: Vec<u8>,
}

/// Chooses the first possible place for each candidate.
pub fn plan(candidates: &[Candidate], layout: &Layout) -> Plan {
    let mut plan = Plan::default();
    let mut room = Room::new(layout);
    for (candidate, of) in candidates.iter().enumerate() {
        let hook = of.places.iter().find_map(|place| {
            let is_apart = plan.hooks.iter().all(|other| jumps_are_disjoint(&other.place, place));
            is_apart.then(|| hook(candidate, &of.function, place, &mut room)).flatten()
        });
        match hook {
            Some(hook) => plan.hooks.push(hook),
            None => plan.unplaced.push(candidate),
        }
    }
    plan.pages = room.pages();
    plan
}

/// Whether the jumps of two places do not overlap. Two names of one function have the same place.
fn jumps_are_disjoint(one: &HookPlace, other: &HookPlace) -> bool {
    one.patch.abs_diff(other.patch) > 4
}

/// Makes a hook at `place`. `None`: a landing is not free; `room` is then unchanged.
fn hook(candidate: usize, function: &Function, place: &HookPlace, room: &mut Room) -> Option<Hook> {
    let mut trial = room.clone();
    let length = trampoline_length(place);
    for landing in &place.landings {
        trial.take(*landing..*landing + length)?;
    }
    let slots = place
        .landings
        .iter()
        .map(|landing| trial.take_on_page(*landing, SLOT_BYTES))
        .collect::<Option<Vec<u64>>>()?;
    let (original, code) = copy(function, place, &mut trial)?;
    *room = trial;
    Some(Hook { candidate, place: place.clone(), slots, original, code })
}

/// Places a copy of the original function on one of the pages of the landings.
fn copy(function: &Function, place: &HookPlace, room: &mut Room) -> Option<(u64, Vec<u8>)> {
    place.landings.iter().find_map(|landing| {
        let length = original(place, function, *landing).ok()?.len() as u64 + SLACK_BYTES;
        let mut trial = room.clone();
        let address = trial.take_on_page(*landing, length)?;
        let code = original(place, function, address).ok()?;
        (code.len() as u64 <= length).then(|| {
            *room = trial;
            (address, code)
        })
    })
}

impl Plan {
    /// Builds the pages with their contents. `target` gives for each candidate the address to which
    /// its trampolines jump.
    ///
    /// # Errors
    /// If a trampoline cannot be encoded. No plan has such a trampoline: its pointer lies on its
    /// own page.
    pub fn contents(&self, target: impl Fn(usize) -> u64) -> Result<Vec<Page>, Error> {
        let fill =
            |address: &u64| Page { address: *address, bytes: vec![FILL; PAGE_BYTES as usize] };
        let mut pages: Vec<Page> = self.pages.iter().map(fill).collect();
        for hook in &self.hooks {
            write(&mut pages, hook.original, &hook.code);
            for (landing, slot) in hook.place.landings.iter().zip(&hook.slots) {
                write(&mut pages, *landing, &trampoline(&hook.place, *landing, *slot)?);
                write(&mut pages, *slot, &target(hook.candidate).to_le_bytes());
            }
        }
        Ok(pages)
    }
}

/// Writes bytes that may lie on two pages.
fn write(pages: &mut [Page], address: u64, bytes: &[u8]) {
    for (at, byte) in (address..).zip(bytes) {
        let page = at - at % PAGE_BYTES;
        if let Ok(index) = pages.binary_search_by_key(&page, |page| page.address)
            && let Some(place) = pages[index].bytes.get_mut((at - page) as usize)
        {
            *place = *byte;
        }
    }
}

#[cfg(test)]
mod tests;
