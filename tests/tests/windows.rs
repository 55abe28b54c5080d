//! Windows, ages, sizes and the peak of a program in three phases. Every allocation is sampled, so
//! that numbers are exactly equal.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::Finished;
use sampler_tests::client::Client;
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;
const SERVICE: &str = "sampler.v1.Sampler";
/// Largest difference between the times of samplerd and of the test: their two clocks are read one
/// after the other.
const APART: Duration = Duration::from_millis(50);

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64)
}

/// Unix seconds, as `--since` takes them.
fn seconds(unix_ns: u64) -> String {
    format!("{}.{:09}", unix_ns / SECOND, unix_ns % SECOND)
}

/// Checks that the message is one clear line with a few lines of usage at most.
fn is_refused(finished: &Finished, code: i32) -> Result<()> {
    let said = &finished.stderr;
    ensure!(finished.code() == code, "exit code {}: {said}", finished.code());
    ensure!((1..=6).contains(&said.lines().count()) && finished.stdout.is_empty(), "{said}");
    Ok(())
}

fn window(profile: &Profile) -> Result<(u64, u64)> {
    let of = |key: &str| profile.json["window"][key].as_u64().context("no window");
    Ok((of("start_unix_ns")?, of("end_unix_ns")?))
}

/// A border of time slots at least `seconds` after now.
fn border(daemon: &Daemon, seconds: u64) -> Result<u64> {
    let from = now()? + seconds * SECOND;
    let arguments = ["--last", "1ms"];
    let profile = daemon.profile_where("a border", "alloc", &arguments, |profile| {
        window(profile).is_ok_and(|(start, _)| start > from)
    })?;
    Ok(window(&profile)?.0)
}

/// The program after its phases, with the ends of the phases.
struct Phases {
    daemon: Daemon,
    workload: Workload,
    /// The truth after each phase.
    truths: Vec<Truth>,
    /// A border without allocations after each phase.
    borders: Vec<u64>,
    /// End of each phase.
    ends: Vec<u64>,
    start: u64,
}

fn phases() -> Result<Phases> {
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    let start = now()?;
    let (mut truths, mut borders, mut ends) = (vec![], vec![], vec![]);
    // A pause of three seconds lets ages separate the second phase from the third.
    for quiet in [0, 3, 0] {
        workload.go()?;
        truths.push(workload.truth()?);
        wait::pass(APART);
        ends.push(now()?);
        borders.push(border(&daemon, quiet)?);
    }
    Ok(Phases { daemon, workload, truths, borders, ends, start })
}

/// Checks that the profile is exactly that of one phase.
fn is_phase(profile: &Profile, truth: &Truth, name: &str) -> Result<()> {
    let of = truth.function(name)?;
    let row = profile.row(name);
    // A calibrated number is a quotient, so it may be rounded.
    let is = |got: f64, bytes: u64| (got - bytes as f64).abs() < 1e-6;
    let got = [profile.totals.alloc_space.value, profile.exact_space as f64];
    ensure!(got.iter().all(|got| is(*got, of.alloc.bytes)), "{name}: alloc {got:?}, not {of:?}");
    // A live profile has no stacks of which nothing is held.
    let stacks = row.alloc_space.sum;
    let whole = profile.json["kind"] == "live" || is(stacks, of.alloc.bytes);
    ensure!(whole, "{name}: stacks {stacks}, not {of:?}");
    let got = [profile.totals.inuse_space.value, row.inuse_space.sum];
    ensure!(got.iter().all(|got| is(*got, of.live.bytes)), "{name}: live {got:?}, not {of:?}");
    let got = (profile.exact_objects, row.inuse_objects.samples);
    ensure!(got == (of.alloc.objects, of.live.objects), "{name}: objects {got:?}, not {of:?}");
    Ok(())
}

