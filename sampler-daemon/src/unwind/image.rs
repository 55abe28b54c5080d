//! One program image of a process (from `execve` to the next or to the exit), as the unwinder sees it.
//!
//! framehop does the unwinding by call frame information; here is what it leaves to its user: which code
//! lies where, where the stack's bytes come from, and the frames that the kernel makes for signals.

use super::elf::Section;
use super::mapped::{Code, Region, Regions};
use super::module::{Frame, ModuleId, Modules};
use super::snapshot::{Reader, Registers, StackMemory};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use rustc_hash::FxHashMap;
use sampler_common::limits::MAX_FRAMES;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The mappings are read again for an unknown address, but not more often than this.
const REREAD_AFTER: Duration = Duration::from_millis(10);

/// Code addresses whose place is remembered; when full, all are forgotten and looked up anew.
const MAX_PLACES: usize = 64 * 1024;

/// How an unwind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwindEnd {
    /// At the root of the stack.
    Complete,
    /// The snapshot ended, or there were more than [`sampler_common::limits::MAX_FRAMES`] frames.
    Truncated,
    /// A frame without unwind information that could not be guessed.
    Failed,
    /// The first frame lies in no known mapping; it is the only frame then, in `[unknown]`.
    NoMapping,
}

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
struct Place {
    frame: Frame,
    step: Step,
}

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// By call frame information.
    Cfi,
    /// By rbp: JIT code, files without call frame information.
    Guess,
    /// The kernel put a signal frame there.
    Signal,
    /// The uprobe trampoline: the true return address is lost.
    Lost,
}

/// One program image.
pub struct Image {
    pid: u32,
    regions: Regions,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    /// By address and whether it is a return address.
    places: FxHashMap<(u64, bool), Place>,
    jit: Option<ModuleId>,
    read_at: Instant,
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Image")
            .field("pid", &self.pid)
            .field("regions", &self.regions)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Reads the mappings of process `pid`.
    pub fn open(pid: u32, modules: &mut Modules) -> io::Result<Image> {
        Ok(Image {
            pid,
            regions: Regions::default().reread(pid, modules)?,
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            places: FxHashMap::default(),
            jit: None,
            read_at: Instant::now(),
        })
    }

    /// Unwinds a snapshot; appends the frames to `frames`, leaf first, beginning with the caller
    /// (`registers.ip`). Reads the mappings again (at most every 10 ms) when an address is unknown.
    pub fn unwind(
        &mut self,
        modules: &mut Modules,
        registers: Registers,
        stack: StackMemory<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        let first = frames.len();
        let mut reader = Reader::new(stack);
        let mut state = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let Some(mut address) = FrameAddress::from_return_address(registers.ip) else {
            frames.push(Frame { module: ModuleId::UNKNOWN, offset: 0 });
            return UnwindEnd::NoMapping;
        };
        loop {
            let Some(place) = self.place(modules, address) else {
                if frames.len() > first {
                    return UnwindEnd::Failed;
                }
                let offset = address.address_for_lookup();
                frames.push(Frame { module: ModuleId::UNKNOWN, offset });
                return UnwindEnd::NoMapping;
            };
            if place.step == Step::Lost {
                return UnwindEnd::Failed;
            }
            if frames.len() - first == MAX_FRAMES {
                return UnwindEnd::Truncated;
            }
            frames.push(place.frame);
            let next = if place.step == Step::Signal {
                interrupted(&mut state, &mut reader).map(Some)
            } else {
                self.unwinder
                    .unwind_frame(address, &mut state, &mut self.cache, &mut |at| reader.word(at))
                    .map(|caller| caller.and_then(FrameAddress::from_return_address))
                    .map_err(drop)
            };
            address = match next {
                Ok(Some(next)) => next,
                // Without call frame information an rbp of zero means little.
                Ok(None) if place.step == Step::Guess && state.bp() == 0 => {
                    return UnwindEnd::Failed;
                }
                Ok(None) => return UnwindEnd::Complete,
                Err(()) if reader.ran_off => return UnwindEnd::Truncated,
                Err(()) => return UnwindEnd::Failed,
            };
        }
    }

    /// Resolves one look-up address of the process to a frame, e.g. that of the probed function or of a
    /// stack that the kernel walked (there, look-up address = return address − 1).
    pub fn resolve(&mut self, modules: &mut Modules, address: u64) -> Frame {
        let address = FrameAddress::from_instruction_pointer(address);
        match self.place(modules, address) {
            Some(place) => place.frame,
            None => Frame { module: ModuleId::UNKNOWN, offset: address.address() },
        }
    }

