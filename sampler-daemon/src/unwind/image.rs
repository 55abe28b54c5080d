//! One program image of a process (from `execve` to the next or to the exit), as the unwinder sees it.
//!
//! Remembers for each code address where it lies and how to get to its caller, so that a stack that was seen
//! before costs one look-up per frame. What a step is, is in `step`.

use super::cfi::Rule;
use super::evidence::Evidence;
use super::history::PastImage;
use super::jit::Jit;
use super::mapped::{Code, Regions};
use super::module::{Frame, ModuleId};
use super::modules::Modules;
use super::place::{Address, CodePlace, Step, is_entry, signal_return};
use super::rereads::{Rereads, processor_time};
use super::snapshot::{Reader, Registers, StackMemory};
use super::step::{Caller, State, StepFailed};
use gimli::UnwindContext;
use rustc_hash::FxHashMap;
use sampler_common::limits::MAX_FRAMES;
use std::fmt;
use std::io;

/// Code addresses whose place is remembered; when full, all are forgotten and looked up anew.
const MAX_PLACES: usize = 64 * 1024;

/// How an unwind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwindEnd {
    /// At the root of the stack, every step by call frame information.
    Complete,
    /// At the root, and some steps were guesses by frame pointer: frames may be missing.
    Guessed,
    /// The snapshot ended, or there were more than [`sampler_common::limits::MAX_FRAMES`] frames.
    Truncated,
    /// A frame without unwind information that could not be guessed.
    Failed,
    /// A frame that unwind tables led to lies in no known mapping: its code is gone. The first frame is in `[unknown]` then.
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
    places: FxHashMap<Address, CodePlace>,
    /// A few hundred suffice for any program; they are forgotten together with the places.
    rules: Vec<Rule>,
    rule_indices: FxHashMap<Rule, u32>,
    context: UnwindContext<usize>,
    jit: Option<Jit>,
    /// When what is unwound was sampled.
    sample_ns: u64,
    rereads: Rereads,
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
        Ok(Image::new(pid, None, regions, modules))
    }

    /// From what events have reported of process `pid`, which may be gone.
    pub fn of_past(pid: u32, past: &PastImage, modules: &mut Modules) -> Image {
        let regions = Regions::default().retraced(pid, past, modules);
        Image::new(pid, Some((past.start_ns, past.version)), regions, modules)
    }

    /// Takes in what events have reported since; false if they report another image.
    pub fn follow(&mut self, past: &PastImage, modules: &mut Modules) -> bool {
        match self.told {
            // Read from `/proc`, and again where it is needed.
            None => true,
            Some((start_ns, _)) if start_ns != past.start_ns => false,
            Some((_, version)) if version == past.version => true,
            Some((start_ns, _)) => {
                let regions = self.regions.retraced(self.pid, past, modules);
                self.told = Some((start_ns, past.version));
                self.replace(regions, modules);
                true
            }
        }
    }

    /// Events tell no more of it: its mappings are read from `/proc` again.
    pub fn events_missed(&mut self) {
        // Of what was reported the last part may be missing.
        self.is_doubtful |= self.told.take().is_some();
    }

    /// What is unwound from now on was sampled at this time.
    pub fn sampled_at(&mut self, time_ns: u64) {
        self.sample_ns = time_ns;
    }

    fn new(pid: u32, told: Option<(u64, u32)>, regions: Regions, modules: &mut Modules) -> Image {
        // Names are read before their map is written anew.
        let jit = regions.has_generated_code().then(|| Jit::of(pid, modules));
        Image {
            pid,
            told,
            is_doubtful: false,
            regions,
            view: modules.next_view(),
            evidence: Evidence::default(),
            places: FxHashMap::default(),
            rules: Vec::new(),
            rule_indices: FxHashMap::default(),
            context: UnwindContext::new(),
            jit,
            sample_ns: u64::MAX,
            rereads: Rereads::begin(),
        }
    }

    /// Unwinds a snapshot; appends the frames to `frames`, leaf first, beginning with the caller
    /// (`registers.ip`). Reads the mappings again when an address is unknown, and every second (`rereads` bounds what that costs).
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

    /// The modules that it has mapped.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.regions.modules().chain(self.jit.iter().flat_map(Jit::modules))
    }

    /// Reads the mappings again if they are old, as every unwind does.
    pub fn keep_fresh(&mut self, modules: &mut Modules) {
        if self.rereads.are_old() {
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
            self.evidence.mark_incomplete();
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
        let mut is_guess = false;
        loop {
            let Some(place) = self.place(modules, address) else {
                if frames.len() == first {
                    frames.push(Frame { module: ModuleId::UNKNOWN, offset: address.lookup() });
                }
                // What a guess led to need not be code.
                let is_lost = is_guess || address.is_trampoline();
                return if is_lost { UnwindEnd::Failed } else { UnwindEnd::NoMapping };
            };
            match place.step {
                Step::Lost => return UnwindEnd::Failed,
                Step::FramePointer | Step::Return => is_guess = true,
                Step::Guess => {
                    is_guess = true;
                    // It becomes other code, and no event says so.
                    reader.evidence.mark_incomplete();
                }
                Step::Rule(_) | Step::Entry | Step::Signal => {}
            }
            if frames.len() - first == MAX_FRAMES {
                return UnwindEnd::Truncated;
            }
            frames.push(place.frame);
            address = match self.step(modules, place, &mut state, reader) {
                Ok(Caller::Return(ip)) => Address::Return(ip),
                Ok(Caller::Interrupted(ip)) => Address::Exact(ip),
                Ok(Caller::None) if is_guess => return UnwindEnd::Guessed,
                Ok(Caller::None) => return UnwindEnd::Complete,
                Err(StepFailed) if reader.ran_off => return UnwindEnd::Truncated,
                Err(StepFailed) => return UnwindEnd::Failed,
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
        place: CodePlace,
        state: &mut State,
        reader: &mut Reader<'_>,
    ) -> Result<Caller, StepFailed> {
        match place.step {
            Step::Rule(index) => {
                let rule = self.rules.get(index as usize).ok_or(StepFailed)?;
                if rule.has_expression() {
                    let cfi = modules.cfi(place.frame.module);
                    state.by_rule(rule, cfi.as_deref(), reader)
                } else {
                    state.by_rule(rule, None, reader)
                }
            }
            Step::Entry if state.has_no_frame(reader) => Ok(Caller::None),
            // Elsewhere an rbp of zero says nothing: it is a register like others.
            Step::Entry | Step::FramePointer | Step::Guess => state.by_frame_pointer(reader),
            Step::Return => state.by_return(reader),
            Step::Signal => state.by_signal(reader),
            Step::Lost => Err(StepFailed),
        }
    }

    /// What lies at an address; none if no executable mapping does.
    fn place(&mut self, modules: &mut Modules, address: Address) -> Option<CodePlace> {
        if let Some(place) = self.places.get(&address) {
            return Some(*place);
        }
        let lookup = address.lookup();
        if self.regions.find_mut(lookup).is_none() && self.rereads.may_find(lookup) {
            self.reread(modules);
        }
        if self.places.len() >= MAX_PLACES {
            self.forget_places();
        }
        let region = self.regions.find_mut(lookup)?;
        region.load(modules);
        let unknown = Frame { module: ModuleId::UNKNOWN, offset: lookup };
        let place = match region.code {
            Code::Trampoline => CodePlace { frame: unknown, step: Step::Lost },
            Code::Module(ModuleId::UNKNOWN) => CodePlace { frame: unknown, step: Step::Guess },
            // Not remembered: its name is that of the time.
            Code::Jit => {
                let pid = self.pid;
                let jit = self.jit.get_or_insert_with(|| Jit::of(pid, modules));
                let frame = jit.frame(modules, lookup, self.sample_ns);
                return Some(CodePlace { frame, step: Step::Guess });
            }
            Code::Module(module) => match signal_return(region, module, address, modules) {
                Some(frame) => CodePlace { frame, step: Step::Signal },
                None => {
                    let rule = region.cfi.as_ref().map(|(cfi, slide)| {
                        cfi.rule(lookup.wrapping_add(*slide), &mut self.context)
                    });
                    let step = match (rule, address) {
                        (Some(Some(rule)), _) => Step::Rule(self.rule_index(rule)),
                        // Linker stubs and the like do not touch the stack.
                        (Some(None), Address::Exact(_)) => Step::Return,
                        _ if is_entry(region, module, lookup, modules) => Step::Entry,
                        _ => Step::FramePointer,
                    };
                    let offset = self.regions.find_mut(lookup)?.offset(lookup);
                    CodePlace { frame: Frame { module, offset }, step }
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
        if self.jit.is_none() && self.regions.has_generated_code() {
            self.jit = Some(Jit::of(self.pid, modules));
        }
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
        if let Some(jit) = &self.jit {
            jit.refresh();
        }
        self.rereads.note_event();
    }

    fn reread(&mut self, modules: &mut Modules) {
        let begin = processor_time();
        // A process that is gone, or is another program by now, keeps the mappings that it had.
        if let Ok(regions) = self.regions.reread(self.pid, modules)
            && (self.is_doubtful || regions.may_follow(&self.regions))
            && !regions.is_same(&self.regions)
        {
            self.replace(regions, modules);
        }
        if let Some(jit) = &self.jit {
            jit.refresh();
        }
        self.rereads.read(begin);
    }
}
