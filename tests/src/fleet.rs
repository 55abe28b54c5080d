//! SQL engines on folders of Parquet files, asked through `examples/fleet/sampler_fleet.py`.

use crate::build;
use crate::child::finish_within;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long an engine may take. Spark takes half a minute to start.
const DEADLINE: Duration = Duration::from_secs(400);

/// The engines that `cargo xtask test` installs. `--fleet` installs Spark, too.
pub const ENGINES: [&str; 2] = ["duckdb", "clickhouse"];

/// A row of an answer, by column.
pub type Row = Map<String, Value>;

/// The interpreter with the engines; `None`, with a notice, if they were not installed.
pub fn python() -> Result<Option<PathBuf>> {
    let python = build::target_directory()?.join("fleet/bin/python");
    if python.exists() {
        return Ok(Some(python));
    }
    eprintln!("NOTICE: NOT TESTED: {ENGINES:?} (cargo xtask test installs them)");
    Ok(None)
}

/// Runs the script.
pub fn script(python: &Path, folder: &Path, arguments: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet/sampler_fleet.py");
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(folder).args(arguments);
    let finished = finish_within(&mut command, DEADLINE)?.success("sampler_fleet.py")?;
    String::from_utf8(finished.stdout).context("read the answer")
}

/// The rows of each statement of `docs/fleet`, after the insertions of a folder into the tables of
/// ClickHouse.
pub fn played(python: &Path, folder: &Path, statements: &[&str]) -> Result<Vec<Vec<Row>>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sql = |name: &str| here.join(format!("../docs/fleet/{name}.sql"));
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(here.join("src/insertions.py"));
    command.arg(sql("clickhouse_tables")).arg(folder).args(statements.iter().map(|of| sql(of)));
    let finished = finish_within(&mut command, DEADLINE)?.success("insertions.py")?;
    rows(&String::from_utf8(finished.stdout).context("read the answer")?, statements.len())
}

/// The rows of each statement: one of `docs/fleet`, or a file.
pub fn ask(python: &Path, folder: &Path, engine: &str, of: &[&str]) -> Result<Vec<Vec<Row>>> {
    let answer = script(python, folder, &[&["--json", "--engine", engine], of].concat())?;
    rows(&answer, of.len())
}

/// The rows in a line of JSON for each statement.
fn rows(answer: &str, statements: usize) -> Result<Vec<Vec<Row>>> {
    let rows = answer.lines().map(serde_json::from_str);
    let rows = rows.collect::<Result<Vec<Vec<Row>>, _>>().with_context(|| answer.to_owned())?;
    ensure!(rows.len() == statements, "{answer}");
    Ok(rows)
}

/// A number of a row.
pub fn number(row: &Row, column: &str) -> Result<f64> {
    row[column].as_f64().with_context(|| format!("no number {column} in {row:?}"))
}

/// A whole number of a row.
pub fn whole(row: &Row, column: &str) -> Result<i64> {
    let number = row[column].as_i64().or_else(|| row[column].as_str()?.parse().ok());
    number.with_context(|| format!("no whole number {column} in {row:?}"))
}

/// A text of a row.
pub fn text<'a>(row: &'a Row, column: &str) -> Result<&'a str> {
    row[column].as_str().with_context(|| format!("no text {column} in {row:?}"))
}
