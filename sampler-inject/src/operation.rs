//! The operations step by step: preflight, inject, inject again, eject.
//!
//! ```text
//! inject:  check → plan → one borrowed thread maps the image → relocations, words, record, magic
//!          → stop all threads: write bytes
//! again:   check → empty tables, set rates → stop all threads: write bytes
//! eject:   check → stop all threads: put bytes back
//! ```

use crate::allocator::{self, Allocators};
use crate::calls::{Borrowed, Call, StubPlace, Thread};
use crate::hook;
use crate::image::{Image, Values};
use crate::kernel;
use crate::layout::{self, Layout};
use crate::maps::PAGE_BYTES;
use crate::preflight::{self, Checked, Refusal};
use crate::record::{self, Hook, Record};
use crate::stop;
use crate::target::Target;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::SealFlags;
use sampler_common::injected::LEFT_OUT;
use sampler_common::sampling::Rate;
use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of tries. Another thread of the target may map memory that was free a moment ago,
/// and on a busy machine a stop may come too late. The whole operation is then repeated.
const MAX_TRIES: u32 = 50;
/// Delay between the first two tries. The delay doubles from one try to the next.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(300);
/// Maximum time to wait for the loader, and time between two checks of it. What a program allocates
/// before the injection is missed.
const LOADING: Duration = Duration::from_secs(5);
const LOADING_PAUSE: Duration = Duration::from_millis(1);
/// `MFD_EXEC` (Linux 6.3): the file may be mapped as code. Without the flag, `vm.memfd_noexec`
/// decides.
const MFD_EXEC: u64 = 0x10;
/// Stands for the memory file's descriptor when filters are asked before the file exists.
const PLAUSIBLE_DESCRIPTOR: u64 = 3;

/// The result of an operation, displayed as one line.
#[derive(Debug, Default)]
pub struct Report {
    verb: &'static str,
    pid: i32,
    base: u64,
    hooks: Vec<Hook>,
    without: Vec<String>,
    left_out: Vec<String>,
    borrowed: Option<Duration>,
    stopped: Option<Duration>,
    threads: usize,
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pid={} image={:#x}", self.verb, self.pid, self.base)?;
        if let Some(time) = self.borrowed {
            write!(f, " borrowed_us={}", time.as_micros())?;
        }
        if let Some(time) = self.stopped {
            write!(f, " stopped_us={} threads={}", time.as_micros(), self.threads)?;
        }
        write!(f, " steps={} bytes=", crate::steps::done())?;
        for (at, hook) in self.hooks.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let Hook { name, patch, original, .. } = hook;
            write!(f, "{comma}{name}@{patch:#x}:{original:02x}")?;
        }
        if !self.without.is_empty() {
            write!(f, " without={}", self.without.join(","))?;
        }
        // The last part of the line: these are sentences.
        if !self.left_out.is_empty() {
            write!(f, "{LEFT_OUT}{}", self.left_out.join("; "))?;
        }
        Ok(())
    }
}

/// What will be injected, and where.
struct Plan {
    image: Image,
    base: u64,
    layout: Layout,
    /// Content of the memory file.
    content: Vec<u8>,
}

impl Plan {
    fn make(target: &Target, library: &Path) -> Result<Plan> {
        let allocators = preflight::check_files(target)?;
        let image = Image::read(library)?;
        let base = image.place(&target.maps).ok_or(Refusal::NoRoom)?;
        let layout = Plan::layout(target, &allocators, &image, base)?;
        let content = image.content(&layout);
        Ok(Plan { image, base, layout, content })
    }

    fn layout(
        target: &Target,
        allocators: &Allocators,
        image: &Image,
        base: u64,
    ) -> Result<Layout> {
        let reserved = (base, base + image.bytes());
        layout::layout(target, allocators, reserved, |name| image.entry(base, name))
    }

