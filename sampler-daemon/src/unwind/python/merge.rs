//! Replaces the interpreter's own frames by Python frames.
//!
//! Plainly: a C function of the interpreter evaluates Python code. It calls itself again only if C
//! code is between two Python functions. So each frame of that function stands for a run of Python
//! frames, which ends where C code entered the interpreter. Behind a replaced frame, the
//! interpreter's other frames only lead to the next evaluation, or to the next code of another
//! file. These frames are left out.
//!
//! The two lists have two sources. If their numbers contradict each other, nothing is replaced.

/// The kind of a native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// The function that evaluates Python code.
    Evaluation,
    /// Other code of the interpreter's file.
    Interpreter,
    /// Anything else.
    Other,
}

/// What happens to the interpreter's frames for which there are Python frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeFrames {
    /// Python frames replace them.
    Replaced,
    /// They stay, behind the Python frames that they evaluated.
    Kept,
}

/// The Python frames of one evaluation, newest first, or `None` if one of them could not be read.
pub(super) type Run<F> = Option<Vec<F>>;

/// Whether a list reaches the root of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The list reaches the root.
    Whole,
    /// The outer part is missing.
    Cut,
}

/// A merged stack, leaf first; `None` if the lists do not fit. A run replaces native frames only if
/// all of the run could be read.
pub(super) fn merge<F: Copy>(
    native: &[(F, Native)],
    native_extent: Extent,
    runs: &[Run<F>],
    runs_extent: Extent,
    replaced: NativeFrames,
) -> Option<Vec<F>> {
    let evaluations = native.iter().filter(|(_, kind)| *kind == Native::Evaluation).count();
    let fits = match (native_extent, runs_extent) {
        (Extent::Whole, Extent::Whole) => evaluations == runs.len(),
        (Extent::Whole, Extent::Cut) => evaluations >= runs.len(),
        (Extent::Cut, Extent::Whole) => evaluations <= runs.len(),
        // Nothing tells which evaluation belongs to which run.
        (Extent::Cut, Extent::Cut) => false,
    };
    if !fits {
        return None;
    }
    let mut merged = Vec::with_capacity(native.len());
    let (mut runs, mut is_behind) = (runs.iter(), false);
    for (frame, kind) in native {
        is_behind = match kind {
            Native::Evaluation => match runs.next() {
                Some(Some(run)) => {
                    merged.extend_from_slice(run);
                    if replaced == NativeFrames::Kept {
                        merged.push(*frame);
                    }
                    replaced == NativeFrames::Replaced
                }
                Some(None) | None => {
                    merged.push(*frame);
                    false
                }
            },
            Native::Interpreter if is_behind => true,
            Native::Interpreter | Native::Other => {
                merged.push(*frame);
                false
            }
        };
    }
    Some(merged)
}

/// The run of each evaluation, by memory on the stack: a run belongs to the evaluation whose memory
/// contains the run's address. Evaluations of other interpreters have no run.
pub(super) fn placed<F: Clone>(
    runs: &[(Run<F>, u64)],
    evaluations: &[(u64, u64)],
) -> Vec<(Run<F>, u64)> {
    let of = |(from, before): &(u64, u64)| {
        let run = runs.iter().find(|(_, address)| (*from..*before).contains(address));
        run.cloned().unwrap_or((None, 0))
    };
    evaluations.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::Native::{Evaluation as E, Interpreter as I, Other as O};
    use super::*;

    fn merge(
        native: &[(u32, Native)],
        extent: Extent,
        runs: &[Run<u32>],
        runs_extent: Extent,
    ) -> Option<Vec<u32>> {
        super::merge(native, extent, runs, runs_extent, NativeFrames::Replaced)
    }

    /// `malloc`, a builtin, Python, an extension that calls Python, and the program's beginning.
    const NATIVE: [(u32, Native); 10] =
        [(1, O), (2, I), (3, E), (4, I), (5, O), (6, I), (7, E), (8, I), (9, E), (10, O)];

    #[test]
    fn python_frames_replace_interpreter_frames() {
        let runs = [Some(vec![30, 31]), Some(vec![70]), Some(vec![])];
        let merged = merge(&NATIVE, Extent::Whole, &runs, Extent::Whole);
        assert_eq!(merged, Some(vec![1, 2, 30, 31, 5, 6, 70, 10]));
    }

    #[test]
    fn native_frames_can_be_kept() {
        let runs = [Some(vec![30, 31]), Some(vec![70]), Some(vec![])];
        let merged = super::merge(&NATIVE, Extent::Whole, &runs, Extent::Whole, NativeFrames::Kept);
        assert_eq!(merged, Some(vec![1, 2, 30, 31, 3, 4, 5, 6, 70, 7, 8, 9, 10]));
    }

    #[test]
    fn unreadable_python_frames_stay_native() {
        let runs = [Some(vec![30]), None, Some(vec![90])];
        let merged = merge(&NATIVE, Extent::Whole, &runs, Extent::Whole);
        assert_eq!(merged, Some(vec![1, 2, 30, 5, 6, 7, 8, 90, 10]));
        let merged = merge(&NATIVE, Extent::Whole, &runs[..1], Extent::Cut);
        assert_eq!(merged, Some(vec![1, 2, 30, 5, 6, 7, 8, 9, 10]));
        let merged = merge(&NATIVE[..5], Extent::Cut, &runs, Extent::Whole);
        assert_eq!(merged, Some(vec![1, 2, 30, 5]));
    }

    #[test]
    fn runs_are_placed_by_their_memory_on_the_stack() {
        let runs = [(Some(vec![30]), 120), (None, 170), (Some(vec![70]), 300), (Some(vec![9]), 0)];
        let evaluations = [(100, 150), (150, 200), (200, 300), (300, 400), (400, 0)];
        let placed: Vec<_> = placed(&runs, &evaluations).into_iter().map(|(run, _)| run).collect();
        assert_eq!(placed, [Some(vec![30]), None, None, Some(vec![70]), None]);
    }

    #[test]
    fn unequal_numbers_of_runs_are_not_merged() {
        let runs = [Some(vec![30]), Some(vec![70])];
        assert_eq!(merge(&NATIVE, Extent::Whole, &runs, Extent::Whole), None);
        assert_eq!(merge(&NATIVE, Extent::Cut, &runs, Extent::Cut), None);
        assert_eq!(merge(&NATIVE[..4], Extent::Whole, &runs, Extent::Cut), None);
        assert_eq!(merge(&NATIVE, Extent::Cut, &runs, Extent::Whole), None);
    }
}
