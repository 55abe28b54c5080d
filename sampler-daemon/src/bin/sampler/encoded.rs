//! A profile in the format that was asked for.

use crate::args::Format;
use crate::page;
use anyhow::Result;
use sampler_common::encode::{
    Encode, Measure, csv::Csv, firefox::Firefox, folded::Folded, jeprof::Jeprof, json::Json,
    otlp::Otlp, perfetto::Perfetto, pprof::Pprof, speedscope::Speedscope, svg::FlameGraph,
    text::Text,
};
use sampler_common::profile::Profile;

/// Appends `profile` to `into`; the text has `top` functions and stacks, and colors where they are wanted.
pub(crate) fn append(
    profile: &Profile,
    format: Format,
    top: Option<u32>,
    color: bool,
    into: &mut Vec<u8>,
) -> Result<()> {
    let rows = top.map(|top| top as usize);
    let text = Text {
        width: page::width(),
        color,
        rows: rows.unwrap_or(Text::DEFAULT_ROWS),
        stacks: rows.unwrap_or(Text::DEFAULT_STACKS),
    };
    let encoder: &dyn Encode = match format {
        Format::Text => &text,
        Format::Folded => &Folded,
        Format::Pprof => &Pprof,
        Format::Jeprof => &Jeprof,
        Format::Json => &Json,
        Format::Svg => &FlameGraph { measure: Measure::Space },
        Format::Speedscope => &Speedscope,
        Format::Csv => &Csv,
        Format::Firefox => &Firefox,
        Format::Perfetto => &Perfetto,
        Format::Otlp => &Otlp,
    };
    Ok(encoder.encode(profile, into)?)
}

/// How many stacks samplerd is asked for: the table sums functions over every stack, so that they are cut here.
pub(crate) fn asked(format: Format, top: Option<u32>) -> Option<u32> {
    if format == Format::Text { None } else { top }
}
