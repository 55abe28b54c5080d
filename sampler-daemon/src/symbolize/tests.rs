//! Names of real frames.

use super::{Reader, Symbolizer, elf, without_names};
use crate::unwind::fixture::Fixture;
use crate::unwind::{GeneratedCode, Image, Life, Module, ModuleId, ModuleKind, Modules};
use sampler_common::profile::Line;
use sampler_common::share::Holder;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A reader of files in this process.
pub(crate) struct Here(elf::Symbolizer);

impl Reader for Here {
    fn lines(
        &mut self,
        _: &Module,
        file: &File,
        offsets: &[u64],
        _: Duration,
    ) -> Option<Vec<Option<Vec<Line>>>> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        self.0.lines(&path, elf::Places::Offsets(offsets), true).ok()
    }

    fn has_more(&mut self, _: &Module) -> bool {
        false
    }

    fn unread(&self, _: &Module) -> bool {
        false
    }

    fn rest(&mut self) {}
}

/// A symbolizer that needs no other process.
pub(crate) fn symbolizer() -> Symbolizer<Here> {
    Symbolizer::new(Here(elf::Symbolizer::new()), Duration::MAX)
}

fn module(id: u32, path: &str, kind: ModuleKind) -> Arc<Module> {
    Arc::new(Module {
        id: ModuleId(id),
        path: path.to_owned(),
        build_id: String::new(),
        code: Vec::new(),
        kind,
        life: Life::default(),
    })
}

/// File offset of a symbol, for files whose code is at its stated addresses.
fn offset_of(path: &std::path::Path, symbol: &str) -> u64 {
    use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let address = file.symbols().find(|it| it.name() == Ok(symbol)).unwrap().address();
    let segment =
        file.segments().find(|it| (it.address()..it.address() + it.size()).contains(&address));
    let segment = segment.unwrap();
    address - segment.address() + segment.file_range().0
}

#[test]
fn inlined_calls_have_the_lines_of_their_calls() {
    let fixture = Fixture::run("inlined", 64 * 1024);
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
    let mut frames = Vec::new();
    image.unwind(&mut modules, fixture.registers(), fixture.stack(), &mut frames);
    let locations = [(Arc::clone(modules.get(frames[1].module)), frames[1].offset)];
    let mut symbolizer = symbolizer();
    let lines = symbolizer.symbolize(&locations);
    let source = include_str!("../unwind/fixture/stacks.c");
    let names: Vec<&str> = lines[0].iter().map(|line| line.function.as_str()).collect();
    assert_eq!(names, ["inner_inlined", "outer_inlined", "holds_inlined"]);
    for (line, call) in lines[0].iter().zip(["leaf();", "inner_inlined();", "outer_inlined();"]) {
        assert!(line.file.ends_with("fixture/stacks.c"), "{line:?}");
        let text = source.lines().nth(line.line as usize - 1).unwrap();
        assert_eq!(text.trim(), call, "{line:?}");
    }
    assert!(Arc::ptr_eq(&lines[0], &symbolizer.symbolize(&locations)[0]), "not remembered");
}

#[test]
fn cpp_names_are_whole_and_c_names_plain() {
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("names.cc"), directory.path().join("names"));
    std::fs::write(
        &source,
        "namespace shop { template <class T> struct Cart { __attribute__((noinline)) T add(T a, const char*) \
         { asm volatile(\"\"); return a; } }; }\n\
         extern \"C\" __attribute__((noinline)) int plain_name(int a) { asm volatile(\"\"); return a; }\n\
         extern \"C\" __attribute__((noinline)) int w(int a) { asm volatile(\"\"); return a; }\n\
         int main(int n, char**) { return shop::Cart<long>().add(n, \"\") + plain_name(n) + w(n); }\n",
    )
    .unwrap();
    for flags in [&["-g"][..], &[]] {
        let mut compiler = Command::new("c++");
        compiler.arg("-O1").args(flags).arg("-o").args([&binary, &source]);
        let Ok(status) = compiler.status() else {
            eprintln!("NOTICE: NOT TESTED: no C++ compiler");
            return;
        };
        assert!(status.success());
        let kind = ModuleKind::File(Arc::new(File::open(&binary).unwrap()));
        let names = module(1, "/x/names", kind);
        let offsets = ["_ZN4shop4CartIlE3addElPKc", "plain_name", "w"]
            .map(|symbol| offset_of(&binary, symbol));
        let locations = offsets.map(|offset| (Arc::clone(&names), offset));
        let lines = symbolizer().symbolize(&locations);
        assert_eq!(lines[0][0].function, "shop::Cart<long>::add(long, char const*)", "{flags:?}");
        assert_eq!(lines[1][0].function, "plain_name");
        // Not `wchar_t`.
        assert_eq!(lines[2][0].function, "w");
        std::fs::remove_file(&binary).unwrap();
    }
}

