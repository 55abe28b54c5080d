//! One program image of a process (from `execve` to the next or to the exit), as the unwinder sees it.
//!
//! Remembers for each code address where it lies and how to get to its caller, so that a stack that was seen
//! before costs one look-up per frame. What a step is, is in `step`.

use super::cfi::Rule;
use super::evidence::Evidence;
use super::history::PastImage;
use super::mapped::{Code, Regions};
use super::module::{Frame, ModuleId};
use super::modules::Modules;
use super::place::{Address, Place, Step, signal_return};
use super::snapshot::{Reader, Registers, StackMemory};
use super::step::{Caller, State, Stuck};
use gimli::UnwindContext;
use rustc_hash::FxHashMap;
use sampler_common::limits::MAX_FRAMES;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// The mappings are read again for an unknown address, in the long run not more often than this.
const REREAD_AFTER: Duration = Duration::from_millis(10);

/// Rereads that may follow each other at once: a library that has just been loaded, and one that it loads.
const REREADS_AT_ONCE: u32 = 16;

/// They are also read again when they are this old: a library may have been replaced by another one at the same
/// address. Processes whose mappings take long to read wait longer, so that it costs a thousandth of the time.
const OLD_AFTER: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 1000;

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

/// One program image.
pub struct Image {
    pid: u32,
    /// Start and version of the past image that it is made from; none if it was read from `/proc`.
    told: Option<(u64, u32)>,
    /// It may be the image before: whatever `/proc` shows is better.
    is_doubtful: bool,
    regions: Regions,
    /// Names `regions`, among those of all images.
    view: u64,
    evidence: Evidence,
    places: FxHashMap<Address, Place>,
    /// A few hundred suffice for any program; they are forgotten together with the places.
    rules: Vec<Rule>,
    rule_indices: FxHashMap<Rule, u32>,
    context: UnwindContext<usize>,
    jit: Option<ModuleId>,
    read_at: Instant,
    rereads_left: u32,
    old_after: Duration,
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
    ///
    /// # Errors
    /// If they cannot be read: the process is gone, or belongs to someone else. Files that cannot be opened are
    /// counted in [`Modules::counts`], their frames stay nameless.
    pub fn open(pid: u32, modules: &mut Modules) -> io::Result<Image> {
        let regions = Regions::default().reread(pid, modules)?;
        Ok(Image::new(pid, None, regions, modules.next_view()))
    }

    /// From what events have told of process `pid`, which may be gone.
    pub fn of_past(pid: u32, past: &PastImage, modules: &mut Modules) -> Image {
        let regions = Regions::default().retold(pid, past, modules);
        Image::new(pid, Some((past.start_ns, past.version)), regions, modules.next_view())
    }

    /// Takes in what events have told since; false if they tell of another image.
    pub fn follow(&mut self, past: &PastImage, modules: &mut Modules) -> bool {
        match self.told {
            // Read from `/proc`, and again where it is needed.
            None => true,
            Some((start_ns, _)) if start_ns != past.start_ns => false,
            Some((_, version)) if version == past.version => true,
            Some((start_ns, _)) => {
                let regions = self.regions.retold(self.pid, past, modules);
                self.told = Some((start_ns, past.version));
                self.replace(regions, modules);
                true
            }
        }
    }

    /// Events tell no more of it: its mappings are read from `/proc` again.
    pub fn not_told(&mut self) {
        // Of what was told the last part may be missing.
        self.is_doubtful |= self.told.take().is_some();
    }

    fn new(pid: u32, told: Option<(u64, u32)>, regions: Regions, view: u64) -> Image {
        Image {
            pid,
            told,
            is_doubtful: false,
            regions,
            view,
            evidence: Evidence::default(),
            places: FxHashMap::default(),
            rules: Vec::new(),
            rule_indices: FxHashMap::default(),
            context: UnwindContext::new(),
            jit: None,
            read_at: Instant::now(),
            rereads_left: REREADS_AT_ONCE,
            old_after: OLD_AFTER,
        }
    }