    /// The calls that the borrowed thread will make, as far as they are known beforehand.
    fn calls(&self, checked: &Checked, place: StubPlace) -> Vec<Call> {
        let mapped = self.image.calls(self.base, &self.layout, PLAUSIBLE_DESCRIPTOR);
        let mut calls = clean_calls(checked);
        calls.push(create_call(place, MFD_EXEC));
        calls.extend(mapped);
        calls
            .push(Call { nr: libc::SYS_munmap, args: [self.base, self.image.bytes(), 0, 0, 0, 0] });
        calls
    }

    fn record(&self) -> Record {
        Record {
            base: self.base,
            bytes: self.image.bytes(),
            rates: self.image.rates(self.base),
            areas: self.image.areas(self.base),
            hooks: self.layout.hooks.iter().map(|placed| placed.hook.clone()).collect(),
        }
    }
}

fn create_call(place: StubPlace, flags: u64) -> Call {
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) | flags;
    Call { nr: libc::SYS_memfd_create, args: [place.name(), flags, 0, 0, 0, 0] }
}

/// Calls that remove what a dead injector left.
fn clean_calls(checked: &Checked) -> Vec<Call> {
    let remains = &checked.remains;
    let unmap = |(start, end): &(u64, u64)| Call {
        nr: libc::SYS_munmap,
        args: [*start, end - start, 0, 0, 0, 0],
    };
    let close = |file: &i32| Call { nr: libc::SYS_close, args: [*file as u64, 0, 0, 0, 0, 0] };
    remains.ranges.iter().map(unmap).chain(remains.descriptors.iter().map(close)).collect()
}

/// Checks whether a process can be injected. Changes nothing, but stops the threads for a moment.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn preflight(pid: i32, library: &Path) -> Result<Report> {
    retried(|| dry_run(pid, library))
}

fn dry_run(pid: i32, library: &Path) -> Result<Report> {
    let checked = preflight::check(pid)?;
    let mut report = Report { verb: "can be injected", pid, ..Report::default() };
    if let Some(record) = &checked.remains.record {
        preflight::check_stopped_threads(&checked)?;
        (report.base, report.hooks) = (record.base, record.hooks.clone());
        return Ok(report);
    }
    let plan = Plan::make(&checked.target, library)?;
    let place = preflight::check_stopped_threads(&checked)?;
    let thread = thread(&checked, place, &plan)?;
    thread.release();
    note_layout(&mut report, &plan);
    Ok(report)
}

fn note_layout(report: &mut Report, plan: &Plan) {
    report.base = plan.base;
    report.hooks = plan.layout.hooks.iter().map(|placed| placed.hook.clone()).collect();
    report.without.clone_from(&plan.layout.without);
    report.left_out.clone_from(&plan.layout.left_out);
}

/// Reports the reasons against an injection that show by reading alone. Stops no thread, so the
/// threads' words (`fs:0x80`) and seccomp filters stay unchecked.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn examine(pid: i32, library: &Path) -> Result<Report> {
    let (target, remains) = preflight::examine(pid)?;
    let mut report = Report { verb: "nothing speaks against it", pid, ..Report::default() };
    match remains.record {
        Some(record) => (report.base, report.hooks) = (record.base, record.hooks),
        None => note_layout(&mut report, &Plan::make(&target, library)?),
    }
    Ok(report)
}

/// Stops a thread whose seccomp filters allow the calls.
fn thread(checked: &Checked, place: StubPlace, plan: &Plan) -> Result<Thread> {
    let target = &checked.target;
    let calls = plan.calls(checked, place);
    let mut last = anyhow::anyhow!(Refusal::Ended);
    for tid in stop::threads(target.pid).into_iter().filter(|tid| stop::runs_program(*tid)) {
        let thread = match Thread::stop(tid, &target.memory) {
            Ok(thread) => thread,
            // Only the end of this process lets such a thread go on.
            Err(error) if matches!(error.downcast_ref(), Some(stop::Error::Unstoppable { .. })) => {
                return Err(error);
            }
            Err(error) => {
                last = error;
                continue;
            }
        };
        match preflight::check_filters(tid, place, &calls) {
            Ok(()) => return Ok(thread),
            Err(error) => {
                thread.release();
                last = error;
            }
        }
    }
    Err(last)
}

