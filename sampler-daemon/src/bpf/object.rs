//! The compiled eBPF object, read a second time for the programs that aya cannot load.
//!
//! aya loads the object and makes its maps. But aya fixes the attach type of a uprobe program, and
//! each engine needs its own. So the same bytes are parsed again, relocated against those maps,
//! and loaded by `bpf(2)` with the engine's attach type.
//!
//! The object's types (BTF) are loaded as well. They tell the verifier which functions are global:
//! those with external linkage. The verifier checks a global function once, with arguments of any
//! value, and not at every call.

use super::{sys, verifier};
use anyhow::{Context as _, anyhow};
use aya_obj::Object;
use aya_obj::btf::BtfFeatures;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::thread::{self, ScopedJoinHandle};

/// BTF features that all supported kernels know: functions with their linkage, and variables.
const TYPES: BtfFeatures = BtfFeatures::new(true, true, true, true, false, false, false, false);

/// The object with its maps relocated.
pub struct ProgramText {
    object: Object,
    /// Descriptor of the loaded types.
    types: OwnedFd,
}

impl ProgramText {
    /// Parses `bytes` and relocates them against the maps whose descriptors are given by name.
    pub fn new(bytes: &[u8], maps: &HashMap<String, RawFd>) -> anyhow::Result<ProgramText> {
        let mut object = Object::parse(bytes).context("parse the eBPF object")?;
        let declared = mem::take(&mut object.maps);
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let located = declared
            .iter()
            .map(|(name, map)| {
                let fd = maps.get(name).with_context(|| format!("map {name} was not made"))?;
                Ok((name.as_str(), *fd, map))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        object
            .relocate_maps(located.into_iter(), &text)
            .map_err(|error| anyhow!("relocate the maps of the eBPF object: {error}"))?;
        object
            .relocate_calls(&text)
            .map_err(|error| anyhow!("relocate the calls of the eBPF object: {error}"))?;
        let types = object.fixup_and_sanitize_btf(&TYPES).context("read the object's types")?;
        let types = types.context("the eBPF object has no types")?.to_bytes();
        let types = sys::load_types(&types).context("load the types of the eBPF object")?;
        Ok(ProgramText { object, types })
    }

    /// Loads several programs at the same time, each by its name and for its attach type.
    ///
    /// # Errors
    /// The first error of the programs.
    pub fn load_all<const N: usize>(
        &self,
        programs: [(&str, u32); N],
    ) -> anyhow::Result<[OwnedFd; N]> {
        let all = thread::scope(|scope| {
            let start = |(name, attach)| {
                let load = move || self.load(name, attach);
                thread::Builder::new().spawn_scoped(scope, load).context("start a thread")
            };
            let end = |one: anyhow::Result<ScopedJoinHandle<'_, _>>| {
                one?.join().unwrap_or_else(|_| Err(anyhow!("load eBPF programs")))
            };
            programs.map(start).map(end).into_iter().collect::<anyhow::Result<Vec<OwnedFd>>>()
        })?;
        all.try_into().map_err(|_| anyhow!("load eBPF programs"))
    }

    /// Loads the program `name` for `attach_type`.
    pub fn load(&self, name: &str, attach_type: u32) -> anyhow::Result<OwnedFd> {
        let program = self
            .object
            .programs
            .get(name)
            .with_context(|| format!("program {name} is not in the eBPF object"))?;
        let function = self
            .object
            .functions
            .get(&program.function_key())
            .with_context(|| format!("program {name} has no code in the eBPF object"))?;
        let mut code = Vec::with_capacity(function.instructions.len() * 8);
        for instruction in &function.instructions {
            code.push(instruction.code);
            code.push(instruction.dst_reg() | instruction.src_reg() << 4);
            code.extend_from_slice(&instruction.off.to_le_bytes());
            code.extend_from_slice(&instruction.imm.to_le_bytes());
        }
        let functions = function.func_info.func_info_bytes();
        let types = Some((self.types.as_fd(), &functions[..]));
        let loaded = sys::load_program(name, &code, types, attach_type)
            .with_context(|| format!("load the eBPF program {name}"))?;
        verifier::note(name, loaded.as_fd());
        Ok(loaded)
    }
}
