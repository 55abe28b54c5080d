//! One program image of a process (from `execve` to the next or to the exit), as the unwinder sees
//! it.
//!
//! The image remembers the place of each code address and the step to its caller. So a cached stack
//! costs one look-up per frame. `step` does a step.

pub(super) mod mapped;
mod moved;
pub(super) mod place;
mod rereads;

use super::cfi::Rule;
use super::evidence::Evidence;
use super::generated::jit::Jit;
use super::history::PastImage;
use super::module::{Frame, ModuleId};
use super::modules::Modules;
use super::snapshot::{Reader, Registers, StackMemory};
use super::step::{Caller, State, StepFailed};
use gimli::UnwindContext;
use mapped::{Code, Regions};
use place::{Address, CodePlace, Step, is_entry, signal_return};
use rereads::{Rereads, processor_time};
use rustc_hash::FxHashMap;
use sampler_common::limits::MAX_FRAMES;
use sampler_common::share::Holder;
use std::fmt;
use std::io;

/// Most code addresses whose place is remembered. At the bound all are forgotten.
const MAX_PLACES: usize = 64 * 1024;

/// How an unwind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwindEnd {
    /// At the root of the stack, with every step by call frame information.
    Complete,
    /// At the root, but some steps were guesses by frame pointer. Frames may be missing.
    Guessed,
    /// At the end of the snapshot, or at [`sampler_common::limits::MAX_FRAMES`] frames.
    Truncated,
    /// At a frame without unwind information that could not be guessed.
    Failed,
    /// At an address from unwind tables that is in no known mapping, because its code is gone. If
    /// that is the first frame, it is in `[unknown]`.
    NoMapping,
}

/// One program image.
pub struct Image {
    by: Holder<u32>,
    /// Start and version of the image as mapping events reported it; `None` if the mappings were
    /// read from `/proc`.
    from_events: Option<(u64, u32)>,
    /// Whether the mappings may be those of an earlier image. If so, any mappings from `/proc`
    /// replace them.
    is_doubtful: bool,
    regions: Regions,
    /// Number of the present `regions`, unique among all images.
    view: u64,
    evidence: Evidence,
    /// Stack pointers in the frames of the last unwind.
    stack_pointers: Vec<u64>,
    places: FxHashMap<Address, CodePlace>,
    /// The rules, a few hundred for any program. They are forgotten together with the places.
    rules: Vec<Rule>,
    rule_indices: FxHashMap<Rule, u32>,
    context: UnwindContext<usize>,
    jit: Option<Jit>,
    /// Time of the samples that are unwound.
    sample_ns: u64,
    rereads: Rereads,
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Image")
            .field("pid", &self.by.process)
            .field("regions", &self.regions)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Reads the mappings of a process.
    ///
    /// # Errors
    /// If the mappings cannot be read: the process is gone, or belongs to another user. Files that
    /// cannot be opened are counted in [`Modules::counts`], and their frames have no names.
    pub fn open(by: Holder<u32>, modules: &mut Modules) -> io::Result<Image> {
        let regions = Regions::default().reread(by, modules)?;
        Ok(Image::new(by, None, regions, modules))
    }

    /// Makes an image from the events about a process, which may have ended.
    pub fn of_past(by: Holder<u32>, past: &PastImage, modules: &mut Modules) -> Image {
        let regions = Regions::default().retraced(by, past, modules);
        Image::new(by, Some((past.start_ns, past.version)), regions, modules)
    }

    /// Applies the events since the last call. Returns false if they report another image.
    pub fn follow(&mut self, past: &PastImage, modules: &mut Modules) -> bool {
        match self.from_events {
            // An image from `/proc` is read from there again when necessary.
            None => true,
            Some((start_ns, _)) if start_ns != past.start_ns => false,
            Some((_, version)) if version == past.version => true,
            Some((start_ns, _)) => {
                let regions = self.regions.retraced(self.by, past, modules);
                self.from_events = Some((start_ns, past.version));
                self.replace(regions, modules);
                true
            }
        }
    }

    /// Stops using events, because some were lost. The mappings are read from `/proc` again.
    pub fn events_missed(&mut self) {
        // The last events may be among the lost ones.
        self.is_doubtful |= self.from_events.take().is_some();
    }

    /// Sets the time at which the following stacks were sampled.
    pub fn sampled_at(&mut self, time_ns: u64) {
        self.sample_ns = time_ns;
    }

    fn new(
        by: Holder<u32>,
        from_events: Option<(u64, u32)>,
        regions: Regions,
        modules: &mut Modules,
    ) -> Image {
        // Names are read before the perf map is rewritten.
        let jit = regions.has_generated_code().then(|| Jit::of(by, modules));
        Image {
            by,
            from_events,
            is_doubtful: false,
            regions,
            view: modules.next_view(),
            evidence: Evidence::default(),
            stack_pointers: Vec::new(),
            places: FxHashMap::default(),
            rules: Vec::new(),
            rule_indices: FxHashMap::default(),
            context: UnwindContext::new(),
            jit,
            sample_ns: u64::MAX,
            rereads: Rereads::begin(),
        }
    }

