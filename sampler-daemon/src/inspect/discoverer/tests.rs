use super::super::allocator::Function;
use super::super::discovery::MAX_BLIND_SPOTS;
use super::*;
use crate::running::Running;
use sampler_common::wire::Role;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Starts a program, and waits until its own code is mapped and its loader has finished.
fn start(program: &Path, arguments: &[&str]) -> Running {
    let mut running = Running::start(Command::new(program).args(arguments).stdout(Stdio::piped()));
    if arguments.is_empty() {
        let mut byte = [0];
        let mut output = running.0.stdout.take().unwrap();
        std::io::Read::read_exact(&mut output, &mut byte).unwrap();
    }
    running
}

const PROGRAM: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    void *volatile p = malloc(100);
    free(p);
    write(1, "r", 1);
    pause();
}
"#;

/// Compiles C. This project needs gcc to build and to test.
fn compile(directory: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let (input, output) = (directory.join("program.c"), directory.join("program"));
    fs::write(&input, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-o"]).arg(&output).arg(&input).args(arguments);
    assert!(compiler.status().expect("cc (install gcc)").success());
    output
}

fn discover(pid: u32) -> Discovery {
    Discoverer::default().discover(pid).unwrap()
}

/// Checks what holds for a glibc of any version.
fn assert_sound(allocator: &Allocator) {
    assert_eq!(allocator.name, "glibc");
    let find = |name: &str| {
        let has = |function: &&Function| function.symbols.iter().any(|symbol| symbol == name);
        let found: Vec<_> = allocator.functions.iter().filter(has).collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", allocator.functions);
        found[0].clone()
    };
    for (name, role) in [
        ("malloc", Role::Malloc),
        ("calloc", Role::Calloc),
        ("realloc", Role::Realloc),
        ("memalign", Role::AlignedAlloc),
        ("posix_memalign", Role::PosixMemalign),
        ("valloc", Role::Malloc),
        ("free", Role::Free),
        ("mmap", Role::Map),
        ("munmap", Role::Unmap),
        ("mremap", Role::Remap),
        ("sbrk", Role::MoveBreak),
    ] {
        assert_eq!(find(name).role, role, "{name}");
    }
    assert_eq!(find("malloc").symbols[0], "malloc");
    assert_eq!(find("__libc_malloc"), find("malloc"));
    let mut offsets: Vec<u64> = allocator.functions.iter().map(|f| f.offset).collect();
    offsets.dedup();
    assert_eq!(offsets.len(), allocator.functions.len());
    // The probed instruction is the instruction in the file.
    for function in &allocator.functions {
        let mut bytes = [0; 16];
        let at = function.offset + u64::from(function.placement.displacement);
        std::os::unix::fs::FileExt::read_exact_at(&*allocator.file, &mut bytes, at).unwrap();
        let mut decoder = iced_x86::Decoder::new(64, &bytes, 0);
        let length = decoder.decode().len();
        let emulated = super::super::code::emulated::is_emulated(&bytes[..length]);
        assert_eq!(emulated, function.placement.emulated, "{function:?}");
    }
}

fn only(discovery: &Discovery) -> &Allocator {
    assert_eq!(discovery.allocators.len(), 1, "{discovery:?}");
    assert_sound(&discovery.allocators[0]);
    &discovery.allocators[0]
}

#[test]
fn our_own_process_has_glibc() {
    let discovery = discover(std::process::id());
    let allocator = only(&discovery);
    assert!(allocator.path.contains("libc"), "{}", allocator.path);
    assert!(allocator.build_id.len() >= 32, "{}", allocator.build_id);
}

/// The probe placements in Debian 12's libc, measured with real probes.
#[test]
fn placements_in_glibc_2_36_are_those_measured() {
    let version = Command::new("ldd").arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("2.36") {
        return eprintln!("NOT RUN: the measured spots are those of glibc 2.36");
    }
    let discovery = discover(std::process::id());
    let spots: Vec<(&str, u32)> = only(&discovery)
        .functions
        .iter()
        // The mapping functions are rare, and one of them is single-stepped.
        .filter(|f| !f.role.is_mapping())
        .map(|f| (f.symbols[0].as_str(), f.placement.displacement))
        .collect();
    let measured = [
        ("malloc", 0),
        // Behind the branch by which `free(NULL)` leaves.
        ("free", 9),
        ("realloc", 0),
        ("aligned_alloc", 7),
        ("valloc", 7),
        ("pvalloc", 7),
        ("calloc", 0),
        ("posix_memalign", 7),
    ];
    assert_eq!(spots, measured);
    let mut functions = only(&discovery).functions.iter();
    assert!(functions.all(|f| f.placement.emulated || f.role.is_mapping()));
}

#[test]
fn a_child_has_the_same_allocator() {
    let child = start(Path::new("sleep"), &["100"]);
    // The program's loader may still be at work.
    let deadline = Instant::now() + Duration::from_secs(20);
    let discovery = loop {
        let discovery = discover(child.pid());
        if !discovery.allocators.is_empty() {
            break discovery;
        }
        assert!(Instant::now() < deadline, "{discovery:?}");
        std::thread::sleep(Duration::from_millis(2));
    };
    let ours = discover(std::process::id());
    assert_eq!(only(&discovery).identity, only(&ours).identity);
    assert_eq!(only(&discovery).functions, only(&ours).functions);
}

#[test]
fn a_static_program_is_its_own_allocator() {
    for kind in ["-static", "-static-pie"] {
        let directory = TempDir::new().unwrap();
        let program = compile(directory.path(), PROGRAM, &[kind]);
        let child = start(&program, &[]);
        let discovery = discover(child.pid());
        assert_eq!(only(&discovery).path, program.to_string_lossy());
        assert!(discovery.blind_spots.is_empty(), "{discovery:?}");
    }
}

#[test]
fn a_stripped_static_program_is_blind() {
    let directory = TempDir::new().unwrap();
    let program = compile(directory.path(), PROGRAM, &["-static", "-s"]);
    let child = start(&program, &[]);
    let discovery = discover(child.pid());
    assert!(discovery.allocators.is_empty());
    assert_eq!(discovery.blind_spots.len(), 1, "{discovery:?}");
    let BlindSpot { place, why } = &discovery.blind_spots[0];
    assert!(*place == program.to_string_lossy() && why.contains("stripped"), "{place}: {why}");
}

#[test]
fn an_interposer_is_named_in_addition_to_glibc() {
    let directory = TempDir::new().unwrap();
    let source = format!(
        "{PROGRAM}
        static char arena[1 << 20]; static size_t used;
        void *malloc(size_t n) {{ void *p = arena + used; used += n + 15 & -16; return p; }}
        void free(void *p) {{}}"
    );
    let program = compile(directory.path(), &source, &[]);
    let child = start(&program, &[]);
    let discovery = discover(child.pid());
    only(&discovery);
    assert_eq!(discovery.blind_spots.len(), 1, "{discovery:?}");
    let BlindSpot { place, why } = &discovery.blind_spots[0];
    assert!(*place == program.to_string_lossy() && why.contains("not seen"), "{place}: {why}");
}

#[test]
fn a_private_allocator_is_named() {
    let directory = TempDir::new().unwrap();
    let source = format!("{PROGRAM} void *mi_malloc(size_t n) {{ return 0; }}");
    let program = compile(directory.path(), &source, &[]);
    let child = start(&program, &[]);
    let discovery = discover(child.pid());
    let names: Vec<&str> = discovery.allocators.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["mimalloc", "glibc"], "{discovery:?}");
    assert_eq!(discovery.allocators[0].functions[0].symbols, ["mi_malloc"]);
    // The library does not replace malloc.
    assert_eq!(discovery.in_force.map(|of| of.name).as_deref(), Some("glibc"));
}

