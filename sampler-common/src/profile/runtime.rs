//! Runtimes: mapped files whose native code calls the code of an interpreted language, and
//! libraries that call that code.
//!
//! Every stack of a JavaScript program begins with the same functions of node and V8. They tell its
//! owner less than the JavaScript functions do, so a table shows them later.

use super::startup::is_startup;
use super::{Profile, Stack};
use std::collections::HashSet;

/// The runtimes of a profile.
pub(super) struct Runtimes<'a> {
    /// Paths of the runtimes.
    paths: HashSet<&'a str>,
    /// For each stack, whether it has interpreted code.
    interpreted: Vec<bool>,
}

impl<'a> Runtimes<'a> {
    pub(super) fn of(profile: &'a Profile) -> Runtimes<'a> {
        let paths = profile.stacks.iter().flat_map(|of| callers_of_interpreted(profile, of));
        let has_interpreted =
            |stack: &Stack| stack.locations.iter().any(|index| is_interpreted(profile, *index));
        let interpreted = profile.stacks.iter().map(has_interpreted).collect();
        Runtimes { paths: paths.collect(), interpreted }
    }

    /// Whether a function of this file belongs to a runtime, and has most of its bytes from code
    /// that the runtime calls. `stacks` are the function's stacks.
    pub(super) fn has(&self, profile: &Profile, module: &str, stacks: &[usize]) -> bool {
        let bytes =
            |stack: &usize| profile.stacks[*stack].quantities.space(profile.kind).estimate.value;
        let (mut under, mut all) = (0.0, 0.0);
        for stack in stacks {
            all += bytes(stack);
            under += if self.interpreted[*stack] { bytes(stack) } else { 0.0 };
        }
        self.paths.contains(module) && under > 0.5 * all
    }
}

fn is_interpreted(profile: &Profile, location: u32) -> bool {
    profile.is_interpreted(&profile.locations[location as usize])
}

/// Paths of the file whose native code calls the outermost interpreted frame of a stack, and of the
/// libraries that call it. (A program may call an interpreter for some of its work only.) Functions
/// that only start a program or a thread are no runtime.
fn callers_of_interpreted<'a>(
    profile: &'a Profile,
    stack: &'a Stack,
) -> impl Iterator<Item = &'a str> {
    let outermost = stack.locations.iter().rposition(|index| is_interpreted(profile, *index));
    let callers = outermost.map_or(&[][..], |at| &stack.locations[at + 1..]);
    callers.iter().enumerate().filter_map(|(at, index)| {
        let caller = &profile.locations[*index as usize];
        let starts = caller.lines.iter().any(|line| is_startup(&line.function));
        let path = profile.mappings[caller.mapping as usize].path.as_str();
        (!starts && (at == 0 || is_library(path))).then_some(path)
    })
}

/// Whether a path has the name of a shared library: `libuv.so.1.0.0`.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::super::functions;
    use crate::encode::fixture;
    use crate::profile::{Kind, Mapping, Profile};

    /// Functions that only call, in the order of the table.
    fn callers(profile: &Profile) -> Vec<&str> {
        let all = functions(profile).into_iter().filter(|of| of.own().is_none());
        all.map(|of| of.frame.line.function.split('(').next().unwrap()).collect()
    }

    #[test]
    fn the_functions_of_a_language_come_before_those_of_its_runtime() {
        let mut profile = fixture::profile(Kind::Alloc);
        let [insert, put] = ["std::_Hashtable", "Store::put"];
        let [handle, main, start] = ["Server::handle", "main", "__libc_start_call_main"];
        let found = |profile: &Profile| {
            let found = callers(profile).into_iter();
            found.map(|name| name.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        fixture::move_to_program(&mut profile, insert);
        assert_eq!(found(&profile), [handle, main, insert, put, start]);
        profile.mappings.push(Mapping { path: "[jit kvstore]".into(), ..Mapping::default() });
        profile.locations[3].mapping = profile.mappings.len() as u32 - 1;
        // Most bytes under `main` do not come from compiled code.
        assert_eq!(found(&profile), [handle, main, put, insert, start]);
        profile.stacks.retain(|stack| [3, 6].iter().any(|at| stack.locations.contains(at)));
        assert_eq!(found(&profile), [put, handle, main, insert, start]);
        // A program that embeds the language is no runtime, and a library between them is.
        const CODEC: u32 = 3;
        profile.locations[4].mapping = CODEC;
        assert_eq!(found(&profile), [main, insert, put, handle, start]);
        profile.locations[8].mapping = 2;
        assert_eq!(found(&profile), [insert, put, handle, main, start]);
    }
}
