//! Which function has which probe.

use super::hits;
use crate::bpf::link::Points;
use crate::bpf::sys::ground::Function;
use sampler_common::cost::Program;
use sampler_common::wire::{Cookie, Role, SHARED};

/// The probed function of a program.
pub(super) fn probed(program: Program, stepped: bool) -> Function {
    Function(program as usize * 2 + usize::from(stepped))
}

/// Its twin without a probe.
pub(super) fn twin(program: Program, stepped: bool) -> Function {
    Function(2 * Program::ALL.len() + probed(program, stepped).0)
}

const _: () = assert!(4 * Program::ALL.len() <= Function::COUNT);

/// The role that stands for all that go a program's way.
fn role(program: Program) -> Role {
    match program {
        Program::Malloc => Role::Malloc,
        Program::Shaped => Role::Calloc,
        Program::New => Role::New,
        Program::Free => Role::Free,
    }
}

/// Probes on all functions, for the calling process in `slot`.
pub(super) fn points(slot: u32, track_live: bool, by_pid: bool) -> Points {
    let slot = if by_pid { SHARED } else { slot };
    let mut points = Points::default();
    for (program, stepped) in hits(track_live) {
        let point = (probed(program, stepped).offset() as u64, Cookie::new(slot, role(program)).0);
        match program {
            Program::Free => points.freeing.push(point),
            Program::New => points.entering.push(point),
            Program::Malloc | Program::Shaped => points.allocating.push(point),
        }
    }
    points
}
