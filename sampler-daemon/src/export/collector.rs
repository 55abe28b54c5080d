//! Asks the worker (the event loop) what was allocated since the last window, and what is held now.

use super::Settings;
use super::builds::Builds;
use super::names_from::NamesFrom;
use super::services::Services;
use super::share::Share;
use crate::inspect::htlhash::htlhash;
use crate::pipeline::{
    Border, Names, ProfileRequest, Profiler, RawFrame, RawProfile, RequestedWindow, Scope, Stopped,
    locations,
};
use crate::store::Selector;
use crate::unwind::{Module, ModuleId, ModuleKind};
use rustc_hash::FxHashMap;
use sampler_common::encode::push::{
    Attributes, CodeFile, Draw, Frame, Push, ServiceTotals, Stack, merged,
};
use sampler_common::estimate::Confidence;
use sampler_common::profile::Kind;
use sampler_common::units;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// Timeout for reading the 8 KiB of a file that its `htlhash` covers. A FUSE file system may never
/// answer.
const HASH_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of remembered hashes.
const MAX_HASHES: usize = 16 * 1024;

/// The pushes of one collection.
pub(super) struct Pushes {
    /// The profile of what was allocated, and that of what is held.
    pub(super) pushes: Vec<Push>,
    /// Time between the last window and this window. Neither window covers it.
    pub(super) uncovered: Duration,
}

/// Makes the pushes of one window after another.
pub(super) struct Collector {
    profiler: Profiler,
    names: Names,
    names_from: NamesFrom,
    services: Services,
    builds: Builds,
    hashes: Hashes,
    held: bool,
    share: Share,
    host: String,
    /// The last draw. The log has the first draw of each day.
    draw: Option<Draw>,
    /// The border at which the last window ended.
    border: Option<Border>,
}

impl Collector {
    pub(super) fn new(settings: &Settings, profiler: Profiler, names: Names) -> Collector {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Collector {
            profiler,
            names,
            names_from: settings.names,
            services: Services::new(host.clone(), settings.labels.clone()),
            builds: Builds::default(),
            hashes: Hashes::default(),
            held: settings.held,
            share: settings.share,
            host,
            draw: None,
            border: None,
        }
    }

    /// Returns what was allocated since the last window, and what is held now.
    pub(super) async fn next(&mut self) -> Result<Pushes, Stopped> {
        let mut pushes = Pushes { pushes: Vec::new(), uncovered: Duration::ZERO };
        let window = Scope { window: Some(RequestedWindow::After(self.border)), ..Scope::ALL };
        if let Some(raw) = self.ask(Kind::Alloc, window).await?
            && let Some(borders) = raw.borders
        {
            pushes.uncovered = self.border.map_or(Duration::ZERO, |last| borders.start.since(last));
            self.border = Some(borders.end);
            let start_unix_ns = raw.window.map_or(0, |of| of.start_unix_ns);
            let duration_ns = raw.duration_ns;
            // If no time slot has ended yet, there is no push, and the next window starts here.
            if borders.start < borders.end {
                pushes.pushes.push(self.push(raw, start_unix_ns, duration_ns).await);
            }
        }
        // A host that is not drawn sends totals only, and a snapshot has none.
        if self.held
            && self.draw_now().is_drawn
            && let Some(raw) = self.ask(Kind::Live, Scope::ALL).await?
        {
            let now = raw.time.duration_since(UNIX_EPOCH).unwrap_or_default();
            pushes.pushes.push(self.push(raw, now.as_nanos() as u64, 0).await);
        }
        Ok(pushes)
    }

    /// Says whether this host is drawn today.
    pub(super) fn draw_now(&mut self) -> Draw {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.draw(now.as_nanos() as u64)
    }

    /// Says whether this host is drawn for the day of a moment. Logs that once a day.
    fn draw(&mut self, unix_ns: u64) -> Draw {
        let draw = self.share.draw(&self.host, unix_ns);
        if self.share != Share::ALL && self.draw.is_none_or(|last| last.day != draw.day) {
            let not = if draw.is_drawn { "" } else { "not " };
            let percent = self.share.percent();
            tracing::info!(
                "export: this host is {not}among the {percent} % that send stacks today"
            );
        }
        self.draw = Some(draw);
        draw
    }

    /// Asks for a profile. Returns `None` if the worker refuses, and logs the refusal.
    async fn ask(&self, kind: Kind, scope: Scope) -> Result<Option<RawProfile>, Stopped> {
        let request = ProfileRequest {
            kind,
            selector: Selector::default(),
            confidence: Confidence::DEFAULT,
            estimator: None,
            top: 0,
            functions: 0,
            scope,
        };
        let answer = self.profiler.profile(request).await?;
        Ok(answer.inspect_err(|why| tracing::warn!("export: {why}")).ok())
    }

