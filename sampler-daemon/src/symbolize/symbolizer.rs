//! Symbolizes frames of modules whose process may be gone.

use super::elf;
use super::vdso::Vdso;
use crate::unwind::{Module, ModuleId, ModuleKind};
use rustc_hash::FxHashMap;
use sampler_common::profile::Line;
use std::sync::Arc;

/// Locations remembered; when full, all are forgotten and looked up anew.
const MAX_LOCATIONS: usize = 1 << 20;

/// A name for the code of one file, however often it is mapped: modules with one build id share it.
type Unit = u32;

/// Symbolizes; caches by module (build id where there is one) and offset. Lives on one thread, and serves the
/// modules of one [`crate::unwind::Modules`].
pub struct Symbolizer {
    blazesym: blazesym::symbolize::Symbolizer,
    units: Units,
    locations: FxHashMap<(Unit, u64), Arc<[Line]>>,
    vdsos: FxHashMap<ModuleId, Vdso>,
}

impl Default for Symbolizer {
    fn default() -> Symbolizer {
        Symbolizer {
            blazesym: blazesym::symbolize::Symbolizer::builder().enable_demangling(false).build(),
            units: Units::default(),
            locations: FxHashMap::default(),
            vdsos: FxHashMap::default(),
        }
    }
}

impl Symbolizer {
    /// Lines of each frame `(module, offset as in crate::unwind::Frame)`, in the order asked: innermost inlined
    /// function first, at least one line each; where nothing is known, the function is `basename+0xoffset`.
    pub fn symbolize(&mut self, frames: &[(Arc<Module>, u64)]) -> Vec<Arc<[Line]>> {
        self.look_up_files(frames);
        let mut refreshed = Vec::new();
        frames
            .iter()
            .map(|(module, offset)| match &module.kind {
                ModuleKind::File(_) => {
                    let unit = self.units.of(module);
                    let known = self.locations.get(&(unit, *offset));
                    // Not there only if one call asks for more than the cache holds.
                    known.cloned().unwrap_or_else(|| nameless(module, *offset))
                }
                ModuleKind::Vdso(bytes) => {
                    let vdso = self.vdsos.entry(module.id).or_insert_with(|| Vdso::parse(bytes));
                    named(vdso.find(*offset), module, *offset)
                }
                ModuleKind::Jit(code, naming) => {
                    if !refreshed.contains(&module.id) {
                        code.refresh();
                        refreshed.push(module.id);
                    }
                    named(code.name(*offset, *naming).as_ref(), module, *offset)
                }
                ModuleKind::Unknown => nameless(module, *offset),
            })
            .collect()
    }

    /// Asks for all unknown locations of a file in one call: a call costs as much as many addresses.
    fn look_up_files(&mut self, frames: &[(Arc<Module>, u64)]) {
        let mut missing: FxHashMap<Unit, (&Arc<Module>, Vec<u64>)> = FxHashMap::default();
        for (module, offset) in frames {
            if let ModuleKind::File(_) = module.kind {
                let unit = self.units.of(module);
                if !self.locations.contains_key(&(unit, *offset)) {
                    missing.entry(unit).or_insert((module, Vec::new())).1.push(*offset);
                }
            }
        }
        let wanted: usize = missing.values().map(|(_, offsets)| offsets.len()).sum();
        if wanted > 0 && self.locations.len() + wanted > MAX_LOCATIONS {
            self.locations.clear();
            if wanted < frames.len() {
                // What was known is asked for as well.
                return self.look_up_files(frames);
            }
        }
        for (unit, (module, mut offsets)) in missing {
            let ModuleKind::File(file) = &module.kind else { continue };
            offsets.sort_unstable();
            offsets.dedup();
            let answers = elf::lines(&self.blazesym, file, &offsets);
            for (offset, answer) in offsets.into_iter().zip(answers) {
                let lines = answer.map_or_else(|| nameless(module, offset), Arc::from);
                self.locations.insert((unit, offset), lines);
            }
        }
    }
}

/// Numbers for build ids, and for modules that have none.
#[derive(Default)]
struct Units {
    by_module: FxHashMap<ModuleId, Unit>,
    by_build_id: FxHashMap<String, Unit>,
    next: Unit,
}

impl Units {
    fn of(&mut self, module: &Module) -> Unit {
        if let Some(unit) = self.by_module.get(&module.id) {
            return *unit;
        }
        let unit = match self.by_build_id.get(&module.build_id) {
            Some(unit) if !module.build_id.is_empty() => *unit,
            _ => {
                self.next += 1;
                self.next
            }
        };
        self.by_module.insert(module.id, unit);
        if !module.build_id.is_empty() {
            self.by_build_id.insert(module.build_id.clone(), unit);
        }
        unit
    }
}

fn named(name: Option<&Arc<str>>, module: &Module, offset: u64) -> Arc<[Line]> {
    match name {
        Some(name) => Arc::from([Line { function: name.to_string(), ..Line::default() }]),
        None => nameless(module, offset),
    }
}

fn nameless(module: &Module, offset: u64) -> Arc<[Line]> {
    let name = module.path.rsplit('/').next().unwrap_or(&module.path);
    Arc::from([Line { function: format!("{name}+{offset:#x}"), ..Line::default() }])
}