fn windows_are_phases(phases: &Phases) -> Result<()> {
    let Phases { daemon, truths, borders, .. } = phases;
    let truth = &truths[2];
    let [first, second, third] = [0, 1, 2].map(|phase| seconds(borders[phase]));
    for (name, arguments) in [
        ("first", &["--until", &first][..]),
        ("second", &["--since", &first, "--until", &second]),
        ("third", &["--since", &second, "--until", &third]),
        ("third", &["--since", &second]),
    ] {
        for estimator in ["weighted", "calibrated"] {
            let arguments = [arguments, &["--estimator", estimator]].concat();
            for kind in ["alloc", "live"] {
                let profile = daemon.profile(kind, &arguments)?;
                is_phase(&profile, truth, name).with_context(|| format!("{arguments:?}"))?;
            }
        }
    }
    let between = daemon.profile("alloc", &["--since", &first, "--until", &second])?;
    let (start, end) = window(&between)?;
    let near = |a: u64, b: u64| a.abs_diff(b) < SECOND / 100;
    ensure!(near(start, borders[0]) && near(end, borders[1]), "{start} to {end}, not {borders:?}");
    let text = daemon.sampler(&["profile", "--since", &first])?.success("profile")?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains("in the window") && text.contains("\nwindow    20"), "{text}");
    // A window over the whole time equals the whole profile.
    let whole = daemon.profile("alloc", &["--last", "1h"])?;
    let all = daemon.profile("alloc", &[])?;
    ensure!(whole.totals == all.totals && whole.exact_space == all.exact_space, "{}", whole.json);
    ensure!(all.json["window"].is_null(), "{}", all.json);
    Ok(())
}

/// Bytes held that are older or younger than the middle between the second phase and the third.
fn held_by_age(phases: &Phases, option: &str) -> Result<f64> {
    let Phases { daemon, borders, .. } = phases;
    wait::until("an answer while the age means that", || {
        // The third phase began right after this border. The second ended three seconds before the
        // border.
        let from = now()?;
        let age = (from - borders[1]).div_ceil(1_000_000) + 1500;
        let profile = daemon.profile("live", &[option, &format!("{age}ms")])?;
        Ok((now()? - from < SECOND).then_some(profile.totals.inuse_space.value))
    })
}

fn ages_are_phases(phases: &Phases) -> Result<()> {
    let truths = &phases.truths;
    let live = |name: &str| truths[2].function(name).map(|of| of.live.bytes as f64);
    let (young, old) = (held_by_age(phases, "--max-age")?, held_by_age(phases, "--min-age")?);
    let expected = (live("third")?, live("first")? + live("second")?);
    ensure!((young, old) == expected, "younger and older: {young} and {old}, not {expected:?}");
    Ok(())
}

fn sizes_are_phases(phases: &Phases) -> Result<()> {
    let Phases { daemon, truths, .. } = phases;
    let first = truths[2].function("first")?;
    // Limits at the edges of size classes keep the exact totals.
    let edges = ["--min-size", "513", "--max-size", "4KiB"];
    for estimator in ["weighted", "calibrated"] {
        let profile =
            daemon.profile("live", &[&edges[..], &["--estimator", estimator]].concat())?;
        is_phase(&profile, &truths[2], "first")?;
    }
    // Other limits are rounded outward. Such a profile has no exact totals.
    let cut = ["--min-size", "1000", "--max-size", "3000"];
    let out = daemon.sampler(&[&["profile", "--json"][..], &cut].concat())?.success("profile")?;
    let json: Value = serde_json::from_slice(&out.stdout)?;
    let bytes = json["totals"]["alloc_space"]["value"].as_f64();
    ensure!(bytes == Some(first.alloc.bytes as f64), "{bytes:?}");
    ensure!(json["exact"].is_null(), "{}", json["exact"]);
    let notes = json["notes"].to_string();
    ensure!(notes.contains("sizes from 992B to 3007B only"), "{notes}");
    let refused =
        daemon.sampler(&[&["profile", "--estimator", "calibrated"][..], &cut].concat())?;
    is_refused(&refused, 1)?;
    ensure!(refused.stderr.contains("sizes from 513B to 4KiB"), "{}", refused.stderr);
    Ok(())
}

