//! Chooses a hook place for each function of the target's allocators. [`crate::plan`] chooses the
//! pages to map.

use crate::allocator::{self, Allocators, Found, ServedBy};
use crate::families::Shape;
use crate::hook;
use crate::plan::{self, Candidate, HEAP_GROWTH_BYTES, Plan};
use crate::preflight::Refusal;
use crate::prologue::{self, Code, HookPlace};
use crate::record::{Hook, MAX_HOOKS};
use crate::target::Target;
use anyhow::Result;
use std::collections::HashMap;

/// A hook with its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The byte to write.
    pub hook: Hook,
    /// Address of the copy that runs as the function without the hook.
    pub original: u64,
    /// The hooked function.
    pub function: Found,
    /// The library's function that the hook leads to.
    pub server: String,
}

/// Hooks and pages.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Hooks in the order in which they are put in.
    pub hooks: Vec<Placed>,
    /// Names of functions without a place.
    pub without: Vec<String>,
    /// One line for each allocator that is called past `malloc` and is not hooked.
    pub left_out: Vec<String>,
    /// Pages: address, content.
    pub pages: Vec<(u64, Vec<u8>)>,
}

/// A function to hook.
struct Wanted<'a> {
    /// Index of the function's allocator.
    allocator: usize,
    function: &'a Found,
    candidate: Candidate<'a>,
    /// Whether another tool's breakpoint takes one of the function's places.
    has_breakpoint: bool,
    /// The library's function that the hook leads to.
    server: String,
}

impl Wanted<'_> {
    fn is_past_malloc(&self) -> bool {
        self.function.served_by != ServedBy::Namesake
    }

    fn is_needed(&self) -> bool {
        self.is_past_malloc() || allocator::is_needed(&self.function.name)
    }

    /// Why the function has no place.
    fn no_place(&self) -> Refusal {
        let function = self.function.name.clone();
        match self.has_breakpoint {
            true => Refusal::Breakpoint { function },
            false => Refusal::NoPlace { function },
        }
    }
}

/// Finds places for all functions. `reserved` is the range of the future image.
/// `entry` gives the address in the image to which a function's calls go.
///
/// An allocator that is called past `malloc` is hooked with all its functions, or left out.
///
/// # Errors
/// If a function that has to be hooked has no place.
pub fn layout(
    target: &Target,
    allocators: &Allocators,
    reserved: (u64, u64),
    entry: impl Fn(&str) -> Option<u64>,
) -> Result<Layout> {
    let mut left_out = allocators.left_out.clone();
    let mut without = Vec::new();
    let mut wanted = wanted(target, allocators, &entry)?;
    loop {
        let (at, refusal) = match serve(&mut wanted, &entry) {
            Some(at) => (at, Refusal::NoSlot { function: wanted[at].function.name.clone() }),
            None => {
                let plan = make_plan(target, &wanted, reserved);
                if let Some(at) = without_source(&wanted, &plan) {
                    without.push(wanted.remove(at).function.name.clone());
                    continue;
                }
                let Some(at) = plan.unplaced.iter().find(|at| wanted[**at].is_needed()) else {
                    let mut layout = made(&wanted, &plan, left_out, entry)?;
                    layout.without.extend(without);
                    return Ok(layout);
                };
                (*at, wanted[*at].no_place())
            }
        };
        let allocator = wanted[at].allocator;
        let Some(title) = &allocators.all[allocator].past_malloc else {
            return Err(refusal.into());
        };
        left_out.push(format!("{title}: {refusal}"));
        wanted.retain(|of| of.allocator != allocator);
    }
}

