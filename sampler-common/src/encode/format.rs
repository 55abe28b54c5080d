//! The formats of a profile: the one table that the command line, the page and the documents use.

use super::csv::Csv;
use super::firefox::Firefox;
use super::folded::Folded;
use super::jeprof::Jeprof;
use super::json::Json;
use super::otlp::Otlp;
use super::perfetto::Perfetto;
use super::pprof::Pprof;
use super::speedscope::Speedscope;
use super::svg::FlameGraph;
use super::text::Text;
use super::{Encode, Measure};

/// A format that a profile can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table for people.
    Text,
    /// Brendan Gregg's folded stacks.
    Folded,
    /// Google's profile.proto, gzipped.
    Pprof,
    /// jemalloc's `heap_v2`.
    Jeprof,
    /// Everything, with moments.
    Json,
    /// A flame graph.
    Svg,
    /// The file format of speedscope.
    Speedscope,
    /// Comma separated values.
    Csv,
    /// The processed profile of Firefox.
    Firefox,
    /// A trace with heap profiles.
    Perfetto,
    /// OpenTelemetry's profiles.
    Otlp,
}

impl Format {
    /// All formats, in the order in which they are shown to users.
    pub const ALL: [Format; 11] = [
        Format::Text,
        Format::Folded,
        Format::Pprof,
        Format::Jeprof,
        Format::Json,
        Format::Svg,
        Format::Speedscope,
        Format::Csv,
        Format::Firefox,
        Format::Perfetto,
        Format::Otlp,
    ];

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Folded => "folded",
            Format::Pprof => "pprof",
            Format::Jeprof => "jeprof",
            Format::Json => "json",
            Format::Svg => "svg",
            Format::Speedscope => "speedscope",
            Format::Csv => "csv",
            Format::Firefox => "firefox",
            Format::Perfetto => "perfetto",
            Format::Otlp => "otlp",
        }
    }

    /// The purpose of the format, in a line.
    pub fn purpose(self) -> &'static str {
        match self {
            Format::Text => "A table for people",
            Format::Folded => "root;…;leaf BYTES, for flame graphs",
            Format::Pprof => "gzipped profile.proto, for go tool pprof",
            Format::Jeprof => "jemalloc's heap_v2 text, for jeprof and pprof",
            Format::Json => "Everything, with moments",
            Format::Svg => "A flame graph for a browser: one file, zooms and searches",
            Format::Speedscope => "For www.speedscope.app",
            Format::Csv => "A table, each number with its ends, for spreadsheets",
            Format::Firefox => "For profiler.firefox.com: native allocations",
            Format::Perfetto => "A trace with heap profiles, for ui.perfetto.dev",
            Format::Otlp => "OpenTelemetry's profiles, a protobuf message",
        }
    }

    /// The format with this name.
    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Whether the format's output is text that a terminal can show.
    pub fn is_text(self) -> bool {
        !matches!(self, Format::Pprof | Format::Perfetto | Format::Otlp)
    }

    /// The encoder of the format; `table` is the layout of [`Format::Text`].
    pub fn encoder(self, table: Text) -> Box<dyn Encode + Send> {
        match self {
            Format::Text => Box::new(table),
            Format::Folded => Box::new(Folded),
            Format::Pprof => Box::new(Pprof),
            Format::Jeprof => Box::new(Jeprof),
            Format::Json => Box::new(Json),
            Format::Svg => Box::new(FlameGraph { measure: Measure::Space }),
            Format::Speedscope => Box::new(Speedscope),
            Format::Csv => Box::new(Csv),
            Format::Firefox => Box::new(Firefox),
            Format::Perfetto => Box::new(Perfetto),
            Format::Otlp => Box::new(Otlp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_format() {
        for format in Format::ALL {
            assert_eq!(Format::parse(format.name()), Some(format));
        }
        assert_eq!(Format::parse("html"), None);
    }

    #[test]
    fn the_documents_list_every_format() {
        let text = include_str!("../../../docs/formats.md");
        let sections = text.lines().filter_map(|line| line.strip_prefix("## "));
        let formats = sections.filter_map(|title| {
            let (name, rest) = title.split_once(" (`")?;
            let is_its = rest.starts_with(&format!("--format {name}"))
                || rest.starts_with(&format!("sampler profile --{name}"));
            is_its.then_some(name)
        });
        let mut listed: Vec<&str> = formats.collect();
        let mut known = Format::ALL.map(Format::name).to_vec();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