#[test]
fn a_deleted_program_is_still_read() {
    let directory = TempDir::new().unwrap();
    let program = compile(directory.path(), PROGRAM, &["-static"]);
    let child = start(&program, &[]);
    fs::remove_file(&program).unwrap();
    fs::write(&program, "another file under the same name").unwrap();
    if fs::read_dir("/proc/self/map_files")
        .unwrap()
        .flatten()
        .any(|f| fs::metadata(f.path()).is_err())
    {
        return eprintln!("NOT RUN: opening a deleted file that is mapped needs root");
    }
    let discovery = discover(child.pid());
    assert_eq!(only(&discovery).path, program.to_string_lossy());
}

#[test]
fn files_are_remembered_up_to_the_bound() {
    let mut discoverer = Discoverer::default();
    let first = discoverer.discover(std::process::id()).unwrap();
    let files = discoverer.remembered.len();
    assert!(files >= 3);
    let second = discoverer.discover(std::process::id()).unwrap();
    assert_eq!(discoverer.remembered.len(), files);
    assert_eq!(only(&first).functions, only(&second).functions);
    // A small file: it is read anew each time.
    let program = Arc::new(File::open("/bin/true").unwrap());
    let version = Version::of(&program).unwrap();
    for size in 0..2 * REMEMBERED_FILES as u64 {
        discoverer.read(Version { size, ..version }, &program, "").unwrap();
        assert!(discoverer.remembered.len() <= REMEMBERED_FILES);
    }
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    // The child is a zombie first, and still has its directory in /proc.
    let error = loop {
        match Discoverer::default().discover(child.id()) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "waited too long"),
        }
    };
    assert!(error.to_string().starts_with("read /proc/"), "{error}");
    child.wait().unwrap();
    let error = Discoverer::default().discover(child.id()).unwrap_err();
    assert!(error.to_string().starts_with("read /proc/"), "{error}");
}

#[test]
fn the_number_of_blind_reasons_is_bounded() {
    let blind_spots = (0..MAX_BLIND_SPOTS + 3).map(|line| line.to_string().into()).collect();
    let mut discovery = Discovery { blind_spots, ..Discovery::default() };
    discovery.shorten();
    assert_eq!(discovery.blind_spots.len(), MAX_BLIND_SPOTS + 1);
    assert_eq!(discovery.blind_spots[MAX_BLIND_SPOTS].why, "and 3 more files");
}

#[test]
fn the_first_and_last_of_too_many_files_are_searched() {
    let mut few: Vec<usize> = (0..MAX_FILES).collect();
    assert_eq!((drop_middle_files(&mut few), few.len()), (0, MAX_FILES));
    let mut many: Vec<usize> = (0..17_000).collect();
    assert_eq!((drop_middle_files(&mut many), many.len()), (17_000 - MAX_FILES, MAX_FILES));
    assert_eq!((many[0], many[MAX_FILES - 1]), (0, 16_999));
}