/// Injects the sampler.
///
/// # Errors
/// A [`Refusal`], or any other failure. The target then runs on as before.
pub fn inject(pid: i32, library: &Path, rate: Rate) -> Result<Report> {
    retried(|| {
        let checked = preflight::check(pid)?;
        let mut report = Report { verb: "injected", pid, ..Report::default() };
        let record = match checked.remains.record.clone() {
            Some(record) => {
                renew(&checked.target, &record, rate)?;
                record
            }
            None => deliver(&checked, library, rate, &mut report)?,
        };
        put_hooks_in(&checked, &record, &mut report)?;
        Ok(report)
    })
}

/// Repeats an operation that another thread, the loader, or the scheduler prevented.
fn retried(mut operation: impl FnMut() -> Result<Report>) -> Result<Report> {
    let loaded_by = Instant::now() + LOADING;
    let (mut pause, mut tries) = (FIRST_RETRY_DELAY, 1);
    loop {
        let error = match operation() {
            Err(error) => error,
            done => return done,
        };
        let is_loading = matches!(error.downcast_ref(), Some(Refusal::Loading));
        if is_loading && Instant::now() < loaded_by {
            std::thread::sleep(LOADING_PAUSE);
            continue;
        }
        if tries == MAX_TRIES || !is_worth_another_try(&error) {
            return Err(error);
        }
        std::thread::sleep(pause);
        (pause, tries) = (MAX_PAUSE.min(2 * pause), tries + 1);
    }
}

/// A system call of the borrowed thread failed, for example because an address was taken in
/// between.
#[derive(Debug, thiserror::Error)]
#[error("system call {nr} of thread {tid} returned {result}")]
struct CallFailed {
    nr: i64,
    tid: kernel::Tid,
    result: i64,
    /// Number of calls that were made before the failed one.
    before: usize,
}

fn is_worth_another_try(error: &anyhow::Error) -> bool {
    let is_taken = error
        .downcast_ref::<CallFailed>()
        .is_some_and(|failed| failed.result == -i64::from(libc::EEXIST));
    is_taken || matches!(error.downcast_ref(), Some(stop::Error::Late { .. }))
}

