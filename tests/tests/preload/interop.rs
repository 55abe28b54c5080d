//! Other tools read the library's notes. A consumer that uses only the contract of the probes gets
//! unbiased totals.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::{Workload, preload};
use std::process::Command;
use std::time::Duration;

/// The notes are read by `readelf -n` of binutils.
#[test]
fn readelf_reads_the_notes() -> Result<()> {
    let said = finish(Command::new("readelf").args(["-nW"]).arg(preload::library()?))?;
    let said = String::from_utf8(said.success("readelf")?.stdout)?;
    for (probe, arguments) in [("alloc", "8@%rdi 8@%rsi 8@%rdx"), ("free", "8@%rdi")] {
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| *line == format!("Name: {probe}"));
        let at = at.with_context(|| said.clone())?;
        ensure!(lines[at - 1].ends_with("Provider: otel_memory"), "{said}");
        ensure!(!lines[at + 1].contains("Semaphore: 0x0000000000000000"), "{said}");
        ensure!(lines[at + 2] == format!("Arguments: {arguments}"), "{said}");
    }
    Ok(())
}

/// bpftrace, which sums up the probes' arguments by itself.
struct Bpftrace {
    child: Child,
    said: String,
}

impl Bpftrace {
    fn start(workload: &Workload) -> Result<Bpftrace> {
        let library = preload::library()?.display().to_string();
        let script = format!(
            "BEGIN {{ printf(\"ready\\n\"); }}
             usdt:{library}:otel_memory:alloc {{ @alloc = @alloc + arg2; @live[arg0] = arg2; }}
             usdt:{library}:otel_memory:free {{ @freed = @freed + @live[arg0]; delete(@live[arg0]); }}
             END {{ printf(\"sums %lu %lu\\n\", @alloc, @freed); clear(@live); clear(@alloc); clear(@freed); }}"
        );
        let mut command = Command::new("bpftrace");
        command.env("BPFTRACE_MAX_MAP_KEYS", "100000").env("BPFTRACE_MAX_PROBES", "1024");
        command.args(["-B", "line", "-p", &workload.pid().to_string(), "-e", &script]);
        // On some machines bpftrace complains of tracefs when it detaches.
        command.stderr(std::process::Stdio::null());
        let mut bpftrace =
            Bpftrace { child: Child::start("bpftrace", &mut command)?, said: String::new() };
        bpftrace.line("ready")?;
        Ok(bpftrace)
    }

    /// The next line that starts with `beginning`.
    fn line(&mut self, beginning: &str) -> Result<String> {
        loop {
            let line = self.child.line_within(Duration::from_secs(60));
            let line = line.with_context(|| self.said.clone())?;
            if line.starts_with(beginning) {
                return Ok(line);
            }
            self.said += &line;
        }
    }

    /// Estimated bytes allocated and freed, from the samples' weights.
    fn sums(mut self) -> Result<(f64, f64)> {
        self.child.signal(2)?;
        let line = self.line("sums ")?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [allocated, freed] = numbers[..] else { anyhow::bail!("{line:?}") };
        Ok((allocated, freed))
    }
}

/// Sums of weights are unbiased. Over runs their mean equals the truth, within five and a half
/// standard errors.
#[test]
fn a_consumer_of_the_contract_gets_unbiased_totals() -> Result<()> {
    // Some 420 samples. More than 500 at once would make the library raise its interval, and the
    // variance with it.
    const INTERVAL: u64 = 2 << 20;
    let (mut alloc, mut live) = ([0.0; 2], [0.0; 2]);
    for seed in 1..=4 {
        let arguments = [seed.to_string(), "1".into(), INTERVAL.to_string()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut workload = preload::workload("truth.c", &arguments, INTERVAL)?;
        let bpftrace = Bpftrace::start(&workload)?;
        workload.go()?;
        let total = workload.truth()?.total();
        let (allocated, freed) = bpftrace.sums()?;
        alloc[0] += allocated - total.alloc.bytes as f64;
        alloc[1] += total.alloc.of_bytes.variance;
        live[0] += allocated - freed - total.live.bytes as f64;
        live[1] += total.live.of_bytes.variance;
        workload.exit()?;
    }
    for (what, [off, variance]) in [("allocated", alloc), ("live", live)] {
        let errors = off / variance.sqrt();
        ensure!(errors.abs() < 5.5, "{what}: {off} bytes, {errors:.1} standard errors");
    }
    Ok(())
}
