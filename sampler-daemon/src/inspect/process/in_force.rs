//! Which file's `malloc` a process uses: the first definition in link order.
//!
//! The loader keeps its list of files in link order: the program, the libraries of `LD_PRELOAD`,
//! then the needed libraries, breadth first. The structs are `r_debug` and `link_map` of link.h;
//! glibc and musl agree in the fields that are read here. The list is the target's memory, so its
//! length is bounded and nothing else in it is trusted.

use super::program::Program;
use crate::inspect::mappings::{Backing, Mapping};
use object::LittleEndian as LE;
use object::elf::{DT_DEBUG, Dyn64, PT_DYNAMIC, PT_INTERP};
use std::io;

/// Most files of the list that are read.
const MAX_FILES: usize = 4096;

/// Paths of the files of process `pid` in link order; empty for a static program, and before its
/// loader has run.
///
/// # Errors
/// If the process' memory cannot be read.
pub(in crate::inspect) fn link_order(pid: u32, mappings: &[Mapping]) -> io::Result<Vec<String>> {
    let program = Program::of(pid)?;
    let Some(mut map) = link_map(&program)? else { return Ok(Vec::new()) };
    let mut order = Vec::new();
    for _ in 0..MAX_FILES {
        // struct link_map { l_addr; l_name; l_ld; l_next; … }
        let [dynamic, next] = [program.word(map + 16)?, program.word(map + 24)?];
        let holds = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&dynamic);
        if let Some(Mapping { backing: Backing::File(path), .. }) = mappings.iter().find(holds) {
            order.push(path.clone());
        }
        if next == 0 {
            break;
        }
        map = next;
    }
    Ok(order)
}

/// Address of the first `struct link_map`.
fn link_map(program: &Program) -> io::Result<Option<u64>> {
    let (Some(dynamic), Some(_)) = (program.header(PT_DYNAMIC), program.header(PT_INTERP)) else {
        return Ok(None);
    };
    let count = dynamic.p_memsz.get(LE) / size_of::<Dyn64<LE>>() as u64;
    let entries: Vec<Dyn64<LE>> = program.table(program.address(dynamic), count)?;
    let debug = entries.iter().find(|entry| entry.d_tag.get(LE) == DT_DEBUG);
    match debug.map(|entry| entry.d_val.get(LE)).filter(|debug| *debug != 0) {
        // struct r_debug { r_version; r_map; … }
        Some(debug) => Ok(Some(program.word(debug + 8)?).filter(|map| *map != 0)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::mappings;

    #[test]
    fn our_own_files_are_in_link_order() {
        let pid = std::process::id();
        let order = link_order(pid, &mappings::read(pid).unwrap()).unwrap();
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(order.first().map(String::as_str), program.to_str(), "{order:?}");
        let libc = order.iter().position(|path| path.contains("libc.so.6"));
        assert!(libc.is_some_and(|at| at > 0), "{order:?}");
    }
}