/// Maps the image, fills it, and writes the record. No hook leads into the image yet.
fn deliver(checked: &Checked, library: &Path, rate: Rate, report: &mut Report) -> Result<Record> {
    let target = &checked.target;
    let plan = Plan::make(target, library)?;
    let place = preflight::check_stopped_threads(checked)?;
    kernel::set_urgent(true);
    let borrowed = thread(checked, place, &plan)
        .and_then(|thread| Borrowed::take(thread, place, record::NAME, &target.memory));
    let delivered = borrowed.and_then(|mut borrowed| {
        let mapped = map_image(checked, &plan, place, &mut borrowed);
        report.borrowed = Some(borrowed.give_back());
        mapped
    });
    kernel::set_urgent(false);
    delivered?;
    let values = Values {
        rate: rate.raw(),
        clock: target.clock(),
        seed: random()?,
        has_rdrand: std::arch::is_x86_feature_detected!("rdrand"),
    };
    for (address, bytes) in plan.image.writes(plan.base, &plan.layout, values)? {
        target.memory.write(address, &bytes)?;
    }
    let record = plan.record();
    let page = plan.base + plan.image.bytes() - PAGE_BYTES;
    target.memory.write(page, &record.page())?;
    target.memory.write(page, &Record::magic())?;
    note_layout(report, &plan);
    Ok(record)
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("get random bytes")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Lets the borrowed thread clean up, create the memory file, and map it. After a failure the
/// mappings are removed again.
fn map_image(
    checked: &Checked,
    plan: &Plan,
    place: StubPlace,
    thread: &mut Borrowed,
) -> Result<()> {
    let clean = clean_calls(checked);
    if !clean.is_empty() {
        all_made(thread, &clean)?;
    }
    let file = create(thread, place)?;
    let mapped = fill(checked.target.pid, file, plan).and_then(|()| {
        let calls = plan.image.calls(plan.base, &plan.layout, file);
        preflight::check_filters(thread.tid(), place, &calls)?;
        map_all(thread, &calls)
    });
    if mapped.is_err() {
        let _ = thread.run(&[Call { nr: libc::SYS_close, args: [file, 0, 0, 0, 0, 0] }]);
    }
    mapped
}

/// Creates the memory file and returns its descriptor.
fn create(thread: &mut Borrowed, place: StubPlace) -> Result<u64> {
    let call = create_call(place, MFD_EXEC);
    let (_, mut result) = thread.run(&[call])?;
    if result == -i64::from(libc::EINVAL) {
        (_, result) = thread.run(&[create_call(place, 0)])?;
    }
    let failed = CallFailed { nr: call.nr, tid: thread.tid(), result, before: 0 };
    u64::try_from(result).map_err(|_| failed.into())
}

/// Writes the file and seals it, so that nobody ever changes it.
fn fill(pid: i32, descriptor: u64, plan: &Plan) -> Result<()> {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
    let file = file.with_context(|| format!("open {path}"))?;
    // Another thread may have replaced the descriptor by a file of its choice, which this process
    // could write to and that thread could not.
    let own = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let has_no_seals = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.is_empty());
    ensure!(has_no_seals && own == Path::new(record::SHOWN), "{path} is not the image's file");
    file.write_all_at(&plan.content, 0).context("write the image")?;
    crate::steps::step();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).context("seal the image")?;
    crate::steps::step();
    Ok(())
}

/// Makes all mappings, or none.
fn map_all(thread: &mut Borrowed, calls: &[Call]) -> Result<()> {
    let Err(error) = all_made(thread, calls) else { return Ok(()) };
    let failed = error.downcast_ref::<CallFailed>().map_or(0, |failed| failed.before);
    let unmap = |call: &Call| {
        let [address, bytes, ..] = call.args;
        Call { nr: libc::SYS_munmap, args: [address, bytes, 0, 0, 0, 0] }
    };
    let is_map = |call: &&Call| call.nr == libc::SYS_mmap;
    let undo: Vec<Call> = calls[..failed].iter().filter(is_map).map(unmap).collect();
    for part in undo.chunks(thread.max_calls()) {
        let _ = thread.run(part);
    }
    Err(error)
}

/// Lets the thread make calls, none of which may fail.
fn all_made(thread: &mut Borrowed, calls: &[Call]) -> Result<()> {
    let mut before = 0;
    for part in calls.chunks(thread.max_calls()) {
        let (made, result) = thread.run(part)?;
        if made != part.len() || is_error(result) {
            before += made.saturating_sub(1);
            let nr = calls.get(before).map_or(0, |call| call.nr);
            bail!(CallFailed { nr, tid: thread.tid(), result, before });
        }
        before += part.len();
    }
    Ok(())
}

fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Gives an existing image empty tables and the rate. While a hook is in, the library keeps its
/// tables right by itself, so only the rate is written.
fn renew(target: &Target, record: &Record, rate: Rate) -> Result<()> {
    for hook in &record.hooks {
        let has_landings = record::has_landings(&target.maps, hook);
        ensure!(has_landings, "{}: the program has unmapped the code of its hook", hook.name);
    }
    for hook in &record.hooks {
        if hook::state(&target.memory, hook) == hook::State::In {
            return write_rates(target, record, rate);
        }
    }
    for (start, bytes) in record.areas {
        empty(target, start, bytes)?;
    }
    write_rates(target, record, rate)
}