    /// Unwinds a snapshot; appends the frames to `frames`, leaf first, beginning with the caller
    /// (`registers.ip`). Reads the mappings again (in the long run at most every 10 ms) when an address is unknown, and every
    /// second.
    pub fn unwind(
        &mut self,
        modules: &mut Modules,
        registers: Registers,
        stack: StackMemory<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        self.unwind_from(Address::Return(registers.ip), modules, registers, stack, frames)
    }

    /// The same from a first frame at `address`, which may be the instruction itself.
    pub fn unwind_from(
        &mut self,
        address: Address,
        modules: &mut Modules,
        registers: Registers,
        stack: StackMemory<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        self.keep_fresh(modules);
        self.walk(address, modules, registers, Reader::new(stack), frames)
    }

    /// The same of a stack of which only these words are known, address and value.
    pub fn unwind_words(
        &mut self,
        address: Address,
        modules: &mut Modules,
        registers: Registers,
        words: &[(u64, u64)],
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        self.keep_fresh(modules);
        self.walk(address, modules, registers, Reader::of_words(words), frames)
    }

    /// What the last unwind depended on, besides the image.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Names what is mapped, among the views of all images: while it is the same, equal evidence gives equal frames.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// Reads the mappings again if they are old, as every unwind does.
    pub fn keep_fresh(&mut self, modules: &mut Modules) {
        if self.read_at.elapsed() > self.old_after {
            self.refresh(modules);
        }
    }

    fn walk(
        &mut self,
        address: Address,
        modules: &mut Modules,
        registers: Registers,
        reader: Reader<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        let mut reader = reader.noting_in(std::mem::take(&mut self.evidence));
        let view = self.view;
        let end = self.walk_noting(address, modules, registers, &mut reader, frames);
        self.evidence = reader.evidence;
        if self.view != view {
            // Its frames are of two views.
            self.evidence.lack();
        }
        end
    }

    fn walk_noting(
        &mut self,
        mut address: Address,
        modules: &mut Modules,
        registers: Registers,
        reader: &mut Reader<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        let first = frames.len();
        let mut state = State::new(registers);
        loop {
            let Some(place) = self.place(modules, address) else {
                if frames.len() > first {
                    return UnwindEnd::Failed;
                }
                frames.push(Frame { module: ModuleId::UNKNOWN, offset: address.lookup() });
                return UnwindEnd::NoMapping;
            };
            match place.step {
                Step::Lost => return UnwindEnd::Failed,
                // Code that may become other code, with nobody telling.
                Step::Guess => reader.evidence.lack(),
                _ => {}
            }
            if frames.len() - first == MAX_FRAMES {
                return UnwindEnd::Truncated;
            }
            frames.push(place.frame);
            address = match self.step(modules, place, &mut state, reader) {
                Ok(Caller::Return(ip)) => Address::Return(ip),
                Ok(Caller::Interrupted(ip)) => Address::Exact(ip),
                Ok(Caller::None) => return UnwindEnd::Complete,
                Err(Stuck) if reader.ran_off => return UnwindEnd::Truncated,
                Err(Stuck) => return UnwindEnd::Failed,
            };
        }
    }

    /// Resolves one look-up address of the process to a frame, e.g. that of the probed function or of a
    /// stack that the kernel walked (there, look-up address = return address − 1).
    pub fn resolve(&mut self, modules: &mut Modules, address: u64) -> Frame {
        self.code(modules, address).unwrap_or(Frame { module: ModuleId::UNKNOWN, offset: address })
    }

    /// As [`Image::resolve`], where the process has code there.
    pub fn code(&mut self, modules: &mut Modules, address: u64) -> Option<Frame> {
        self.place(modules, Address::Exact(address)).map(|place| place.frame)
    }

    fn step(
        &self,
        modules: &mut Modules,
        place: Place,
        state: &mut State,
        reader: &mut Reader<'_>,
    ) -> Result<Caller, Stuck> {
        match place.step {
            Step::Rule(index) => {
                let rule = self.rules.get(index as usize).ok_or(Stuck)?;
                if rule.has_expression() {
                    let cfi = modules.cfi(place.frame.module);
                    state.by_rule(rule, cfi.as_deref(), reader)
                } else {
                    state.by_rule(rule, None, reader)
                }
            }
            // Programs without call frame information at their root mark it by an rbp of zero.
            Step::FramePointer if state.has_no_frame(reader) => Ok(Caller::None),
            Step::FramePointer | Step::Guess => state.by_frame_pointer(reader),
            Step::Return => state.by_return(reader),
            Step::Signal => state.by_signal(reader),
            Step::Lost => Err(Stuck),
        }
    }

