//! The text format: families of samples, each with its help and its type.

use crate::pipeline::Histogram;
use std::fmt::Write as _;

/// The labels of a sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The kind of a family's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

/// A page of metrics.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Begins a family. The caller writes its samples next.
    pub(super) fn family<'p>(&'p mut self, name: &'p str, kind: Kind, help: &str) -> Family<'p> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a `String` cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { page: self, name }
    }

    /// Writes a counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Counter, help).sample(&[], value);
    }

    /// Writes a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Gauge, help).sample(&[], value);
    }

    /// Returns the whole page.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// A family that is being written.
pub(super) struct Family<'p> {
    page: &'p mut Page,
    name: &'p str,
}

impl Family<'_> {
    /// Writes a sample.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.line("", labels, value);
        self
    }

    /// Writes a histogram: its buckets, its sum, its count.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, of: &Histogram) -> &mut Self {
        let bounds = of.cumulative().into_iter().chain([(f64::INFINITY, of.count())]);
        for (bound, count) in bounds {
            let bound = number(bound);
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line("_bucket", &labels, count as f64);
        }
        self.line("_sum", labels, of.sum());
        self.line("_count", labels, of.count() as f64);
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        let text = &mut self.page.text;
        text.push_str(self.name);
        text.push_str(suffix);
        for (index, (label, content)) in labels.iter().enumerate() {
            let begin = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{begin}{label}=\"{}\"", escaped(content));
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {}", number(value));
    }
}

/// Escapes a label's value. A name that a process chose stays inside its quotes and on its line.
fn escaped(content: &str) -> String {
    let mut escaped = String::with_capacity(content.len());
    for c in content.chars() {
        match c {
            '\\' => escaped.push_str(r"\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str(r"\n"),
            // Readers of the format disagree on which characters end a line.
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn number(value: f64) -> String {
    match value {
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_escaped_prometheus_text() {
        let mut page = Page::default();
        page.counter("a_total", "Things.\nTwo \\ lines", 3.0);
        let mut family = page.family("b_bytes", Kind::Gauge, "Other things");
        family.sample(&[("comm", "a\"b\\c\nd\re"), ("pid", "7")], 0.25);
        family.sample(&[], f64::INFINITY);
        let mut times = Histogram::of_times();
        times.add(200_000);
        page.family("c_seconds", Kind::Histogram, "Times").histogram(&[("of", "x")], &times);
        let text = page.finish();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(r"# HELP a_total Things.\nTwo \\ lines"));
        assert_eq!(lines.next(), Some("# TYPE a_total counter"));
        assert_eq!(lines.next(), Some("a_total 3"));
        assert_eq!(lines.nth(2), Some(r#"b_bytes{comm="a\"b\\c\nd�e",pid="7"} 0.25"#));
        assert_eq!(lines.next(), Some("b_bytes +Inf"));
        assert_eq!(lines.nth(2), Some(r#"c_seconds_bucket{of="x",le="0.0001"} 0"#));
        assert_eq!(lines.next(), Some(r#"c_seconds_bucket{of="x",le="0.0003"} 1"#));
        assert!(text.contains("c_seconds_bucket{of=\"x\",le=\"+Inf\"} 1\n"));
        assert!(text.ends_with("c_seconds_sum{of=\"x\"} 0.0002\nc_seconds_count{of=\"x\"} 1\n"));
    }
}