fn write_rates(target: &Target, record: &Record, rate: Rate) -> Result<()> {
    // The requested rate is written first: the library applies it by itself.
    for address in record.rates.iter().rev() {
        target.memory.write(*address, &rate.raw().to_le_bytes())?;
    }
    Ok(())
}

/// Fills a range with zeros, page by page. Pages of zeros are not written, so that they take no
/// memory.
fn empty(target: &Target, start: u64, bytes: u64) -> Result<()> {
    let mut at = start;
    while at < start + bytes {
        let next = (at + 1).next_multiple_of(PAGE_BYTES).min(start + bytes);
        let page = target.memory.read(at, (next - at) as usize)?;
        if page.iter().any(|byte| *byte != 0) {
            target.memory.write(at, &vec![0; page.len()])?;
        }
        at = next;
    }
    Ok(())
}

fn put_hooks_in(checked: &Checked, record: &Record, report: &mut Report) -> Result<()> {
    let target = &checked.target;
    let has_image = checked.remains.record.is_some();
    kernel::set_urgent(true);
    let done = stop::stop(target.pid).map_err(anyhow::Error::from).and_then(|stopped| {
        preflight::check_threads(target, &stopped, has_image)?;
        let tid = stopped.threads()[0];
        let are_in: Vec<Hook> =
            hook::put_in(&target.memory, tid, &record.hooks)?.into_iter().cloned().collect();
        let is_whole = are_in.len() == record.hooks.len();
        if !is_whole && needs_more(target, record, &are_in) {
            hook::take_out(&target.memory, tid, &record.hooks)?;
        }
        report.threads = stopped.threads().len();
        report.stopped = Some(stopped.release());
        Ok(are_in)
    });
    kernel::set_urgent(false);
    let are_in = done?;
    let is_missing = |hook: &&Hook| !are_in.contains(hook);
    for hook in record.hooks.iter().filter(is_missing) {
        report.without.push(hook.name.clone());
        if is_needed(target, hook) {
            bail!("{}: another tool has changed its code since it was injected", hook.name);
        }
    }
    (report.base, report.hooks) = (record.base, are_in);
    Ok(())
}

fn needs_more(target: &Target, record: &Record, are_in: &[Hook]) -> bool {
    record.hooks.iter().any(|hook| is_needed(target, hook) && !are_in.contains(hook))
}

/// Whether a process is left alone without this hook. A library that is called past `malloc` may be
/// unloaded by now.
fn is_needed(target: &Target, hook: &Hook) -> bool {
    let is_code = |at| target.maps.at(at).is_some_and(|of| of.is_executable && of.inode != 0);
    hook.is_past_malloc && is_code(hook.patch) || allocator::is_needed(&hook.name)
}

/// Ejects the sampler: the bytes are put back, the image stays mapped.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn eject(pid: i32) -> Result<Report> {
    retried(|| {
        let checked = preflight::check(pid)?;
        let target = &checked.target;
        let record = checked.remains.record.as_ref().ok_or(Refusal::NothingInjected)?;
        let mut report = Report { verb: "ejected", pid, base: record.base, ..Report::default() };
        kernel::set_urgent(true);
        let done = stop::stop(pid).map_err(anyhow::Error::from).and_then(|stopped| {
            let tid = stopped.threads()[0];
            let foreign = hook::take_out(&target.memory, tid, &record.hooks)?;
            report.without = foreign.iter().map(|hook| hook.name.clone()).collect();
            report.threads = stopped.threads().len();
            report.stopped = Some(stopped.release());
            Ok(())
        });
        kernel::set_urgent(false);
        done?;
        let is_out = |hook: &&Hook| !report.without.contains(&hook.name);
        report.hooks = record.hooks.iter().filter(is_out).cloned().collect();
        Ok(report)
    })
}