fn the_peak_is_the_largest_total(phases: &Phases) -> Result<()> {
    let Phases { daemon, truths, ends, start, .. } = phases;
    let largest = truths[2].function("peak")?.live.bytes as f64;
    let profile = daemon.profile("peak", &[])?;
    ensure!(
        profile.totals.inuse_space.value == largest,
        "{} {largest}",
        profile.totals.inuse_space.value
    );
    // The peak held all of the third phase, and the rest of the others.
    let held = |name: &str| profile.row(name).inuse_space.sum;
    let third = truths[2].function("third")?.alloc.bytes as f64;
    ensure!(held("third") == third, "third {} {third}", held("third"));
    for name in ["first", "second"] {
        let before = truths[1].function(name)?.live.bytes as f64;
        ensure!(held(name) == before, "{name} {} {before}", held(name));
    }
    let (attached, when) = window(&profile)?;
    ensure!((ends[1]..ends[2]).contains(&when), "peak at {when}, phases ended at {ends:?}");
    ensure!(attached < *start, "attached at {attached}, ready at {start}");
    Ok(())
}

/// Compares the windows of the second and of the third phase. All allocations of the second phase
/// are gone, all those of the third are new, and every difference is certain.
fn differences_are_of_phases(phases: &Phases) -> Result<()> {
    let Phases { daemon, truths, borders, .. } = phases;
    let [first, second, third] = [0, 1, 2].map(|phase| seconds(borders[phase]));
    let [a, b] = [format!("{first}..{second}"), format!("{second}..{third}")];
    let out = daemon.sampler(&["diff", "--json", &a, &b])?.success("sampler diff")?;
    let json: Value = serde_json::from_slice(&out.stdout)?;
    ensure!(json["samples"] == "independent", "{}", json["samples"]);
    let stacks = json["stacks"].as_array().context("no stacks")?;
    for (name, sign) in [("first", 0.0), ("second", -1.0), ("third", 1.0)] {
        let mine = stacks.iter().filter(|stack| {
            stack["frames"].as_array().is_some_and(|frames| frames.iter().any(|of| of == name))
        });
        let mine: Vec<_> = mine.collect();
        let number = |key: &str| -> f64 {
            mine.iter().filter_map(|stack| stack["space"][key].as_f64()).sum()
        };
        let expected = sign * truths[2].function(name)?.alloc.bytes as f64;
        let got = [number("low"), number("value"), number("high")];
        ensure!(got == [expected; 3], "{name}: {got:?}, not {expected}");
        ensure!(mine.iter().all(|stack| stack["significant"] == true), "{name}: {mine:?}");
        ensure!(mine.is_empty() == (sign == 0.0), "{name}: {mine:?}");
    }
    compared_by_the_api(phases)?;
    // A saved profile of the first phase, against all since attach: the difference is the other two
    // phases.
    let directory = tempfile::tempdir()?;
    let saved = directory.path().join("first.json");
    let saved = saved.to_str().context("a path")?;
    daemon.sampler(&["profile", "--json", "--until", &first, "-o", saved])?.success("profile")?;
    let pid = format!("pid:{}", phases.workload.pid());
    let out = daemon.sampler(&["diff", "--json", saved, &pid])?.success("sampler diff")?;
    let json: Value = serde_json::from_slice(&out.stdout)?;
    let grown = json["totals"]["space"]["value"].as_f64();
    let expected: u64 = truths[2].functions.iter().map(|of| of.alloc.bytes).sum();
    let expected = (expected - truths[2].function("first")?.alloc.bytes) as f64;
    // The row `peak` of the truth is the held bytes at the peak; it allocated nothing.
    ensure!(grown == Some(expected), "grown by {grown:?}, not {expected}");
    Ok(())
}

/// The same difference over gRPC, compared with the sums.
fn compared_by_the_api(phases: &Phases) -> Result<()> {
    let Phases { daemon, truths, borders, .. } = phases;
    let runtime = tokio::runtime::Runtime::new()?;
    let (comparison, plan) = runtime.block_on(async {
        let mut client = Client::connect(&daemon.address).await?;
        client.learn(SERVICE).await?;
        let window = |since: u64, until: u64| {
            json!({ "kind": "KIND_ALLOC", "since_unix_ns": since, "until_unix_ns": until })
        };
        let sides = json!({ "a": window(borders[0], borders[1]), "b": window(borders[1], borders[2]) });
        let comparison = client.call(SERVICE, "Compare", sides).await?;
        let request = json!({ "interval_bytes": 1000, "bytes": 500_000, "size": 1000 });
        anyhow::Ok((comparison, client.call(SERVICE, "Plan", request).await?))
    })?;
    let alone = |name: &str| truths[2].function(name).map(|of| of.alloc.bytes as f64);
    let got = comparison["space"]["value"].as_f64();
    let expected = alone("third")? - alone("second")?;
    ensure!(got == Some(expected), "{got:?}, not {expected}: {comparison}");
    ensure!(comparison["samples"] == "independent", "{comparison}");
    // One byte in 1,000: a block of 1,000 bytes is missed with probability (1 − 1/1000)^1000.
    let hit = plan["hit_probability"].as_f64().context("no hit_probability")?;
    ensure!((hit - (1.0 - 0.999f64.powi(1000))).abs() < 1e-12, "{plan}");
    Ok(())
}

