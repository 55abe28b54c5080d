//! Held bytes at two times. Two windows do not show growth, and the output says so.

use anyhow::{Result, ensure};
use sampler_tests::client::Client;
use sampler_tests::windowed::NEAR_CERTAIN_CONFIDENCE;
use sampler_tests::{Daemon, Workload, wait};
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000_000;

/// Checks that the message is one line, which names the verb that shows growth.
fn names_leaks(error: &str) -> Result<()> {
    ensure!(error.contains("sampler leaks --over") && error.lines().count() == 1, "{error}");
    Ok(())
}

#[test]
fn held_bytes_of_two_windows_are_not_compared() -> Result<()> {
    let mut workload = Workload::start("stalled.c", &["4096", "1", "10"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "4096"])?;
    workload.go()?;
    let directory = tempfile::tempdir()?;
    let [early, late, windowed] =
        ["early.json", "late.json", "windowed.json"].map(|name| directory.path().join(name));
    let [early, late, windowed] =
        [&early, &late, &windowed].map(|path| path.to_str().unwrap_or_default());
    let save = |path: &str, more: &[&str]| -> Result<()> {
        let arguments = [&["profile", "--kind", "live", "--json", "-o", path], more].concat();
        daemon.sampler(&arguments)?.success("profile")?;
        Ok(())
    };
    save(early, &[])?;
    let profile = daemon.profile_where("four seconds", "alloc", &[], |profile| {
        profile.json["duration_ns"].as_u64() > Some(4 * SECOND)
    })?;
    let windows = ["diff", "3s..1500ms", "1500ms"];
    daemon.sampler(&windows)?.success("what was allocated")?;
    for arguments in [&[][..], &["--svg", "-o", "-"], &["--json"]] {
        let refused = daemon.sampler(&[&windows[..], &["--kind", "live"], arguments].concat())?;
        ensure!(refused.code() == 1 && refused.stdout.is_empty(), "{}", refused.stderr);
        names_leaks(&refused.stderr)?;
    }
    // The head of such a profile says what its held numbers are.
    let text = daemon.sampler(&["profile", "--kind", "live", "--last", "2s"])?.success("text")?;
    let text = String::from_utf8(text.stdout)?.replace("\n          ", " ");
    ensure!(text.contains("held numbers are of the window's own allocations"), "{text}");
    // A saved window shows as little growth as a queried one.
    save(windowed, &["--last", "1s"])?;
    for pair in [[early, windowed], [windowed, early], [windowed, "1s"]] {
        names_leaks(&daemon.sampler(&["diff", pair[0], pair[1]])?.stderr)?;
    }
    let now = profile.json["time_unix_ns"].as_u64().unwrap_or_default();
    let runtime = tokio::runtime::Runtime::new()?;
    let error = runtime.block_on(async {
        let mut client = Client::connect(&daemon.address).await?;
        client.learn("sampler.v1.Sampler").await?;
        let side = |since: u64| json!({ "kind": "KIND_LIVE", "since_unix_ns": since });
        let sides = json!({ "a": side(now - 3 * SECOND), "b": side(now - 2 * SECOND) });
        let answer = client.call("sampler.v1.Sampler", "Compare", sides).await;
        anyhow::Ok(answer.err().map(|error| format!("{error:#}")))
    })?;
    ensure!(error.as_ref().is_some_and(|of| of.contains("sampler leaks --over")), "{error:?}");

    // Two times since the attach show growth: all that was kept in between.
    workload.child().send("enough")?;
    let kept = workload.truth()?.function("kept")?.live.bytes as f64;
    wait::until("all of it", || {
        save(late, &[])?;
        let certain = ["--confidence", NEAR_CERTAIN_CONFIDENCE];
        let arguments = [&["diff", "--json", early, late], &certain[..]].concat();
        let out = daemon.sampler(&arguments)?.success("diff")?;
        let json: Value = serde_json::from_slice(&out.stdout)?;
        let of = &json["totals"]["space"];
        let [low, high] = ["low", "high"].map(|end| of[end].as_f64().unwrap_or(0.0));
        Ok((low > 0.0 && low <= kept && kept * 0.5 <= high).then_some(()))
    })?;
    workload.exit()?;
    daemon.stop()
}
