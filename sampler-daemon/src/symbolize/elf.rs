//! Names in ELF files, through blazesym. In samplerd only the parser process reads them
//! (`crate::parser`).

use super::demangled::demangled;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Reason, Sym, Symbolized};
pub(crate) use blazesym::symbolize::{Input, Symbolizer};
use sampler_common::profile::Line;

/// A reader of names that caches what it has read.
pub(crate) fn symbolizer() -> Symbolizer {
    Symbolizer::builder().enable_demangling(false).build()
}

/// The build id of the file at `path` in lower-case hex; `None` if it cannot be read.
pub(crate) fn build_id(path: &str) -> Option<String> {
    let bytes = blazesym::helper::read_elf_build_id(path).ok()??;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Lines of places in the file at `path`, innermost inlined function first; `None` for an unknown
/// place.
///
/// If the file's debug information cannot be read, or `debug` is false, the file's symbols are
/// used.
pub(crate) fn lines(
    symbolizer: &Symbolizer,
    path: &str,
    places: Input<&[u64]>,
    debug: bool,
) -> Vec<Option<Vec<Line>>> {
    let mut found = ask(symbolizer, path, places, debug);
    let failed: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_err()).collect();
    if debug && !failed.is_empty() {
        let again: Vec<u64> = failed.iter().map(|at| places.as_inner_ref()[*at]).collect();
        let again = places.map(|_| again.as_slice());
        for (at, answer) in failed.into_iter().zip(ask(symbolizer, path, again, false)) {
            found[at] = answer;
        }
    }
    found.into_iter().map(|answer| answer.unwrap_or(None)).collect()
}

/// Names could not be read, although there may be some.
struct Unreadable;

type Answer = Result<Option<Vec<Line>>, Unreadable>;

fn ask(
    symbolizer: &Symbolizer,
    path: &str,
    places: Input<&[u64]>,
    debug_syms: bool,
) -> Vec<Answer> {
    let count = places.as_inner_ref().len();
    let mut elf = Elf::new(path);
    elf.debug_syms = debug_syms;
    match symbolizer.symbolize(&Source::Elf(elf), places) {
        Ok(answers) if answers.len() == count => answers
            .into_iter()
            .map(|answer| match answer {
                Symbolized::Sym(symbol) => Ok(Some(lines_of(&symbol))),
                Symbolized::Unknown(Reason::IgnoredError) => Err(Unreadable),
                Symbolized::Unknown(_) => Ok(None),
            })
            .collect(),
        _ => (0..count).map(|_| Err(Unreadable)).collect(),
    }
}

/// blazesym lists the outer function first, and then its inlined functions from the outermost to
/// the innermost.
fn lines_of(symbol: &Sym<'_>) -> Vec<Line> {
    let outer = line(&symbol.name, symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().map(|it| line(&it.name, it.code_info.as_ref()));
    let mut lines: Vec<Line> = std::iter::once(outer).chain(inlined).collect();
    lines.reverse();
    lines
}

fn line(function: &str, code: Option<&CodeInfo<'_>>) -> Line {
    Line {
        function: demangled(function),
        file: code.map_or_else(String::new, |code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).unwrap_or(0),
    }
}
