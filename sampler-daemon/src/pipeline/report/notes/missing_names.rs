//! Notes of a profile about missing names.

use crate::debuginfod::{Debuginfod, FileState};
use crate::symbolize::{files, without_names};
use crate::unwind::Module;
use sampler_common::note::{Names, Note};
use sampler_common::profile::Line;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Notes about frames without names. `named` has the lines of each frame. `debuginfod` is `None` if
/// no server is asked.
pub(in crate::pipeline::report) fn notes(
    frames: &[(Arc<Module>, u64)],
    named: &[Arc<[Line]>],
    debuginfod: Option<&Debuginfod>,
) -> Vec<Note> {
    let nameless = without_names(frames, named);
    let Some(debuginfod) = debuginfod else {
        return not_requested(&nameless).map(Note::Names).into_iter().collect();
    };
    let nameless: BTreeSet<&str> = nameless.iter().map(|module| &*module.build_id).collect();
    let build_ids: BTreeSet<&str> =
        files(frames).into_iter().map(|module| &*module.build_id).collect();
    let (mut on_the_way, mut missing, mut failed, mut why) = (0, 0, 0, String::new());
    for build_id in build_ids {
        match debuginfod.state(build_id) {
            FileState::NotRequested | FileState::Here => {}
            FileState::OnTheWay => on_the_way += 1,
            FileState::Missing => missing += usize::from(nameless.contains(build_id)),
            FileState::Failed(reason) => {
                failed += 1;
                why = reason;
            }
        }
    }
    let notes = [
        (on_the_way > 0).then_some(Names::OnTheWay(on_the_way)),
        (failed > 0).then_some(Names::Failed(failed, why)),
        (missing > 0).then_some(Names::NotThere(missing)),
    ];
    notes.into_iter().flatten().map(Note::Names).collect()
}

/// The files without names, for a profile without debuginfod.
fn not_requested(nameless: &[&Arc<Module>]) -> Option<Names> {
    let files: BTreeMap<&str, &str> = nameless
        .iter()
        .map(|module| (&*module.build_id, module.path.rsplit('/').next().unwrap_or_default()))
        .collect();
    let files: Vec<_> =
        files.into_iter().map(|(id, name)| (name.to_owned(), id.to_owned())).collect();
    (!files.is_empty()).then_some(Names::NotRequested(files))
}
