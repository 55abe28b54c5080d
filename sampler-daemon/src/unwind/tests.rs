//! Unwinds of real processes, compared with the program's own knowledge and with gdb.

use super::fixture::Fixture;
use super::{Frame, Image, ModuleKind, Modules, StackMemory, UnwindEnd};
use crate::symbolize::tests::symbolizer;
use sampler_common::share::Holder;
use std::sync::Arc;

struct Unwound {
    end: UnwindEnd,
    frames: Vec<Frame>,
    functions: Vec<String>,
}

fn unwind(
    image: &mut Image,
    modules: &mut Modules,
    fixture: &Fixture,
    stack: StackMemory<'_>,
) -> Unwound {
    let mut frames = Vec::new();
    let end = image.unwind(modules, fixture.registers(), stack, &mut frames);
    let functions = functions(modules, &frames);
    Unwound { end, frames, functions }
}

fn functions(modules: &Modules, frames: &[Frame]) -> Vec<String> {
    let locations: Vec<_> =
        frames.iter().map(|it| (Arc::clone(modules.get(it.module)), it.offset)).collect();
    let lines = symbolizer().symbolize(&locations);
    lines.iter().flat_map(|lines| lines.iter()).map(|line| line.function.clone()).collect()
}

/// Unwinds a scenario and compares every frame with gdb's.
fn compared(scenario: &str) -> Unwound {
    let fixture = Fixture::run(scenario, 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    eprintln!("{scenario}: {:?} {:?}", unwound.end, unwound.functions);
    if let Some(counters) = fixture.ask_gdb() {
        assert_eq!(unwound.frames.len(), counters.len(), "{:?} {counters:x?}", unwound.functions);
        for (frame, counter) in unwound.frames.iter().zip(&counters) {
            let exact = image.resolve(&mut modules, *counter);
            let before = image.resolve(&mut modules, *counter - 1);
            assert!(*frame == before || *frame == exact, "{frame:x?} is not at {counter:x}");
        }
    }
    unwound
}

#[track_caller]
fn starts_with(unwound: &Unwound, expected: &[&str]) {
    assert_eq!(unwound.functions[..expected.len().min(unwound.functions.len())], *expected);
}

#[test]
fn stacks_unwind_without_frame_pointers() {
    let unwound = compared("chain");
    starts_with(&unwound, &["leaf", "middle", "outer", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
    assert_eq!(unwound.functions.last().unwrap(), "_start");
}

#[test]
fn stacks_unwind_through_deep_recursion() {
    let unwound = compared("recursion");
    assert_eq!(unwound.functions.iter().filter(|it| *it == "recurse").count(), 201);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_frames_of_unknown_size() {
    let unwound = compared("dynamic");
    starts_with(&unwound, &["leaf", "middle", "outer", "dynamic", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_realigned_frames() {
    let unwound = compared("realigned");
    starts_with(&unwound, &["leaf", "middle", "outer", "realigned", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_callbacks_of_libraries() {
    let unwound = compared("callback");
    starts_with(&unwound, &["leaf", "middle", "outer", "compare"]);
    assert!(unwound.functions.contains(&"sorts".to_owned()));
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_signal_frames() {
    let unwound = compared("signal");
    starts_with(&unwound, &["leaf", "middle", "outer", "on_signal"]);
    // The restorer has no symbol in a stripped libc.
    assert_eq!(unwound.functions[5..8], ["trapped", "interrupted", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_a_signal_at_the_first_instruction() {
    let unwound = compared("signal-at-entry");
    assert_eq!(unwound.functions[5..8], ["trapped_at_entry", "interrupted_at_entry", "main"]);
}

#[test]
fn stacks_unwind_through_a_signal_in_a_library() {
    let unwound = compared("signal-in-libc");
    assert!(unwound.functions.contains(&"raises".to_owned()));
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn a_signal_stack_is_followed_to_its_end() {
    let fixture = Fixture::run("alternate-stack", 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let mut unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    starts_with(&unwound, &["leaf", "middle", "outer", "on_signal"]);
    unwound.functions.drain(..5);
    starts_with(&unwound, &["trapped"]);
    assert_eq!(unwound.end, UnwindEnd::Truncated);
}

#[test]
fn stacks_unwind_in_threads() {
    let unwound = compared("thread");
    starts_with(&unwound, &["leaf", "middle", "outer", "thread"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_inlined_calls() {
    let unwound = compared("inlined");
    starts_with(&unwound, &["leaf", "inner_inlined", "outer_inlined", "holds_inlined", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn stacks_unwind_through_jit_code() {
    let fixture = Fixture::run("jit", 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    starts_with(&unwound, &["leaf", "made at run time", "jitted", "main"]);
    // Whether the code keeps frame pointers is not known.
    assert_eq!(unwound.end, UnwindEnd::Guessed);
    let jit = modules.get(unwound.frames[1].module);
    assert_eq!(jit.path, format!("[jit {}]", fixture.pid()));
    assert!(matches!(jit.kind, ModuleKind::Jit(..)));
}

#[test]
fn a_short_snapshot_gives_a_prefix() {
    let fixture = Fixture::run("chain", 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let whole = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    let stack = fixture.stack();
    let mut lengths = Vec::new();
    for size in (0..stack.bytes.len()).step_by(8) {
        let cut = StackMemory { bytes: &stack.bytes[..size], ..stack };
        let mut frames = Vec::new();
        let end = image.unwind(&mut modules, fixture.registers(), cut, &mut frames);
        assert_eq!(frames, whole.frames[..frames.len()]);
        if end == UnwindEnd::Complete {
            assert_eq!(frames, whole.frames);
        } else {
            assert_eq!(end, UnwindEnd::Truncated);
        }
        lengths.push(frames.len());
    }
    assert!(lengths.is_sorted() && lengths[0] == 1);
    // A cut snapshot must not change what is remembered.
    let again = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    assert_eq!(again.frames, whole.frames);
}

#[test]
fn too_many_frames_are_truncated() {
    let fixture = Fixture::run("bottomless", 1 << 20);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    assert_eq!(unwound.end, UnwindEnd::Truncated);
    assert_eq!(unwound.frames.len(), sampler_common::limits::MAX_FRAMES);
}

#[test]
fn deleted_and_exited_programs_keep_their_names() {
    let mut fixture = Fixture::run("inlined", 256 * 1024);
    std::fs::remove_file(fixture.binary()).unwrap();
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let caller = image.resolve(&mut modules, fixture.registers().ip);
    let main = Arc::clone(modules.get(caller.module));
    if !matches!(main.kind, ModuleKind::File(_)) {
        eprintln!("NOTICE: NOT TESTED: a deleted binary can only be opened by root");
        return;
    }
    assert!(main.path.ends_with("/stacks"), "{}", main.path);
    assert_eq!(main.build_id.len(), 40);
    fixture.exit();
    let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    starts_with(&unwound, &["leaf", "inner_inlined", "outer_inlined", "holds_inlined", "main"]);
    assert_eq!(unwound.end, UnwindEnd::Complete);
}

#[test]
fn a_hijacked_return_address_is_put_back() {
    let fixture = Fixture::run("chain", 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let whole = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    // Replace the return address of `middle` in `leaf`'s frame, as the kernel does.
    let mut bytes = fixture.stack().bytes.to_vec();
    let caller = (0..bytes.len() / 8)
        .map(|word| word * 8)
        .find(|at| {
            let word = u64::from_le_bytes(bytes[*at..at + 8].try_into().unwrap());
            image.resolve(&mut modules, word.wrapping_sub(1)) == whole.frames[1]
        })
        .unwrap();
    let true_ip = u64::from_le_bytes(bytes[caller..caller + 8].try_into().unwrap());
    bytes[caller..caller + 8].copy_from_slice(&0x7fff_ffff_e000_u64.to_le_bytes());
    let slot = fixture.stack().start + caller as u64;
    let stack = StackMemory {
        start: fixture.stack().start,
        bytes: &bytes,
        hijacked: Some((slot, true_ip)),
    };
    let mended = unwind(&mut image, &mut modules, &fixture, stack);
    assert_eq!((mended.end, mended.frames), (UnwindEnd::Complete, whole.frames.clone()));
    let broken =
        unwind(&mut image, &mut modules, &fixture, StackMemory { hijacked: None, ..stack });
    assert_eq!((broken.end, broken.frames.len()), (UnwindEnd::Failed, 1));
}

#[test]
fn stacks_unwind_without_section_headers() {
    let strip = |binary: &std::path::Path| {
        assert!(std::process::Command::new("strip").arg(binary).status().unwrap().success());
        // e_shoff, e_shnum and e_shstrndx of the ELF header.
        let mut bytes = std::fs::read(binary).unwrap();
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        std::fs::write(binary, bytes).unwrap();
    };
    let fixture = Fixture::run_with("chain", 256 * 1024, &[], strip);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
    assert_eq!(unwound.end, UnwindEnd::Complete);
    assert_eq!(unwound.frames.len(), 7, "{:?}", unwound.functions);
    assert!(unwound.functions[0].starts_with("stacks+0x"), "{:?}", unwound.functions);
}

#[test]
fn binaries_of_several_layouts_are_unwound() {
    for flags in [
        &["-no-pie"][..],
        &["-static", "-no-pie"],
        &["-Wl,-z,separate-code"],
        &["-Wl,-z,noseparate-code"],
        &["-Wl,--no-eh-frame-hdr"],
    ] {
        let fixture = Fixture::run_with("chain", 256 * 1024, flags, |_| ());
        let mut modules = Modules::default();
        let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
        let unwound = unwind(&mut image, &mut modules, &fixture, fixture.stack());
        starts_with(&unwound, &["leaf", "middle", "outer", "main"]);
        assert_eq!(unwound.end, UnwindEnd::Complete, "{flags:?} {:?}", unwound.functions);
    }
}

#[test]
fn an_unmapped_address_is_named_unknown() {
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(std::process::id()), &mut modules).unwrap();
    let stack = StackMemory { start: 0x1000, bytes: &[], hijacked: None };
    let mut frames = Vec::new();
    let registers = super::Registers { ip: 0x10, sp: 0x1000, bp: 0 };
    assert_eq!(image.unwind(&mut modules, registers, stack, &mut frames), UnwindEnd::NoMapping);
    assert_eq!(functions(&modules, &frames), ["[unknown]+0xf"]);
}

#[test]
fn files_are_shared_between_images() {
    let mut modules = Modules::default();
    let _first = Image::open(Holder::of_unknown_user(std::process::id()), &mut modules).unwrap();
    let (held, bound) = modules.usage();
    let _second = Image::open(Holder::of_unknown_user(std::process::id()), &mut modules).unwrap();
    assert_eq!(modules.usage(), (held, bound));
    assert!(held > 2 && held < bound);
}

/// `cargo test --release -p sampler-daemon -- --ignored --nocapture warm` prints what a warm stack
/// costs.
#[test]
#[ignore = "a measurement"]
fn warm_stack() {
    let fixture = Fixture::run("recursion", 256 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let mut frames = Vec::new();
    image.unwind(&mut modules, fixture.registers(), fixture.stack(), &mut frames);
    let count = frames.len();
    let begin = std::time::Instant::now();
    const ROUNDS: u32 = 2000;
    for _ in 0..ROUNDS {
        frames.clear();
        image.unwind(&mut modules, fixture.registers(), fixture.stack(), &mut frames);
    }
    let each = begin.elapsed() / ROUNDS;
    eprintln!("{count} frames: {each:?}, {:?} per 20 frames", each * 20 / count as u32);
}

#[test]
fn code_mapped_later_is_found() {
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(std::process::id()), &mut modules).unwrap();
    // A library that nothing here has loaded. Mapping its pages stands for a dlopen.
    let library = ["/usr/lib/x86_64-linux-gnu/libz.so.1", "/lib/x86_64-linux-gnu/libm.so.6"];
    let Some(path) = library.iter().find(|path| std::fs::exists(path).unwrap()) else {
        eprintln!("NOTICE: NOT TESTED: no library to load");
        return;
    };
    let fixture = Fixture::run_with("dlopen", 64 * 1024, &[&format!("-DLIBRARY={path:?}")], |_| ());
    let mut child = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let before = modules.usage().0;
    fixture.go_on();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", fixture.pid())).unwrap();
    let name = path.rsplit('/').next().unwrap().split(".so").next().unwrap();
    let line = loop {
        let found = maps()
            .lines()
            .find(|line| line.contains(name) && line.contains("r-xp"))
            .map(str::to_owned);
        if let Some(line) = found {
            break line;
        }
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    };
    let address = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap() + 64;
    let frame = loop {
        let frame = child.resolve(&mut modules, address);
        if frame.module != super::ModuleId::UNKNOWN {
            break frame;
        }
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    };
    assert!(modules.get(frame.module).path.contains(name));
    assert!(modules.usage().0 > before);
    assert_eq!(image.resolve(&mut modules, 1).module, super::ModuleId::UNKNOWN);
}