    /// Makes the push of a profile.
    async fn push(&mut self, mut raw: RawProfile, start_unix_ns: u64, duration_ns: u64) -> Push {
        let draw = self.draw(start_unix_ns);
        self.builds.learn(&raw);
        if !draw.is_drawn {
            raw.rows.clear();
            raw.frames.clear();
        }
        let now = Instant::now();
        let mut services: Vec<Attributes> = Vec::new();
        let mut indexes: FxHashMap<Attributes, u32> = FxHashMap::default();
        let service_of_process = raw.programs.iter().zip(&raw.pids).map(|(program, pid)| {
            let build_id = self.builds.of(*pid, program);
            let attributes = self.services.of(program, build_id, now);
            *indexes.entry(attributes).or_insert_with_key(|attributes| {
                services.push(attributes.clone());
                services.len() as u32 - 1
            })
        });
        let service_of_process: Vec<u32> = service_of_process.collect();
        let totals = totals(&raw, &service_of_process, services.len());
        let stacks = raw.rows.into_iter().filter_map(|row| {
            // All strata of a row belong to one process.
            let (stratum, _) = row.row.strata().next()?;
            let service = service_of_process[stratum.process as usize];
            Some(Stack { service, frames: row.frames, moments: row.row.total() })
        });
        let stacks = merged(stacks);
        let mut files = Files::default();
        let frames = self.frames(&raw.frames, &mut files).await;
        Push {
            kind: raw.request.kind,
            start_unix_ns,
            duration_ns,
            interval_bytes: units::whole_interval(raw.interval_bytes),
            draw,
            services,
            totals,
            files: files.list,
            frames,
            stacks,
        }
    }

    /// Returns frames with their places in files, and with the names that are looked up here.
    async fn frames(&mut self, raw: &[RawFrame], files: &mut Files) -> Vec<Frame> {
        let mut frames = Vec::with_capacity(raw.len());
        // Frames whose names are looked up here, and their indexes.
        let (mut named, mut indexes) = (Vec::new(), Vec::new());
        for (index, frame) in raw.iter().enumerate() {
            let code = match frame {
                RawFrame::Code(module, offset, _) => self.place(module, *offset, files).await,
                RawFrame::Note(_) => None,
            };
            if code.is_none() || !self.is_left_to_server(frame) {
                named.push(frame.clone());
                indexes.push(index);
            }
            frames.push(Frame { code, lines: Vec::new() });
        }
        let locations = locations(&named, &self.names).await;
        for (index, location) in indexes.into_iter().zip(locations) {
            frames[index].lines = location.lines;
        }
        frames
    }

    /// Whether the receiver looks up the name of a frame. It does not look up probed functions,
    /// whose names are known here, nor code that is in no file, such as the vdso.
    fn is_left_to_server(&self, frame: &RawFrame) -> bool {
        let RawFrame::Code(module, _, None) = frame else { return false };
        let is_file = matches!(module.kind, ModuleKind::File(_) | ModuleKind::Closed);
        self.names_from == NamesFrom::Server && is_file
    }

    /// Returns the file that a frame lies in, as an index into `files`, and the frame's address in
    /// the file. Returns `None` if another host could not find the file or the address.
    async fn place(
        &mut self,
        module: &Arc<Module>,
        offset: u64,
        files: &mut Files,
    ) -> Option<(u32, u64)> {
        let address = module.svma(offset)?;
        let htlhash = self.hashes.of(module).await;
        let file =
            CodeFile { path: module.path.clone(), build_id: module.build_id.clone(), htlhash };
        let is_known = !file.build_id.is_empty() || !file.htlhash.is_empty();
        is_known.then(|| (files.index(file), address))
    }
}

/// Returns the totals of services.
fn totals(raw: &RawProfile, service_of_process: &[u32], services: usize) -> Vec<ServiceTotals> {
    let nothing = match raw.request.kind {
        Kind::Alloc => Some((0, 0)),
        // What is held is not counted.
        Kind::Live | Kind::Peak | Kind::Mapped => None,
    };
    let mut totals = vec![ServiceTotals { processes: 0, exact: nothing }; services];
    for (process, service) in (0..).zip(service_of_process) {
        let of = &mut totals[*service as usize];
        of.processes += 1;
        for (_, stratum) in raw.reference.strata_of(process) {
            of.exact = of.exact.zip(stratum.exact).map(|((a, b), (c, d))| (a + c, b + d));
        }
    }
    totals
}

/// The files of a push, each once.
#[derive(Default)]
struct Files {
    list: Vec<CodeFile>,
    indexes: FxHashMap<CodeFile, u32>,
}

impl Files {
    /// Returns the index of a file in the list, and adds the file if it is new.
    fn index(&mut self, file: CodeFile) -> u32 {
        let next = self.list.len() as u32;
        *self.indexes.entry(file).or_insert_with_key(|file| {
            self.list.push(file.clone());
            next
        })
    }
}

/// The `htlhash` of modules, empty if unknown. A hash stays known after its file is closed.
#[derive(Default)]
struct Hashes(FxHashMap<ModuleId, String>);

impl Hashes {
    async fn of(&mut self, module: &Module) -> String {
        if let Some(known) = self.0.get(&module.id) {
            return known.clone();
        }
        if self.0.len() >= MAX_HASHES {
            self.0.clear();
        }
        let hash = match &module.kind {
            ModuleKind::File(file) => {
                let file = Arc::clone(file);
                let read = tokio::task::spawn_blocking(move || htlhash(&file).unwrap_or_default());
                timeout(HASH_TIMEOUT, read).await.map(Result::unwrap_or_default).unwrap_or_default()
            }
            _ => String::new(),
        };
        // An empty hash is remembered too, so that a file system that does not answer is not read
        // again.
        self.0.insert(module.id, hash.clone());
        hash
    }
}
