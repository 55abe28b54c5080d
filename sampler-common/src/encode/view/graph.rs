//! The flame graph: the head of the profile and its largest frames, in columns.

use super::Number;
use crate::encode::functions::Function;
use crate::encode::json::{Head, head};
use crate::encode::tree::{Frame, Measure, Roots, Tree};
use crate::encode::{interval, name};
use crate::profile::Profile;
use serde::Serialize;
use serde::ser::Serializer;
use std::io::{self, Write};

#[derive(Serialize)]
struct GraphObject<'a> {
    head: Head<'a>,
    /// Cost in a sentence, in the form that all formats use.
    cost: Option<String>,
    measure: &'static str,
    /// Total before any cut.
    total: Number,
    /// The total as text.
    total_text: String,
    /// Value of the whole width.
    width: f64,
    /// Number of smaller frames that are not drawn.
    left_out: usize,
    /// Name, file, line and module of each function; frames have indices into this list.
    #[serde(serialize_with = "functions")]
    functions: &'a [Function<'a>],
    frames: FramesObject<'a>,
}

/// Each frame before the frames that it calls; a column for each property.
#[derive(Serialize)]
struct FramesObject<'a> {
    #[serde(serialize_with = "function")]
    function: &'a [Frame],
    #[serde(serialize_with = "depth")]
    depth: &'a [Frame],
    #[serde(serialize_with = "value")]
    value: &'a [Frame],
    #[serde(serialize_with = "low")]
    low: &'a [Frame],
    #[serde(serialize_with = "high")]
    high: &'a [Frame],
    #[serde(serialize_with = "samples")]
    samples: &'a [Frame],
}

/// Writes the `frames` frames with the largest `measure`; the other frames are counted.
///
/// # Errors
/// If `out` fails.
pub fn graph(
    profile: &Profile,
    measure: Measure,
    frames: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let roots = Roots::of(profile);
    let tree = Tree::of(profile, &roots, measure, frames);
    let object = GraphObject {
        head: head(profile),
        cost: profile.cost.as_ref().map(|cost| name::shown(&cost.text()).into_owned()),
        measure: measure.name(),
        total: (&tree.total).into(),
        total_text: match measure {
            Measure::Space => interval::bytes(&tree.total),
            Measure::Objects => interval::objects(&tree.total),
        },
        width: tree.width,
        left_out: tree.left_out,
        functions: &tree.functions,
        frames: FramesObject {
            function: &tree.frames,
            depth: &tree.frames,
            value: &tree.frames,
            low: &tree.frames,
            high: &tree.frames,
            samples: &tree.frames,
        },
    };
    Ok(serde_json::to_writer(out, &object)?)
}

fn functions<S: Serializer>(of: &[Function], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|of| {
        // An unknown text stays empty instead of "[unknown]".
        let [file, module] = [of.file, of.module]
            .map(|text| if text.is_empty() { text.into() } else { name::shown(text) });
        (name::shown(of.name), file, of.line, module)
    }))
}

fn function<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.function))
}

fn depth<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.depth))
}

fn value<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.estimate.value))
}

fn low<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.estimate.low))
}

fn high<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.estimate.high))
}

fn samples<S: Serializer>(of: &[Frame], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|frame| frame.estimate.samples))
}
