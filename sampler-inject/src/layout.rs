//! Chooses a hook place for each function of the target's allocator. [`crate::plan`] chooses the
//! pages to map.

use crate::allocator::{self, Allocator, Found};
use crate::hook;
use crate::plan::{self, Candidate};
use crate::preflight::Refusal;
use crate::prologue::{self, Code, HookPlace};
use crate::record::Hook;
use crate::target::Target;
use anyhow::Result;

/// A hook with its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The byte to write.
    pub hook: Hook,
    /// Address of the copy that runs as the function without the hook.
    pub original: u64,
    /// The hooked function.
    pub function: Found,
}

/// Hooks and pages.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Hooks in the order in which they are put in.
    pub hooks: Vec<Placed>,
    /// Names of functions without a place.
    pub without: Vec<&'static str>,
    /// Pages: address, content.
    pub pages: Vec<(u64, Vec<u8>)>,
}

/// Finds places for all functions. `reserved` is the range of the future image.
/// `entry` gives the address in the image to which a function's calls go.
///
/// # Errors
/// If a function that has to be hooked has no place.
pub fn layout(
    target: &Target,
    allocator: &Allocator,
    reserved: (u64, u64),
    entry: impl Fn(&str) -> Option<u64>,
) -> Result<Layout> {
    let code = allocator.code()?;
    let entries: Vec<u64> = allocator.functions.iter().map(|found| found.entry).collect();
    let elsewhere =
        prologue::jumps_to(&entries, Code { address: allocator.code_address, bytes: code });
    let has_entry = |found: &&Found| entry(found.name).is_some();
    let functions: Vec<&Found> = allocator.functions.iter().filter(has_entry).collect();
    let candidate = |found: &&Found| -> Result<Candidate> {
        let function = found.function(allocator.code_address, code);
        let mut places = Vec::new();
        for place in prologue::places_with(&function, &elsewhere) {
            if hook::state(&target.memory, &hook_at(&place))? == hook::State::Out {
                places.push(place);
            }
        }
        Ok(Candidate { function, places })
    };
    let candidates = functions.iter().map(candidate).collect::<Result<Vec<Candidate>>>()?;
    let plan = plan::plan(&candidates, &target.maps.layout().with(reserved.0..reserved.1));
    let unplaced = || plan.unplaced.iter().map(|at| functions[*at]);
    if let Some(needed) = unplaced().find(|function| allocator::is_needed(function.name)) {
        return Err(Refusal::NoPlace { function: needed.name }.into());
    }
    let without = unplaced().map(|function| function.name).collect();
    let pages = plan.contents(|at| entry(functions[at].name).unwrap_or(0))?;
    let placed = |of: &plan::Hook| {
        let function = functions[of.candidate].clone();
        let hook = Hook { name: function.name.to_owned(), ..hook_at(&of.place) };
        Placed { hook, original: of.original, function }
    };
    Ok(Layout {
        hooks: plan.hooks.iter().map(placed).collect(),
        without,
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
    }
}
