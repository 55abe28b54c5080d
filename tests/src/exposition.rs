//! A strict reader of the Prometheus text format. Every sample follows the help and the type of its
//! family. No series occurs twice. Counters have the names of counters.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

/// Labels of a series, by name.
pub type Labels = BTreeMap<String, String>;

/// A page that was read.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// Type of each family.
    pub families: BTreeMap<String, String>,
    /// Value of each series.
    pub series: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    /// Reads a page.
    pub fn parse(text: &str) -> Result<Exposition> {
        let mut page = Exposition::default();
        let mut family = String::new();
        let mut helped = None;
        ensure!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            let read = page.line(line, &mut family, &mut helped);
            read.with_context(|| format!("line {line:?}"))?;
        }
        Ok(page)
    }

    fn line(&mut self, line: &str, family: &mut String, helped: &mut Option<String>) -> Result<()> {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').context("no help")?;
            ensure!(!words.is_empty(), "no help");
            *helped = Some(name.to_owned());
            return Ok(());
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').context("no type")?;
            ensure!(helped.as_deref() == Some(name), "a type without help");
            ensure!(name.ends_with("_total") == (kind == "counter"), "{kind} called {name}");
            let before = self.families.insert(name.to_owned(), kind.to_owned());
            ensure!(before.is_none(), "{name} is there twice");
            *family = name.to_owned();
            return Ok(());
        }
        let (name, labels, value) = sample(line)?;
        let kind = self.families.get(family).context("a sample without a family")?;
        let of_family = match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(family)),
            _ => name == *family,
        };
        ensure!(of_family, "{name} stands among {family}");
        let before = self.series.insert((name, labels), value);
        ensure!(before.is_none(), "a series twice");
        Ok(())
    }

    /// The value of a series with these labels, and no others.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let wanted: Labels =
            labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let value = self.series.get(&(name.to_owned(), wanted));
        value.copied().with_context(|| format!("no {name} {labels:?}"))
    }

    /// The sum of all series of this name.
    pub fn sum(&self, name: &str) -> f64 {
        self.of(name).map(|(_, value)| value).sum()
    }

    /// All series of this name.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        let named = self.series.iter().filter(move |((of, _), _)| of == name);
        named.map(|((_, labels), value)| (labels, *value))
    }

    /// Series that may only grow: counters, and all series of histograms.
    pub fn growing(&self) -> impl Iterator<Item = (&(String, Labels), f64)> {
        let grows = |name: &str| {
            let gauges = self.families.iter().filter(|(_, kind)| *kind == "gauge");
            !gauges.into_iter().any(|(gauge, _)| gauge == name)
        };
        let all = self.series.iter().filter(move |((name, _), _)| grows(name));
        all.map(|(series, value)| (series, *value))
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Result<(String, Labels, f64)> {
    let (series, value) = line.rsplit_once(' ').context("no value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        number => number.parse()?,
    };
    let Some((name, rest)) = series.split_once('{') else {
        return Ok((series.to_owned(), Labels::new(), value));
    };
    let mut labels = Labels::new();
    let mut chars = rest.strip_suffix('}').context("no }")?.chars().peekable();
    while chars.peek().is_some() {
        let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
        ensure!(chars.next() == Some('"'), "no quote");
        let mut content = String::new();
        loop {
            match chars.next().context("no end of quotes")? {
                '"' => break,
                '\\' => content.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => bail!("\\{other:?} is no escape"),
                }),
                c => content.push(c),
            }
        }
        labels.insert(label, content);
        ensure!(matches!(chars.next(), None | Some(',')), "no comma");
    }
    Ok((name.to_owned(), labels, value))
}