    /// Unwinds a snapshot. Appends the frames to `frames`, leaf first, beginning with the caller
    /// (`registers.ip`). Reads the mappings again at an unknown address, and every second
    /// (`rereads` bounds the cost).
    pub fn unwind(
        &mut self,
        modules: &mut Modules,
        registers: Registers,
        stack: StackMemory<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        self.unwind_from(Address::Return(registers.ip), modules, registers, stack, frames)
    }

    /// As for [`Image::unwind`], from a first frame at `address`, which may be the instruction
    /// itself.
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

    /// As for [`Image::unwind_from`], if only these words of the stack are known, by address and
    /// value.
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

    /// The words and registers on which the last unwind depended.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The stack pointer in each frame of the last unwind. A frame's memory ends at the next frame's
    /// stack pointer.
    pub fn stack_pointers(&self) -> &[u64] {
        &self.stack_pointers
    }

    /// Forgets the stack pointers, for a stack that is not unwound here.
    pub fn forget_stack_pointers(&mut self) {
        self.stack_pointers.clear();
    }

    /// Number of the present mappings, unique among all images. While the number is unchanged,
    /// equal evidence gives equal frames.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The modules that the image has mapped.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.regions.modules().chain(self.jit.iter().flat_map(Jit::modules))
    }

    /// Reads the mappings again if they are old. Every unwind does so too.
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
        let mut reader = reader.recording_in(std::mem::take(&mut self.evidence));
        let view = self.view;
        let end = self.walk_recording(address, modules, registers, &mut reader, frames);
        self.evidence = reader.evidence;
        if self.view != view {
            // The mappings changed during the unwind, so the frames belong to two views.
            self.evidence.mark_incomplete();
        }
        end
    }

    fn walk_recording(
        &mut self,
        mut address: Address,
        modules: &mut Modules,
        registers: Registers,
        reader: &mut Reader<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        let first = frames.len();
        self.stack_pointers.clear();
        let mut state = State::new(registers);
        let mut is_guess = false;
        loop {
            let Some(place) = self.place(modules, address) else {
                if frames.len() == first {
                    frames.push(Frame { module: ModuleId::UNKNOWN, offset: address.lookup() });
                }
                // A guessed address need not be code.
                let is_lost = is_guess || address.is_trampoline();
                return if is_lost { UnwindEnd::Failed } else { UnwindEnd::NoMapping };
            };
            match place.step {
                Step::Lost => return UnwindEnd::Failed,
                Step::FramePointer | Step::Return => is_guess = true,
                Step::Guess => {
                    is_guess = true;
                    // The region may become other code without an event.
                    reader.evidence.mark_incomplete();
                }
                Step::Rule(_) | Step::Entry | Step::Signal => {}
            }
            if frames.len() - first == MAX_FRAMES {
                return UnwindEnd::Truncated;
            }
            frames.push(place.frame);
            self.stack_pointers.push(state.sp);
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

    /// Resolves one look-up address of the process to a frame. Such an address is that of the
    /// probed function, or of a stack that the kernel walked (return address − 1).
    pub fn resolve(&mut self, modules: &mut Modules, address: u64) -> Frame {
        self.code(modules, address).unwrap_or(Frame { module: ModuleId::UNKNOWN, offset: address })
    }

    /// As for [`Image::resolve`]; `None` if the process has no code at the address.
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
            // Elsewhere rbp may be an ordinary register, so a zero in it has no meaning.
            Step::Entry | Step::FramePointer | Step::Guess => state.by_frame_pointer(reader),
            Step::Return => state.by_return(reader),
            Step::Signal => state.by_signal(reader),
            Step::Lost => Err(StepFailed),
        }
    }

    /// The place of an address; none if no executable mapping contains the address.
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
            // Not remembered, because the name depends on the time of the sample.
            Code::Jit => {
                let by = self.by;
                let jit = self.jit.get_or_insert_with(|| Jit::of(by, modules));
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
                        // Linker stubs and the like do not change the stack.
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
            // There are never more than MAX_PLACES rules.
            (self.rules.len() - 1) as u32
        })
    }

    fn replace(&mut self, regions: Regions, modules: &mut Modules) {
        self.regions = regions;
        if self.jit.is_none() && self.regions.has_generated_code() {
            self.jit = Some(Jit::of(self.by, modules));
        }
        self.view = modules.next_view();
        self.forget_places();
    }

    fn forget_places(&mut self) {
        self.places.clear();
        self.rules.clear();
        self.rule_indices.clear();
    }

    /// The refresh of every second.
    fn refresh(&mut self, modules: &mut Modules) {
        if self.from_events.is_none() {
            return self.reread(modules);
        }
        // The mappings come from events.
        if let Some(jit) = &self.jit {
            jit.refresh();
        }
        self.rereads.note_event();
    }

    fn reread(&mut self, modules: &mut Modules) {
        let begin = processor_time();
        // A process that is gone, or runs another program by now, keeps its known mappings.
        if let Ok(regions) = self.regions.reread(self.by, modules)
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