/// A placed `operator new` with an alignment, if `aligned_alloc` has no place. A sampled call of
/// such an operator takes its block from there.
fn without_source(wanted: &[Wanted<'_>], plan: &Plan) -> Option<usize> {
    let placed = || plan.hooks.iter().map(|of| of.candidate);
    let name = |at: usize| &*wanted[at].function.name;
    if placed().any(|at| name(at) == "aligned_alloc") {
        return None;
    }
    placed().find(|at| name(*at).starts_with("_Zn") && name(*at).contains("St11align_val_t"))
}

/// All functions with their places, frees first.
fn wanted<'a>(
    target: &Target,
    allocators: &'a Allocators,
    entry: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<Wanted<'a>>> {
    let mut wanted = Vec::new();
    for (index, allocator) in allocators.all.iter().enumerate() {
        let code = allocator.code()?;
        let entries: Vec<u64> = allocator.functions.iter().map(|found| found.entry).collect();
        let elsewhere =
            prologue::jumps_to(&entries, Code { address: allocator.code_address, bytes: code });
        for found in &allocator.functions {
            if found.served_by == ServedBy::Namesake && entry(&found.name).is_none() {
                continue;
            }
            let function = found.function(allocator.code_address, code);
            let (mut places, mut has_breakpoint) = (Vec::new(), false);
            for place in prologue::places_with(&function, &elsewhere) {
                match hook::state(&target.memory, &hook_at(&place)) {
                    hook::State::Out => places.push(place),
                    _ => has_breakpoint = true,
                }
            }
            wanted.push(Wanted {
                allocator: index,
                function: found,
                candidate: Candidate { function, places },
                has_breakpoint,
                server: String::new(),
            });
        }
    }
    // The sampler must see the free of every allocation that it reports.
    wanted.sort_by_key(|of| !of.function.is_free);
    Ok(wanted)
}

/// Chooses the library's function for each. Returns one for which the library has none, or the
/// record no room.
fn serve(wanted: &mut [Wanted<'_>], entry: impl Fn(&str) -> Option<u64>) -> Option<usize> {
    if wanted.len() > MAX_HOOKS {
        return (0..wanted.len()).max_by_key(|at| wanted[*at].allocator);
    }
    let mut used: HashMap<Shape, usize> = HashMap::new();
    for (at, of) in wanted.iter_mut().enumerate() {
        of.server = match of.function.served_by {
            ServedBy::Namesake => of.function.name.clone(),
            ServedBy::Slot(shape) => {
                let number = used.entry(shape).or_default();
                *number += 1;
                shape.slot(*number - 1)
            }
        };
        if entry(&of.server).is_none() {
            return Some(at);
        }
    }
    None
}

/// Plans with much room for the heap, or with less if a needed function has no place else.
fn make_plan(target: &Target, wanted: &[Wanted<'_>], reserved: (u64, u64)) -> Plan {
    let candidates: Vec<Candidate<'_>> = wanted.iter().map(|of| of.candidate.clone()).collect();
    let plan = |heap_growth| {
        let layout = target.maps.layout(heap_growth).with(reserved.0..reserved.1);
        plan::plan(&candidates, &layout)
    };
    let is_whole = |plan: &Plan| plan.unplaced.iter().all(|at| !wanted[*at].is_needed());
    let [much, less] = HEAP_GROWTH_BYTES;
    Some(plan(much)).filter(is_whole).unwrap_or_else(|| plan(less))
}

fn made(
    wanted: &[Wanted<'_>],
    plan: &Plan,
    left_out: Vec<String>,
    entry: impl Fn(&str) -> Option<u64>,
) -> Result<Layout> {
    let pages = plan.contents(|at| entry(&wanted[at].server).unwrap_or(0))?;
    let placed = |of: &plan::Hook| {
        let Wanted { function, server, .. } = &wanted[of.candidate];
        let hook = Hook {
            name: function.name.clone(),
            is_past_malloc: wanted[of.candidate].is_past_malloc(),
            ..hook_at(&of.place)
        };
        let function = (*function).clone();
        Placed { hook, original: of.original, function, server: server.clone() }
    };
    Ok(Layout {
        hooks: plan.hooks.iter().map(placed).collect(),
        without: plan.unplaced.iter().map(|at| wanted[*at].function.name.clone()).collect(),
        left_out,
        pages: pages.into_iter().map(|page| (page.address, page.bytes)).collect(),
    })
}

fn hook_at(place: &HookPlace) -> Hook {
    Hook {
        name: String::new(),
        patch: place.patch,
        original: place.original,
        following: place.following,
        boundaries: place.boundaries,
        is_past_malloc: false,
        prefix: place.prefix.unwrap_or(0),
    }
}
