//! Which place each hook gets, and what the pages hold that its jump may lead to.
//!
//! A page is mapped at every landing of a place: where the jump leads for the file's bytes, and for every combination of other tools' breakpoints. All of them, or the
//! place is not used. The pages also hold the pointer that the trampolines jump through, and the copy of the function's first instructions.

use crate::allocator::{Allocator, Found};
use crate::maps::{Maps, PAGE};
use crate::preflight::Refusal;
use crate::prologue::{self, Code, Function, Place};
use crate::record::Hook;
use crate::target::Target;
use anyhow::Result;
use std::collections::BTreeMap;

/// Bytes of a pointer.
const POINTER: u64 = 8;
/// The copy of a function begins at a multiple of it.
const ALIGNMENT: u64 = 16;
/// Bytes that the copy of a function may take.
const MAX_COPY_BYTES: u64 = 256;
/// What stands where nothing does: `int3`.
const FILLER: u8 = 0xcc;

/// A page of code around hooks.
#[derive(Clone, Debug)]
struct Page {
    bytes: Vec<u8>,
    is_used: Vec<bool>,
}

impl Page {
    fn new() -> Page {
        Page { bytes: vec![FILLER; PAGE as usize], is_used: vec![false; PAGE as usize] }
    }
}

/// All pages, by their addresses.
#[derive(Clone, Debug, Default)]
struct Pages {
    all: BTreeMap<u64, Page>,
}

impl Pages {
    /// Writes where nothing is written yet; `None`: there is something, or no page can be there.
    fn write(&mut self, gaps: &[(u64, u64)], address: u64, bytes: &[u8]) -> Option<()> {
        for (address, byte) in (address..).zip(bytes) {
            let start = address & !(PAGE - 1);
            let page = match self.all.entry(start) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    is_free(gaps, start).then_some(())?;
                    place.insert(Page::new())
                }
            };
            let at = (address - start) as usize;
            if page.is_used[at] {
                return None;
            }
            (page.bytes[at], page.is_used[at]) = (*byte, true);
        }
        Some(())
    }

    /// Room for so many bytes in a page that is there.
    fn room(&self, start: u64, bytes: u64, alignment: u64) -> Option<u64> {
        let page = self.all.get(&start)?;
        let mut places = (start..start + PAGE - bytes + 1).step_by(alignment as usize);
        places.find(|place| {
            let from = (place - start) as usize;
            !page.is_used[from..from + bytes as usize].iter().any(|is_used| *is_used)
        })
    }
}

fn is_free(gaps: &[(u64, u64)], start: u64) -> bool {
    gaps.iter().any(|(from, to)| *from <= start && start + PAGE <= *to)
}

/// A hook that has its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What is written.
    pub hook: Hook,
    /// Where the function begins that is the one without the hook.
    pub original: u64,
    /// Which function it is.
    pub function: Found,
}

/// Hooks and pages.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Hooks in the order in which they are put in.
    pub hooks: Vec<Placed>,
    /// Functions that have no place.
    pub without: Vec<&'static str>,
    /// Pages: address, content.
    pub pages: Vec<(u64, Vec<u8>)>,
}

/// Finds places for all functions. `entry`: the address in the image that a function's calls go to.
///
/// # Errors
/// If a function has none that has to be hooked.
pub fn layout(
    target: &Target,
    allocator: &Allocator,
    reserved: (u64, u64),
    entry: impl Fn(&str) -> Option<u64>,
) -> Result<Layout> {
    let code = allocator.code()?;
    let elsewhere = [Code { address: allocator.code_address, bytes: code }];
    let gaps = gaps(&target.maps, reserved);
    let mut pages = Pages::default();
    let (mut hooks, mut without) = (Vec::new(), Vec::new());
    for found in &allocator.functions {
        let Some(entry) = entry(found.name) else { continue };
        let function = found.function(allocator.code_address, code);
        let places = prologue::places_with(&function, &elsewhere);
        let is_whole = |place: &&Place| is_as_in_file(target, place);
        let placed = places.iter().filter(is_whole).find_map(|place| {
            // A copy: a place that does not fit leaves nothing.
            let mut with = pages.clone();
            let original = arrange(&mut with, &gaps, place, &function, entry)?;
            pages = with;
            Some(Placed { hook: hook(found, place), original, function: found.clone() })
        });
        match placed {
            Some(placed) => hooks.push(placed),
            None if crate::allocator::NEEDED.contains(&found.name) => {
                return Err(Refusal::NoPlace { function: found.name }.into());
            }
            None => without.push(found.name),
        }
    }
    let pages = pages.all.into_iter().map(|(start, page)| (start, page.bytes)).collect();
    Ok(Layout { hooks, without, pages })
}

/// Where pages may be: not where the image will be.
fn gaps(maps: &Maps, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let cut = |(from, to): (u64, u64)| [(from, to.min(start)), (from.max(end), to)];
    maps.gaps().into_iter().flat_map(cut).filter(|(from, to)| from < to).collect()
}

fn is_as_in_file(target: &Target, place: &Place) -> bool {
    let hook = hook_at(place);
    crate::hook::state(&target.memory, &hook).is_ok_and(|state| state == crate::hook::State::Out)
}

fn hook(found: &Found, place: &Place) -> Hook {
    Hook { name: found.name.to_owned(), ..hook_at(place) }
}

fn hook_at(place: &Place) -> Hook {
    Hook {
        name: String::new(),
        patch: place.patch,
        original: place.original,
        following: place.following,
        boundaries: place.boundaries,
    }
}

/// Writes what a place needs; where the function without the hook begins. `None`: it does not fit.
fn arrange(
    pages: &mut Pages,
    gaps: &[(u64, u64)],
    place: &Place,
    function: &Function,
    entry: u64,
) -> Option<u64> {
    // The trampolines first: their addresses are given. Each is as long whatever its pointer's address.
    let length = prologue::trampoline_length(place) as usize;
    for landing in &place.landings {
        pages.write(gaps, *landing, &vec![FILLER; length])?;
    }
    let mut slots = BTreeMap::new();
    for landing in &place.landings {
        let start = landing & !(PAGE - 1);
        let slot = match slots.get(&start) {
            Some(slot) => *slot,
            None => {
                let slot = pages.room(start, POINTER, POINTER)?;
                pages.write(gaps, slot, &entry.to_le_bytes())?;
                slots.insert(start, slot);
                slot
            }
        };
        let code = prologue::trampoline(place, *landing, slot).ok()?;
        overwrite(pages, *landing, &code);
    }
    slots.keys().find_map(|start| {
        let address = pages.room(*start, MAX_COPY_BYTES, ALIGNMENT)?;
        let code = prologue::original(place, function, address).ok()?;
        (code.len() as u64 <= MAX_COPY_BYTES).then_some(())?;
        pages.write(gaps, address, &code)?;
        Some(address)
    })
}

/// Writes where room was taken.
fn overwrite(pages: &mut Pages, address: u64, bytes: &[u8]) {
    for (address, byte) in (address..).zip(bytes) {
        let start = address & !(PAGE - 1);
        if let Some(page) = pages.all.get_mut(&start) {
            page.bytes[(address - start) as usize] = *byte;
        }
    }
}
