//! Steps through every function of this machine's libraries, compared with framehop's.

use super::*;
use crate::unwind::StackMemory;
use crate::unwind::elf::{Headers, Sections};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use gimli::UnwindContext;
use std::fs::File;
use std::sync::Arc;

const STACK: u64 = 0x7ffd_0000_0000;
const STACK_BYTES: usize = 1 << 20;
const SP: u64 = STACK + 4096;
const BP: u64 = STACK + 8192;

/// A stack whose words all differ, and of which none is zero.
fn stack() -> Vec<u8> {
    (0..STACK_BYTES as u64 / 8).flat_map(|word| (0x5555_0000_0000 + word).to_le_bytes()).collect()
}

/// framehop's step at a stated address: ip, sp, bp of the caller; `None` at the root.
fn framehops(
    unwinder: &UnwinderX86_64<Arc<[u8]>>,
    cache: &mut CacheX86_64,
    svma: u64,
    reader: &mut Reader<'_>,
) -> Result<Option<(u64, u64, u64)>, framehop::Error> {
    let mut registers = UnwindRegsX86_64::new(svma + 1, SP, BP);
    let address = FrameAddress::from_return_address(svma + 1).unwrap();
    let caller = unwinder
        .unwind_frame(address, &mut registers, cache, &mut |at| reader.word(at).ok_or(()))?;
    Ok(caller.map(|ip| (ip, registers.sp(), registers.bp())))
}

#[test]
fn steps_equal_those_of_framehop_in_all_libraries() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains(".so"))
        .filter_map(|line| line.split_whitespace().nth(5))
        .collect();
    paths.dedup();
    assert!(paths.iter().any(|path| path.contains("libc.so")));
    let bytes = stack();
    let mut compared = 0;
    for path in paths {
        compared += compare(path, &bytes);
    }
    eprintln!("{compared} steps compared");
    assert!(compared > 10_000);
}

fn compare(path: &str, bytes: &[u8]) -> usize {
    let file = File::open(path).unwrap();
    assert!(Headers::of_file(&file).is_some());
    let sections = Sections::of_file(&file);
    let header = sections.eh_frame_hdr.clone().unwrap();
    let frame = sections.eh_frame.clone().unwrap();
    let text = sections.text_svma.clone().unwrap();
    let info = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: Some(text.clone()),
        got_svma: sections.got_svma.clone(),
        eh_frame_svma: Some(frame.svma),
        eh_frame: Some(frame.bytes),
        eh_frame_hdr_svma: Some(header.svma),
        eh_frame_hdr: Some(header.bytes),
        ..ExplicitModuleSectionInfo::default()
    };
    let mut unwinder = UnwinderX86_64::new();
    unwinder.add_module(framehop::Module::new(path.to_owned(), 0..u64::MAX, 0, info));
    let mut cache = CacheX86_64::new();
    let own_index = Sections { eh_frame_hdr: None, ..sections.clone() };
    let (cfi, unindexed) = (Cfi::new(sections).unwrap(), Cfi::new(own_index).unwrap());
    let mut context = UnwindContext::new();
    let mut reader = Reader::new(StackMemory { start: STACK, bytes, hijacked: None });
    let mut compared = 0;
    for svma in text.step_by(61) {
        let rule = cfi.rule(svma, &mut context);
        assert_eq!(rule, unindexed.rule(svma, &mut context), "{path} {svma:#x}");
        let Some(rule) = rule else { continue };
        let mut state = State::new(Registers { ip: svma + 1, sp: SP, bp: BP });
        let Ok(caller) = state.by_rule(&rule, Some(&cfi), &mut reader) else { continue };
        if let Cfa::Offset(register, _) = rule.cfa
            && register != X86_64::RSP
            && register != X86_64::RBP
        {
            continue;
        }
        let theirs = framehops(&unwinder, &mut cache, svma, &mut reader);
        let ours = (caller != Caller::None).then_some((
            state.ip,
            state.sp,
            state.saved[RBP].map(|it| it.value),
        ));
        match theirs {
            Ok(theirs) => {
                let theirs = theirs.map(|(ip, sp, bp)| (ip, sp, Some(bp)));
                if !rule.has_expression() {
                    assert_eq!(ours, theirs, "{path} {svma:#x} {rule:?}");
                    compared += 1;
                }
            }
            Err(error) => assert!(rule.has_expression(), "{path} {svma:#x} {error}"),
        }
    }
    compared
}
