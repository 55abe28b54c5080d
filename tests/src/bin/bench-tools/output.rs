//! Outputs of figures: the terminal, JSON and plots in a folder, and the documentation on request.

use crate::accuracy::Accuracy;
use crate::coverage::{self, Coverage};
use crate::growth::{self, Point};
use crate::held::{self, Held};
use crate::injected::{self, Injected};
use crate::library::{self, Sampled};
use crate::repetitions::{Plan, Row};
use crate::windows::{self, Windowed};
use crate::{figure, markdown, pooled, report, table};
use anyhow::{Context, Result};
use sampler_tests::child::finish;
use sampler_tests::docs;
use sampler_tests::machine::Machine;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The outputs, with the machine and the plan of the measurement.
pub(crate) struct Output {
    /// The machine.
    pub(crate) machine: Machine,
    /// Duration, repetitions and order of the runs.
    pub(crate) plan: Plan,
    /// Folder for JSON and plots.
    pub(crate) directory: PathBuf,
    /// Whether PNGs are written.
    pub(crate) png: bool,
    /// Whether the documentation is written.
    pub(crate) docs: bool,
}

impl Output {
    /// Makes the output folder, and `kept`.
    ///
    /// # Errors
    /// If a folder cannot be made.
    pub(crate) fn prepare(&self, kept: &Path) -> Result<()> {
        for directory in [kept, &self.directory] {
            let made = fs::create_dir_all(directory);
            made.with_context(|| format!("create {}", directory.display()))?;
        }
        Ok(())
    }

    /// Writes the present figures of programs under tools.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn keep(&self, rows: &[Row]) -> Result<()> {
        self.json("tools", &report::json(&self.machine, &self.plan, rows)).map(drop)
    }

    /// Writes the figures of programs under tools.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn slowdowns(&self, rows: &[Row]) -> Result<()> {
        print!("{}", table::text(&self.machine, &self.plan, rows));
        let path = self.json("tools", &report::json(&self.machine, &self.plan, rows))?;
        println!("\n{}", path.display());
        self.plot("slowdown", &figure::slowdowns(&self.machine.line(), rows))?;
        self.plot("intervals", &figure::intervals(&self.machine.line(), rows))?;
        self.section("slowdown", &markdown::slowdowns(&self.plan, rows))?;
        self.section("own", &markdown::own(rows))?;
        self.section("goals", &markdown::goals(rows))
    }

    /// Writes the figures of programs that are profiled in windows.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn windows(&self, all: &[Windowed], seconds: f64) -> Result<()> {
        print!("{}", windows::text(all));
        self.json("windows", &self.described("runs", windows::json(all)))?;
        let options = format!("--only windows --windows-seconds {seconds}");
        self.section_of("windows", &windows::markdown(all), &options)
    }

    /// Writes how often the intervals of windows contain the truth.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn coverage(&self, all: &[Coverage], runs: u32, seconds: f64) -> Result<()> {
        print!("{}", coverage::text(all));
        self.json("coverage", &self.described("programs", coverage::json(all)))?;
        let options = format!("--only coverage --coverage-runs {runs} --windows-seconds {seconds}");
        self.section_of("coverage", &coverage::markdown(all), &options)
    }

    /// Writes the widths of the intervals of held bytes.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn held(&self, all: &[Held], seconds: f64) -> Result<()> {
        print!("{}", held::text(all));
        self.json("held", &self.described("runs", held::json(all)))?;
        let options = format!("--only held --held-seconds {seconds}");
        self.section_of("held", &held::markdown(all), &options)
    }

    /// Writes the figures of programs with the library.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn library(&self, all: &[Sampled], seconds: f64) -> Result<()> {
        print!("{}", library::text(all));
        self.json("library", &self.described("runs", library::json(all)))?;
        let options = format!("--only library --library-seconds {seconds}");
        self.section_of("library", &library::markdown(all), &options)
    }

    /// Writes the figures of programs with the sampler injected.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn injected(&self, all: &[Injected], seconds: f64) -> Result<()> {
        print!("{}", injected::text(all));
        self.json("inject", &self.described("runs", injected::json(all)))?;
        let options = format!("--only inject --inject-seconds {seconds}");
        self.section_of("inject", &injected::markdown(all), &options)
    }

    /// Writes the errors of samplerd's figures.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn accuracy(&self, all: &[Accuracy]) -> Result<()> {
        print!("{}", pooled::text(all));
        self.json("accuracy", &self.described("runs", pooled::json(all)))?;
        self.section("accuracy", &markdown::accuracy(all))
    }

    /// Writes the growth of samplerd's cost.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn growth(&self, points: &[Point]) -> Result<()> {
        print!("{}", growth::text(points));
        self.json("growth", &self.described("points", growth::json(points)))?;
        self.plot("growth", &figure::growth(&self.machine.line(), points))?;
        self.section("growth", &markdown::growth(points))
    }

    fn described(&self, name: &str, value: Value) -> Value {
        let Plan { seconds, repetitions, seed, .. } = self.plan;
        let plan = json!({ "seconds": seconds, "repetitions": repetitions, "seed": seed });
        json!({ "machine": report::machine(&self.machine), "plan": plan, name: value })
    }

    fn json(&self, name: &str, value: &Value) -> Result<PathBuf> {
        let path = self.directory.join(format!("{name}.json"));
        fs::write(&path, format!("{value:#}\n"))
            .with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    fn plot(&self, name: &str, svg: &str) -> Result<()> {
        let path = self.directory.join(format!("{name}.svg"));
        fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
        if self.png {
            let mut convert = Command::new("rsvg-convert");
            convert.args(["--zoom", "2", "-o"]).arg(path.with_extension("png")).arg(&path);
            finish(&mut convert)?.success("rsvg-convert")?;
        }
        if self.docs {
            let beside = docs::directory().join(format!("benchmarks-{name}.svg"));
            fs::write(&beside, svg).with_context(|| format!("write {}", beside.display()))?;
        }
        Ok(())
    }

    fn section(&self, name: &str, contents: &str) -> Result<()> {
        let Plan { seconds, repetitions, .. } = self.plan;
        let options = format!("--seconds {seconds} --repetitions {repetitions}");
        self.section_of(name, contents, &options)
    }

    fn section_of(&self, name: &str, contents: &str, options: &str) -> Result<()> {
        if !self.docs {
            return Ok(());
        }
        docs::write(name, contents, &self.machine, options)
    }
}
