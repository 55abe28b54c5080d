//! Names that were looked up, by module and offset.

use crate::unwind::{Module, ModuleId};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::profile::Line;
use std::sync::{Arc, Weak};

/// Bounds of all names together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of locations.
    pub(super) locations: usize,
    /// Maximum bytes of names.
    pub(super) bytes: usize,
}

/// Part of the bound on locations after which gone modules are looked for.
const GROWTH_PARTS: usize = 64;

/// Names by module and offset. The names of a module are forgotten when no stack and no process
/// needs the module any more.
pub(super) struct CachedLines {
    bounds: Bounds,
    lines: FxHashMap<(ModuleId, u64), Arc<[Line]>>,
    lives: FxHashMap<ModuleId, Weak<()>>,
    /// Bytes of all names.
    bytes: usize,
    /// Number of locations after gone modules were last forgotten.
    collected: usize,
}

impl CachedLines {
    pub(super) fn new(bounds: Bounds) -> CachedLines {
        CachedLines {
            bounds,
            lines: FxHashMap::default(),
            lives: FxHashMap::default(),
            bytes: 0,
            collected: 0,
        }
    }

    pub(super) fn get(&self, module: ModuleId, offset: u64) -> Option<&Arc<[Line]>> {
        self.lines.get(&(module, offset))
    }

    pub(super) fn insert(&mut self, module: &Module, offset: u64, lines: Arc<[Line]>) {
        self.bytes += size(&lines);
        self.lives.entry(module.id).or_insert_with(|| Arc::downgrade(&module.life));
        if let Some(before) = self.lines.insert((module.id, offset), lines) {
            self.bytes -= size(&before);
        }
    }

    /// Makes room for this many locations. Names of gone modules are forgotten first. Returns
    /// false if all names had to be forgotten.
    pub(super) fn make_room(&mut self, locations: usize) -> bool {
        let wanted = self.lines.len() + locations;
        if wanted >= self.collected + self.bounds.locations / GROWTH_PARTS {
            let gone = self.lives.iter().filter(|(_, life)| life.strong_count() == 0);
            let gone = gone.map(|(id, _)| *id).collect();
            self.forget(&gone);
            self.collected = self.lines.len();
        }
        let fits = self.lines.len() + locations <= self.bounds.locations
            && self.bytes <= self.bounds.bytes;
        if !fits {
            *self = CachedLines::new(self.bounds);
        }
        fits
    }

    /// Forgets the names of modules.
    pub(super) fn forget(&mut self, modules: &FxHashSet<ModuleId>) {
        if modules.is_empty() {
            return;
        }
        self.lives.retain(|id, _| !modules.contains(id));
        let bytes = &mut self.bytes;
        self.lines.retain(|(module, _), lines| {
            let stays = !modules.contains(module);
            if !stays {
                *bytes -= size(lines);
            }
            stays
        });
    }
}

/// Bytes of names.
pub(super) fn size(lines: &[Line]) -> usize {
    lines.iter().map(|line| line.function.len() + line.file.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::{Life, ModuleKind};

    const BOUNDS: Bounds = Bounds { locations: 6400, bytes: 1 << 20 };

    fn module(id: u32) -> Arc<Module> {
        Arc::new(Module {
            id: ModuleId(id),
            path: format!("/lib/{id}"),
            build_id: String::new(),
            code: Vec::new(),
            kind: ModuleKind::Unknown,
            life: Life::default(),
        })
    }

    fn lines(name: &str) -> Arc<[Line]> {
        Arc::from([Line { function: name.into(), ..Line::default() }])
    }

    #[test]
    fn names_of_gone_modules_are_forgotten() {
        let mut cached = CachedLines::new(BOUNDS);
        let stays = module(0);
        cached.insert(&stays, 7, lines("main"));
        // The kind of a module may change, while its names stay.
        let stays = Arc::new(Module { kind: ModuleKind::Closed, ..Module::clone(&stays) });
        for id in 1..10_000 {
            let gone = module(id);
            assert!(cached.make_room(10));
            (0..10).for_each(|offset| cached.insert(&gone, offset, lines("f")));
        }
        assert!(cached.lines.len() <= 200, "{} locations", cached.lines.len());
        assert!(cached.lives.len() <= 20 && cached.bytes <= 204);
        assert_eq!(cached.get(stays.id, 7), Some(&lines("main")));
    }

    #[test]
    fn at_a_bound_all_names_are_forgotten() {
        let mut cached = CachedLines::new(BOUNDS);
        let one = module(1);
        assert!(cached.make_room(6400));
        (0..6400).for_each(|offset| cached.insert(&one, offset, lines("f")));
        assert!(cached.make_room(0));
        assert!(!cached.make_room(1));
        assert_eq!((cached.lines.len(), cached.bytes), (0, 0));
        cached.insert(&one, 1, lines(&"f".repeat(BOUNDS.bytes + 1)));
        assert!(!cached.make_room(1));
    }
}
