//! The probes of the calibration's functions.

use super::{ProbeSetup, hits};
use crate::bpf::link::Points;
use crate::bpf::sys::ground::Function;
use crate::bpf::usdt::UsdtPoint;
use sampler_common::cost::Program;
use sampler_common::wire::{Cookie, Operand, OperandKind, Role, SHARED, Site};

/// The probed function of a program.
pub(super) fn probed(program: Program, stepped: bool) -> Function {
    match program.is_usdt() {
        true => Function::nop(program as usize * 2),
        false => Function(program as usize * 2 + usize::from(stepped)),
    }
}

/// The twin of the probed function, without a probe.
pub(super) fn twin(program: Program, stepped: bool) -> Function {
    match program.is_usdt() {
        true => Function::nop(program as usize * 2 + 1),
        false => Function(2 * Program::ALL.len() + probed(program, stepped).0),
    }
}

// Each half of the functions has room for all programs.
const _: () = assert!(4 * Program::ALL.len() <= Function::COUNT / 2);
const _: () = assert!(2 * Program::ALL.len() <= Function::COUNT / 2);

/// The role that stands for all roles with this program.
fn role(program: Program) -> Role {
    match program {
        Program::Malloc => Role::Malloc,
        Program::Sized => Role::Calloc,
        Program::New => Role::New,
        Program::Free => Role::Free,
        Program::OtelAlloc => Role::OtelAlloc,
        Program::OtelFree => Role::OtelFree,
    }
}

/// Probes on all functions; the calling process has `slot`.
pub(super) fn points(slot: u32, track_live: bool, way: ProbeSetup) -> Points {
    let slot = if way.by_pid { SHARED } else { slot };
    let mut points = Points::default();
    for (program, stepped) in hits(track_live).filter(|(program, _)| !program.is_usdt()) {
        let cookie = Cookie::new(slot, role(program)).placed(!stepped);
        let point = (probed(program, stepped).offset() as u64, cookie.0);
        match program {
            Program::Free => points.freeing.push(point),
            Program::New => points.entering.push(point),
            _ => points.allocating.push(point),
        }
    }
    points
}

/// USDTs on the functions that stand for them. The USDT's arguments are the function's arguments.
pub(super) fn usdt_points(track_live: bool) -> Vec<UsdtPoint> {
    let register = |register| Operand {
        register,
        index: Operand::NO_INDEX,
        kind: OperandKind::Register as u8,
        ..Operand::default()
    };
    let site = Site { arguments: Site::REGISTERS.map(register) };
    let usdts = hits(track_live).filter(|(program, _)| program.is_usdt());
    let point = |(program, stepped)| UsdtPoint {
        is_in_library: false,
        role: role(program),
        offset: probed(program, stepped).offset() as u64,
        semaphore: None,
        site,
    };
    usdts.map(point).collect()
}