    /// What lies at an address; none if no executable mapping does.
    fn place(&mut self, modules: &mut Modules, address: Address) -> Option<Place> {
        if let Some(place) = self.places.get(&address) {
            return Some(*place);
        }
        let lookup = address.lookup();
        if self.regions.find_mut(lookup).is_none() {
            self.reread(modules);
        }
        if self.places.len() >= MAX_PLACES {
            self.forget_places();
        }
        let region = self.regions.find_mut(lookup)?;
        region.load(modules);
        let unknown = Frame { module: ModuleId::UNKNOWN, offset: lookup };
        let place = match region.code {
            Code::Trampoline => Place { frame: unknown, step: Step::Lost },
            Code::Module(ModuleId::UNKNOWN) => Place { frame: unknown, step: Step::Guess },
            Code::Jit => {
                let module = *self.jit.get_or_insert_with(|| modules.jit(self.pid));
                Place { frame: Frame { module, offset: lookup }, step: Step::Guess }
            }
            Code::Module(module) => match signal_return(region, module, address, modules) {
                Some(frame) => Place { frame, step: Step::Signal },
                None => {
                    let rule = region.cfi.as_ref().map(|(cfi, slide)| {
                        cfi.rule(lookup.wrapping_add(*slide), &mut self.context)
                    });
                    let step = match (rule, address) {
                        (Some(Some(rule)), _) => Step::Rule(self.rule_index(rule)),
                        // Linker stubs and the like do not touch the stack.
                        (Some(None), Address::Exact(_)) => Step::Return,
                        (Some(None), Address::Return(_)) => Step::FramePointer,
                        (None, _) => Step::FramePointer,
                    };
                    let offset = self.regions.find_mut(lookup)?.offset(lookup);
                    Place { frame: Frame { module, offset }, step }
                }
            },
        };
        self.places.insert(address, place);
        Some(place)
    }

    fn rule_index(&mut self, rule: Rule) -> u32 {
        *self.rule_indices.entry(rule).or_insert_with(|| {
            self.rules.push(rule);
            // Never more than MAX_PLACES.
            (self.rules.len() - 1) as u32
        })
    }

    fn replace(&mut self, regions: Regions, modules: &mut Modules) {
        self.regions = regions;
        self.view = modules.next_view();
        self.forget_places();
    }

    fn forget_places(&mut self) {
        self.places.clear();
        self.rules.clear();
        self.rule_indices.clear();
    }

    /// What is done every second.
    fn refresh(&mut self, modules: &mut Modules) {
        if self.told.is_none() {
            return self.reread(modules);
        }
        // Events tell what is mapped.
        if let Some(id) = self.jit {
            modules.retry_perf_map(id, self.pid);
        }
        self.read_at = Instant::now();
    }

    fn reread(&mut self, modules: &mut Modules) {
        let regained = self.read_at.elapsed().as_micros() / REREAD_AFTER.as_micros();
        let regained = u32::try_from(regained).unwrap_or(u32::MAX);
        self.rereads_left = self.rereads_left.saturating_add(regained).min(REREADS_AT_ONCE);
        let Some(left) = self.rereads_left.checked_sub(1) else { return };
        self.rereads_left = left;
        let begin = Instant::now();
        // A process that is gone, or is another program by now, keeps the mappings that it had.
        if let Ok(regions) = self.regions.reread(self.pid, modules)
            && (self.is_doubtful || regions.may_follow(&self.regions))
            && !regions.is_same(&self.regions)
        {
            self.replace(regions, modules);
        }
        if let Some(id) = self.jit {
            modules.retry_perf_map(id, self.pid);
        }
        self.read_at = Instant::now();
        self.old_after = OLD_AFTER.max((self.read_at - begin) * COST_FACTOR);
    }
}
