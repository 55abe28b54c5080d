//! `sampler symbolize`: names for frames that hosts wrote without. No samplerd is asked; its program
//! reads the files.

use crate::args::SymbolizeVerb;
use crate::{output, page, run};
use anyhow::{Context as _, Result};
use sampler_common::encode::text::layout::paragraph;
use sampler_common::units::grouped;
use sampler_daemon::debuginfod::{Debuginfod, URLS};
use sampler_daemon::export::folder::names::{Outcome, symbolize};
use serde_json::{Value, json};
use std::panic;

pub(crate) fn add(verb: &SymbolizeVerb, json: bool) -> Result<()> {
    leave_out_parquet_panics();
    let samplerd = run::find()?;
    let debuginfod = Debuginfod::of_environment(&samplerd).context(URLS)?;
    let asks = debuginfod.is_some();
    let folder = || format!("parquet:{}", verb.folder.display());
    let outcome = symbolize(&verb.folder, &samplerd, debuginfod).with_context(folder)?;
    let line = match json {
        true => object(&outcome).to_string(),
        false => output::one_line(&text(&outcome, asks)),
    };
    let contents = match !json && page::is_terminal() {
        true => paragraph("", &line, 0, page::width()),
        false => line + "\n",
    };
    output::print(contents.as_bytes())
}

/// Panics of the Parquet library are reported as errors of the damaged file, and not twice.
fn leave_out_parquet_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|at| at.file().contains("/parquet-")) {
            usual(info);
        }
    }));
}

/// The JSON form; its keys are stable.
fn object(outcome: &Outcome) -> Value {
    let not_found = outcome.not_found.iter();
    let not_found: Vec<Value> =
        not_found.map(|of| json!({ "build_id": of.build_id, "path": of.path })).collect();
    json!({
        "frames": outcome.frames,
        "named": outcome.named,
        "files": outcome.files,
        "not_found": not_found,
        "limits": outcome.limits,
        "written_files": outcome.written,
        "removed_files": outcome.removed,
    })
}

/// `asks` says whether debuginfod servers were asked.
fn text(outcome: &Outcome, asks: bool) -> String {
    let (frames, named) = (grouped(outcome.frames), grouped(outcome.named));
    if outcome.frames == 0 {
        return "0 frames have no name: nothing to do".to_owned();
    }
    let files = grouped(outcome.files);
    let mut text = format!("{frames} frames of {files} files had no name, {named} have one now.");
    let help = match asks {
        true => "install debug files below /usr/lib/debug",
        false => "set DEBUGINFOD_URLS, or install debug files below /usr/lib/debug",
    };
    if let Some(first) = outcome.not_found.first() {
        let missing = grouped(outcome.not_found.len() as u64);
        let (path, id) = (&first.path, &first.build_id);
        text += &format!(
            " {missing} files were found nowhere, {path} (build id {id}) for example: {help}, or run this where the files are (--json names all)."
        );
    } else if outcome.named < outcome.frames {
        text += &format!(" The files have no names for the others: {help}.");
    }
    let limits = outcome.limits.iter().map(|limit| format!(" {limit}."));
    text + &limits.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_daemon::export::folder::names::NotFound;

    #[test]
    fn what_is_missing_has_its_remedy() {
        let mut outcome = Outcome { frames: 1200, named: 1200, files: 3, ..Outcome::default() };
        assert_eq!(
            text(&outcome, false),
            "1,200 frames of 3 files had no name, 1,200 have one now."
        );
        outcome.named = 7;
        assert!(
            text(&outcome, false)
                .ends_with("DEBUGINFOD_URLS, or install debug files below /usr/lib/debug.")
        );
        outcome.not_found = vec![NotFound { build_id: "01".into(), path: "/x".into() }];
        let found = text(&outcome, true);
        assert!(found.contains(" 1 files were found nowhere, /x (build id 01)"), "{found}");
        assert!(!found.contains("DEBUGINFOD_URLS"), "{found}");
        assert_eq!(text(&Outcome::default(), true), "0 frames have no name: nothing to do");
    }
}