/// No stack has a frame in a PLT, since its entries jump. So this is tested here.
#[test]
fn plt_entries_have_the_names_of_their_functions() {
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("plt.c"), directory.path().join("plt"));
    let text =
        "#include <stdlib.h>\nint main(void) { free(malloc(1)); return (long)&malloc == 0; }\n";
    std::fs::write(&source, text).unwrap();
    // Entries for lazy binding; with `endbr64`; and those of `.plt.got`.
    for flags in [&["-Wl,-z,lazy"][..], &["-fcf-protection=full", "-Wl,-z,ibtplt"], &["-Wl,-z,now"]]
    {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-fno-builtin"]).args(flags).arg("-o").args([&binary, &source]);
        let Ok(status) = compiler.status() else {
            eprintln!("NOTICE: NOT TESTED: no C compiler");
            return;
        };
        assert!(status.success());
        let file = Arc::new(File::open(&binary).unwrap());
        let plt = module(1, "/x/plt", ModuleKind::File(file));
        let locations: Vec<_> = plt_offsets(&binary).map(|at| (Arc::clone(&plt), at)).collect();
        assert!(!locations.is_empty(), "{flags:?}");
        let lines = symbolizer().symbolize(&locations);
        for name in ["malloc@plt", "free@plt"] {
            assert!(lines.iter().any(|lines| lines[0].function == name), "{flags:?}: {lines:?}");
        }
        std::fs::remove_file(&binary).unwrap();
    }
}

/// Offsets in the sections with PLT entries.
fn plt_offsets(path: &std::path::Path) -> impl Iterator<Item = u64> {
    use object::{Object as _, ObjectSection as _};
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let sections = file.sections().filter(|it| it.name().is_ok_and(|it| it.starts_with(".plt")));
    let ranges: Vec<_> = sections.filter_map(|section| section.file_range()).collect();
    ranges.into_iter().flat_map(|(start, size)| start..start + size)
}

#[test]
fn the_vdso_has_names() {
    let mut modules = Modules::default();
    let mut image = Image::open(Holder::of_unknown_user(std::process::id()), &mut modules).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
    let parse = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let locations: Vec<_> = (parse(start)..parse(end))
        .step_by(16)
        .map(|address| {
            let frame = image.resolve(&mut modules, address);
            (Arc::clone(modules.get(frame.module)), frame.offset)
        })
        .collect();
    assert!(
        locations.iter().all(|(module, _)| module.path == "[vdso]" && !module.build_id.is_empty())
    );
    let lines = symbolizer().symbolize(&locations);
    assert!(lines.iter().any(|lines| lines[0].function == "__vdso_clock_gettime"), "{lines:?}");
    assert_eq!(lines[0][0].function, "[vdso]+0x0");
}

/// A reader that knows no name until the debug file has arrived.
struct Waiting(Rc<Cell<bool>>);

impl Reader for Waiting {
    fn lines(
        &mut self,
        _: &Module,
        _: &File,
        offsets: &[u64],
        _: Duration,
    ) -> Option<Vec<Option<Vec<Line>>>> {
        let line = Line { function: "named".to_owned(), ..Line::default() };
        Some(offsets.iter().map(|_| self.0.get().then(|| vec![line.clone()])).collect())
    }

    fn has_more(&mut self, _: &Module) -> bool {
        self.0.get()
    }

    fn unread(&self, _: &Module) -> bool {
        false
    }

    fn rest(&mut self) {}
}

#[test]
fn unnamed_frames_are_symbolized_again_after_a_download() {
    let has_come = Rc::new(Cell::new(false));
    let mut symbolizer = Symbolizer::new(Waiting(Rc::clone(&has_come)), Duration::MAX);
    let file = ModuleKind::File(Arc::new(tempfile::tempfile().unwrap()));
    let mut waiting = module(1, "/x/a.so", file);
    Arc::make_mut(&mut waiting).build_id = "ab".to_owned();
    let frames = [(waiting, 0x10), (module(2, "/x/b.so", ModuleKind::Unknown), 0x10)];
    let lines = symbolizer.symbolize(&frames);
    assert_eq!(lines[0][0].function, "a.so+0x10");
    let nameless = without_names(&frames, &lines);
    assert_eq!(nameless.iter().map(|module| module.id).collect::<Vec<_>>(), [ModuleId(1)]);
    has_come.set(true);
    let lines = symbolizer.symbolize(&frames);
    assert_eq!(lines[0][0].function, "named");
    assert!(without_names(&frames, &lines).is_empty());
}

#[test]
fn unknown_functions_are_named_by_module_and_offset() {
    let not_elf = tempfile::tempfile().unwrap();
    let nameless = Arc::new(GeneratedCode::of(77, false));
    let locations = [
        (module(1, "/usr/lib/libx.so", ModuleKind::Unknown), 0x1234),
        (module(2, "[jit 77]", ModuleKind::Jit(nameless, 0)), 0x7f00),
        (module(3, "/memfd:code", ModuleKind::File(Arc::new(not_elf))), 0x10),
        (module(0, "[unknown]", ModuleKind::Unknown), 0xabc),
    ];
    let lines = symbolizer().symbolize(&locations);
    let names: Vec<&str> = lines.iter().map(|lines| lines[0].function.as_str()).collect();
    assert_eq!(names, ["libx.so+0x1234", "[jit 77]+0x7f00", "memfd:code+0x10", "[unknown]+0xabc"]);
}
