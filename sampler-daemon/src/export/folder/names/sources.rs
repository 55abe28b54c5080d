//! Where names come from: a file at a path that a host has named, if it is the same file here; its
//! debug file, as distributions install it; and debuginfod servers. samplerd's parser process reads
//! all of them, since a host may have named anything.

use super::frames::Wanted;
use crate::debuginfod::{Debuginfod, FileState};
use crate::inspect::htlhash::htlhash;
use crate::parser::{Counts, DebugFiles as _, Parser, build_id, debug_file};
use crate::regular_file::open_regular;
use crate::symbolize::debug_file::{FETCHED, path_of_id};
use crate::symbolize::{Reader as _, as_called};
use crate::unwind::{Life, Module, ModuleId, ModuleKind};
use anyhow::Context as _;
use sampler_common::profile::Line;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CPU time for the names of a file. Nobody waits for a profile here.
const FILE_TIME: Duration = Duration::from_secs(60);
/// Longest time until a file has come from a server, or is known not to come.
const FETCH_TIME: Duration = Duration::from_secs(600);
/// How often it is checked whether a file has come.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// The lines of a frame; `None` if they are unknown.
pub(super) type Lines = Option<Arc<[Line]>>;

/// Looks up names in files.
pub(super) struct Sources {
    program: PathBuf,
    parser: Parser,
    counts: Arc<Counts>,
    debuginfod: Option<Debuginfod>,
    /// Number of files that were found.
    modules: u32,
}

impl Sources {
    pub(super) fn new(program: &Path, debuginfod: Option<Debuginfod>) -> Sources {
        let parser = Parser::of(program, Box::new(debuginfod.clone()));
        let counts = parser.counts();
        Sources { program: program.to_owned(), parser, counts, debuginfod, modules: 0 }
    }

    /// The lines of each of a file's frames, none for an unknown one; `None` if there is no such
    /// file.
    pub(super) fn look_up(&mut self, wanted: &Wanted) -> anyhow::Result<Option<Vec<Lines>>> {
        let Some((path, file)) = self.find(wanted) else { return Ok(None) };
        self.modules += 1;
        let build_id = wanted.build_id().unwrap_or_default().to_owned();
        let (id, kind) = (ModuleId(self.modules), ModuleKind::File(Arc::clone(&file)));
        let module = Module { id, path, build_id, code: Vec::new(), kind, life: Life::default() };
        let addresses: Vec<u64> = wanted.frames.iter().map(|(_, address)| *address).collect();
        loop {
            let lines =
                self.parser.lines_of_addresses(&module, &file, &addresses, FILE_TIME).context(
                    "start the process that reads names (install samplerd of the same version)",
                )?;
            // The file may need debug files that have to come from a server.
            for build_id in self.parser.requested(&module) {
                self.wait(&build_id);
            }
            if !self.parser.has_more(&module) {
                return Ok(Some(lines.into_iter().map(|lines| lines.map(as_called)).collect()));
            }
        }
    }

    /// What could not be read or had from a server: one line for each reason.
    pub(super) fn limits(&self) -> Vec<String> {
        let of_debuginfod = self.debuginfod.iter().flat_map(Debuginfod::limits);
        self.counts.limits().into_iter().chain(of_debuginfod).collect()
    }

    /// Finds a file or its debug file, and the path by which the parser knows it.
    fn find(&self, wanted: &Wanted) -> Option<(String, Arc<File>)> {
        let here = wanted.paths.iter().find_map(|path| {
            let file = self.at_path(path).filter(|file| self.is(file, wanted))?;
            Some((path.clone(), Arc::new(file)))
        });
        here.or_else(|| self.debug_file(wanted.build_id()?))
    }

    fn at_path(&self, path: &str) -> Option<File> {
        let path = Path::new(path);
        // Opening a device may start something.
        let is_file = path.is_absolute() && fs::metadata(path).is_ok_and(|of| of.is_file());
        is_file.then(|| open_regular(path).ok()).flatten()
    }

    /// Whether a file is the wanted one, and not another of the same name.
    fn is(&self, file: &File, wanted: &Wanted) -> bool {
        match wanted.build_id() {
            Some(id) => self.has_build_id(file, id),
            None => htlhash(file).is_ok_and(|hash| hash == wanted.id),
        }
    }

    fn has_build_id(&self, file: &File, id: &str) -> bool {
        build_id(&self.program, file).is_ok_and(|found| found.as_deref() == Some(id))
    }

    fn debug_file(&self, id: &str) -> Option<(String, Arc<File>)> {
        let installed = path_of_id(id).and_then(|path| {
            let file = File::from(debug_file(path.as_bytes())?);
            self.has_build_id(&file, id).then(|| (path, Arc::new(file)))
        });
        installed.or_else(|| {
            let debuginfod = self.debuginfod.as_ref()?;
            debuginfod.request(id);
            self.wait(id);
            Some((format!("{FETCHED}{id}"), debuginfod.get(id)?))
        })
    }

    /// Waits until a requested file has come, or is known not to come.
    fn wait(&self, build_id: &str) {
        let end = Instant::now() + FETCH_TIME;
        let is_coming = |of: &Debuginfod| of.state(build_id) == FileState::OnTheWay;
        while self.debuginfod.as_ref().is_some_and(is_coming) && Instant::now() < end {
            std::thread::sleep(CHECK_PERIOD);
        }
    }
}

impl Wanted {
    /// The GNU build id; `None` if the file has none.
    fn build_id(&self) -> Option<&str> {
        (!self.is_hash).then_some(self.id.as_str())
    }
}