    /// What lies at an address; none if no executable mapping does.
    fn place(&mut self, modules: &mut Modules, address: FrameAddress) -> Option<Place> {
        let key = (address.address(), address.is_return_address());
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        let lookup = address.address_for_lookup();
        if self.regions.find(lookup).is_none() {
            self.reread(modules);
        }
        self.load(modules, lookup);
        let region = self.regions.find(lookup)?;
        let place = match region.code {
            Code::Trampoline => Place {
                frame: Frame { module: ModuleId::UNKNOWN, offset: lookup },
                step: Step::Lost,
            },
            Code::Module(ModuleId::UNKNOWN) => Place {
                frame: Frame { module: ModuleId::UNKNOWN, offset: lookup },
                step: Step::Guess,
            },
            Code::Jit => {
                let module = self.jit_module(modules);
                Place { frame: Frame { module, offset: lookup }, step: Step::Guess }
            }
            Code::Module(module) => in_module(region, module, address, modules),
        };
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        self.places.insert(key, place);
        Some(place)
    }

    fn jit_module(&mut self, modules: &mut Modules) -> ModuleId {
        *self.jit.get_or_insert_with(|| modules.jit(self.pid))
    }

    /// Tells the unwinder of the module at an address, the first time that a frame lies in it.
    fn load(&mut self, modules: &mut Modules, address: u64) {
        let Some(region) = self.regions.find_mut(address) else { return };
        if region.loaded {
            return;
        }
        region.loaded = true;
        let Code::Module(id) = region.code else { return };
        if let Some(module) = framehop_module(region, id, modules) {
            region.has_cfi = true;
            self.unwinder.add_module(module);
        }
    }

    fn reread(&mut self, modules: &mut Modules) {
        if self.read_at.elapsed() < REREAD_AFTER {
            return;
        }
        // A process that is gone keeps the mappings that it had.
        if let Ok(regions) = self.regions.reread(self.pid, modules) {
            self.regions = regions;
            self.unwinder = UnwinderX86_64::new();
            // framehop tells the module sets apart by 16 bits that wrap around; a fresh cache cannot confuse them.
            self.cache = CacheX86_64::new();
            self.places.clear();
            if let Some(id) = self.jit {
                modules.retry_perf_map(id, self.pid);
            }
        }
        self.read_at = Instant::now();
    }
}

/// The kernel's signal return code of glibc, musl and Go: `mov $15, %rax; syscall` (rt_sigreturn).
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

fn in_module(region: &Region, module: ModuleId, address: FrameAddress, modules: &Modules) -> Place {
    let offset = |address: u64| address - region.mapping.start + region.mapping.offset;
    let lookup = offset(address.address_for_lookup());
    let mut code = [0; SIGNAL_RETURN.len()];
    // Signal return code is never called, so its frame is looked up where it is, not before: there lies
    // another function.
    let exact = lookup + u64::from(address.is_return_address());
    if modules.read_code(module, exact, &mut code) && code == SIGNAL_RETURN {
        return Place { frame: Frame { module, offset: exact }, step: Step::Signal };
    }
    let step = if region.has_cfi { Step::Cfi } else { Step::Guess };
    Place { frame: Frame { module, offset: lookup }, step }
}

/// Registers of the code that a signal interrupted, from the `ucontext_t` that the kernel left at rsp
/// (`struct rt_sigframe` without its return address; offsets of `mcontext_t` as in glibc's `sys/ucontext.h`:
/// rbp 120, rsp 160, rip 168).
fn interrupted(state: &mut UnwindRegsX86_64, reader: &mut Reader<'_>) -> Result<FrameAddress, ()> {
    let context = state.sp();
    let mut word = |offset: u64| reader.word(context.checked_add(offset).ok_or(())?);
    let (bp, sp, ip) = (word(120)?, word(160)?, word(168)?);
    reader.moved_to(sp);
    *state = UnwindRegsX86_64::new(ip, sp, bp);
    Ok(FrameAddress::from_instruction_pointer(ip))
}

fn framehop_module(
    region: &Region,
    id: ModuleId,
    modules: &mut Modules,
) -> Option<framehop::Module<Arc<[u8]>>> {
    let mapping = &region.mapping;
    let headers = modules.headers(id)?;
    // Where the file says that the mapping begins, and thereby how far it was moved.
    let stated = headers.svma(mapping.offset)?;
    let base_svma = headers.base_svma;
    let base_avma = mapping.start.wrapping_sub(stated).wrapping_add(base_svma);
    let sections = modules.sections(id)?;
    let eh_frame = sections.eh_frame?;
    let part = |section: Option<Section>| section.map(|it| (it.svma, it.bytes)).unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = part(sections.eh_frame_hdr);
    let info = ExplicitModuleSectionInfo {
        base_svma,
        text_svma: sections.text_svma,
        got_svma: sections.got_svma,
        eh_frame_svma: Some(eh_frame.svma),
        eh_frame: Some(eh_frame.bytes),
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    let path = modules.get(id).path.clone();
    Some(framehop::Module::new(path, mapping.start..mapping.end, base_avma, info))
}
