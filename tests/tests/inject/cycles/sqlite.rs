//! sqlite3: its answers equal those of another process that is not injected, and its own check
//! finds no error.

use super::{Cycles, count};
use anyhow::{Result, ensure};
use sampler_tests::child::Child;
use std::process::Command;

/// Statements whose last one prints their result, in one line.
fn statements(seed: u32) -> String {
    format!(
        "DELETE FROM t; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) \
         INSERT INTO t SELECT i, (i * {seed}) % 7919, hex(i * {seed}) || printf('%0*d', i % 200, i) FROM n; \
         UPDATE t SET c = c || a WHERE b % 3 = 0; DELETE FROM t WHERE b % 5 = 1; \
         SELECT count(*) || ' ' || sum(length(x.c)) || ' ' || sum(y.b) || ' ' || (SELECT * FROM pragma_integrity_check) \
         FROM t x JOIN t y ON x.b = y.a;"
    )
}

fn sqlite() -> Result<Child> {
    let mut child = Child::start("sqlite3", Command::new("sqlite3").arg(":memory:"))?;
    child.send(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER, c TEXT); CREATE INDEX i ON t (b);",
    )?;
    Ok(child)
}

#[test]
fn sqlite3() -> Result<()> {
    let mut alone = sqlite()?;
    let mut program = sqlite()?;
    let mut cycles = Cycles::new("sqlite3", &[program.pid()]);
    for number in 0..count()? {
        let text = statements(number % 4 + 2);
        alone.send(&text)?;
        let expected = alone.line()?;
        ensure!(expected.ends_with(" ok"), "{expected}");
        program.send(&text)?;
        cycles.make()?;
        let line = program.line()?;
        ensure!(line == expected, "cycle {number}: {line:?}, expected {expected:?}");
    }
    program.close_stdin();
    ensure!(program.wait()?.success(), "sqlite3 ended badly");
    Ok(())
}
