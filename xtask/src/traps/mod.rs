//! Checks a built eBPF object for traps: mistakes that compilers make silently and the verifier
//! accepts.

mod atomics;
mod instruction;
mod program;
mod returns;
mod stack;

use std::path::Path;

use anyhow::{Result, bail};

use self::program::Program;

/// Name prefix of the entry programs whose return value decides whether the return probe runs.
const DECIDES: &str = "alloc_session";
/// Return value of a session's entry program: this call's return probe is skipped.
const SKIP: u64 = 1;
/// Return value of a session's entry program: this call's return probe runs.
const RUN: u64 = 0;

/// Kind of object. It says what the object must contain besides being free of traps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The sampler: it has the session's entry program, and draws from an atomic countdown.
    Sampler,
    /// Programs to measure against.
    Bench,
}

/// Checks an object that the linker made of the optimized LLVM `code`. Returns a summary.
///
/// # Errors
/// If a check fails; the text names the function and the remedy.
pub(crate) fn check(kind: Kind, data: &[u8], code: &str, places: &[&Path]) -> Result<String> {
    let program = Program::parse(data)?;
    check_sections(&program)?;
    let atomics = atomics::check(&program, code)?;
    let deciding = check_decisions(&program)?;
    if kind == Kind::Sampler && deciding == 0 {
        bail!("no function {DECIDES}: the session's entry program is missing");
    }
    if kind == Kind::Sampler && atomics.fetching == 0 {
        bail!("no atomic gives its old value: the countdown cannot work");
    }
    let deepest = stack::check(&program)?;
    check_places(data, places)?;
    Ok(format!(
        "{} functions, {} atomics that fetch, {} that do not, {deepest} bytes of stack",
        program.functions.len(),
        atomics.fetching,
        atomics.plain,
    ))
}

/// Checks the section names: aya refuses a whole object for one section of such a name. Attach
/// types are chosen at load.
fn check_sections(program: &Program) -> Result<()> {
    for name in &program.sections {
        let kind = name.split('/').next().unwrap_or_default();
        if let "uprobe.multi" | "uretprobe.multi" | "uprobe.multi.s" | "uretprobe.multi.s" = kind {
            bail!("section {name}: aya rejects the whole object; use section uprobe");
        }
    }
    Ok(())
}

/// Checks that every deciding program can decide both ways. Returns the number of these programs.
fn check_decisions(program: &Program) -> Result<usize> {
    let mut deciding = 0;
    for (index, function) in program.functions.iter().enumerate() {
        if !function.name.starts_with(DECIDES) || function.section == ".text" {
            continue;
        }
        deciding += 1;
        let returned = returns::returned(program, index);
        for (value, meaning) in [(SKIP, "skip"), (RUN, "run")] {
            if !returned.may_be(value) {
                bail!(
                    "{}: never returns {value}, so it can never {meaning} the return probe \
                     (it returns {returned}); write the entry by hand, not with #[uprobe]",
                    function.name,
                );
            }
        }
    }
    Ok(deciding)
}

/// Checks that the object contains no path of the build machine. Such a path would make every
/// machine's object different.
fn check_places(data: &[u8], places: &[&Path]) -> Result<()> {
    for place in places {
        let bytes = place.as_os_str().as_encoded_bytes();
        // A short path (`/`, `/usr`) occurs in any object.
        if bytes.len() > 4 && data.windows(bytes.len()).any(|window| window == bytes) {
            bail!("the path {} of this machine is in the object", place.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_that_aya_refuses_are_refused() {
        let program = |name: &str| Program { functions: vec![], sections: vec![name.into()] };
        assert!(check_sections(&program("uprobe")).is_ok());
        assert!(check_sections(&program("uprobe.multi")).is_err());
        assert!(check_sections(&program("uprobe.multi/libc:malloc")).is_err());
        assert!(check_sections(&program("uretprobe.multi")).is_err());
    }

    #[test]
    fn paths_of_the_machine_are_refused() {
        let data = b"....DW_AT_comp_dir /home/somebody/sampler ....";
        assert!(check_places(data, &[Path::new("/home/somebody")]).is_err());
        assert!(check_places(data, &[Path::new("/home/else"), Path::new("/")]).is_ok());
    }

    #[test]
    fn an_empty_object_is_refused() {
        assert!(check(Kind::Sampler, b"", "", &[]).is_err());
    }
}