#[test]
fn windows_separate_phases() -> Result<()> {
    let mut phases = phases()?;
    windows_are_phases(&phases)?;
    differences_are_of_phases(&phases)?;
    ages_are_phases(&phases)?;
    sizes_are_phases(&phases)?;
    the_peak_is_the_largest_total(&phases)?;
    // The exit changes what is held now. It does not change the past.
    phases.workload.exit()?;
    let daemon = &phases.daemon;
    let gone = |profile: &Profile| profile.totals.inuse_space.value == 0.0;
    daemon.profile_where("the exit", "live", &[], gone)?;
    the_peak_is_the_largest_total(&phases)?;
    let first = seconds(phases.borders[0]);
    let profile = daemon.profile("alloc", &["--until", &first])?;
    let exact = phases.truths[2].function("first")?.alloc.bytes;
    ensure!(profile.exact_space == exact, "{} {exact}", profile.exact_space);
    phases.daemon.stop()
}

/// Samples whose record was lost are in the window in which samplerd noticed the loss.
#[test]
fn a_window_has_its_lost_samples() -> Result<()> {
    let mut workload = Workload::start("truth.c", &["32", "1", "512"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "512", "--ring", "64KiB"])?;
    workload.go()?;
    let total = workload.truth()?.total();
    let quiet = seconds(border(&daemon, 0)?);
    let busy = daemon.profile("alloc", &["--until", &quiet])?;
    ensure!(busy.exact_space == total.alloc.bytes, "{} {total:?}", busy.exact_space);
    ensure!(busy.lost_samples > 0, "nothing was lost: {}", busy.json["lost"]);
    let all = daemon.profile("alloc", &["--confidence", "0.999999999"])?;
    ensure!(busy.samples == all.samples, "{} and {} samples", busy.samples, all.samples);
    let of = all.totals.alloc_space;
    let bytes = total.alloc.bytes as f64;
    ensure!(of.low <= bytes && bytes <= of.high, "{bytes} is not in {of:?}");
    // Both profiles have the same samples. In `busy`, lost samples are divided among more cells,
    // which rounds their sizes a little.
    let busy = busy.totals.alloc_space.value;
    ensure!((busy / of.value - 1.0).abs() < 1e-3, "{busy} and {}", of.value);
    let after = daemon.profile("alloc", &["--since", &quiet])?;
    ensure!((after.samples, after.exact_space) == (0, 0), "{}", after.json);
    workload.exit()?;
    daemon.stop()
}

#[test]
fn invalid_windows_are_refused_in_one_line() -> Result<()> {
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    for arguments in [
        &["--min-age", "1s"][..],
        &["--kind", "peak", "--last", "1s"],
        &["--last", "1s", "--since", "5m"],
        &["--since", "1m", "--until", "2m"],
        &["--since", "2099-01-01T00:00:00Z"],
        &["--since", "yesterday"],
        &["--since", "90"],
        &["--min-size", "2KiB", "--max-size", "1KiB"],
        &["--kind", "live", "--min-age", "2s", "--max-age", "1s"],
    ] {
        let all = [&["profile"], arguments].concat();
        is_refused(&daemon.sampler(&all)?, 2).with_context(|| format!("{arguments:?}"))?;
    }
    // Only samplerd has the time of its attach.
    let early = daemon.sampler(&["profile", "--until", "1m"])?;
    is_refused(&early, 1)?;
    ensure!(early.stderr.contains("before anything was attached"), "{}", early.stderr);
    workload.go()?;
    workload.truth()?;
    workload.child().signal(9)?;
    daemon.stop()
}
