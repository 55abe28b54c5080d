//! `sampler plan`: without any samplerd.

use super::mock::{Mock, PID};
use super::{Ran, command, ran, sampler};
use serde_json::Value;

fn plan(arguments: &str) -> Ran {
    // An address that no other verb would take.
    ran(command().env("SAMPLER_CONNECT", "nonsense").arg("plan").args(arguments.split_whitespace()))
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap()
}

#[test]
fn plan_prints_its_figures_as_json() {
    let of = plan("--interval 512KiB --bytes 1GiB --json").json();
    assert_eq!(number(&of["expected_samples"]), 2048.0);
    assert_eq!(number(&of["hit_probability"]), 1.0);
    assert!((number(&of["relative_error"]) - 0.01763).abs() < 1e-5, "{of}");
    assert!((number(&of["relative_deviation"]) - 0.0221).abs() < 1e-5, "{of}");
    assert_eq!(number(&of["variance_bound"]), (1u64 << 30) as f64 * 524_287.0);
    assert!(of["failed_trials"].is_null() && of["size_bytes"].is_null());

    for size in ["", "--size 64", "--size 1.5MiB"] {
        let of = plan(&format!("--interval 512KiB --bytes 1.5MiB --json {size}")).json();
        assert!((number(&of["bytes_hit_probability"]) - 0.950_213).abs() < 1e-5, "{of}");
    }
    let of = plan("--interval 512KiB --size 1.5MiB --bytes 1GiB --json").json();
    assert!((number(&of["hit_probability"]) - 0.950_213).abs() < 1e-5, "{of}");
    assert_eq!(number(&of["bytes_hit_probability"]), 1.0);
    assert!((number(&of["coverage"][2]["bytes"]) / 1024.0 - 1533.8).abs() < 0.1, "{of}");
}

#[test]
fn plan_prints_bounds_of_failed_trials() {
    let of = |arguments| {
        let of = plan(&format!("--interval 102400 --bytes 1GiB --json {arguments}")).json();
        ["low", "high", "value"].map(|key| of["failed_trials"][key].as_u64().unwrap())
    };
    let example = of("--samples 8 --tail-bytes 10908 --confidence 0.95");
    assert!(example[0].abs_diff(364_574) <= 1 && example[1].abs_diff(1_487_778) <= 1);
    assert_eq!(example[2], 8 * 102_399 + 10_908);
    assert_eq!(of("--samples 8 --tail-bytes 10908"), example);
    assert_eq!(of("--samples 8 --tail-bytes 0"), of("--samples 8"));
    assert_eq!(of("--samples 10000")[..2], [1_004_017_230, 1_044_156_744]);
    let wider = of("--samples 8 --tail-bytes 10908 --confidence 0.99");
    assert!(wider[0] < example[0] && wider[1] > example[1]);
}

#[test]
fn plan_prints_its_figures_as_text() {
    let ran = plan("--interval 100KiB --size 64 --bytes 1GiB --samples 8 --tail-bytes 10908");
    let text = ran.text();
    for words in [
        "one sample per 100KiB, 1GiB in allocations of 64B",
        "10,483 expected",
        "100% chance of at least one sample; 0.0625% for one allocation of 64B",
        "±0.779% on average",
        "95% 300 KiB",
        "8 samples: 830,100 bytes (364,575 … 1,487,779 at 95%)",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    for arguments in [
        "--interval 1 --bytes 1",
        "--interval 4GiB --bytes 8192TiB --size 1.23GiB --samples 200000000 --tail-bytes 8192TiB",
        "--interval 4GiB --bytes 1 --samples 1 --confidence 0.999999999",
        "--interval 512KiB --bytes 5MiB --size 5MiB",
    ] {
        let ran = plan(arguments);
        let text = ran.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn invalid_plan_arguments_are_refused() {
    for (arguments, words) in [
        ("--bytes 1GiB", "--interval"),
        ("--interval 512KiB", "--bytes"),
        ("--interval 0 --bytes 1GiB", "less than 1 byte"),
        ("--interval 5GiB --bytes 1GiB", "between 1 and 4GiB"),
        ("--interval -1 --bytes 1GiB", "negative"),
        ("--interval 1K --bytes 0", "less than 1 byte"),
        ("--interval 1K --bytes 16384TiB", "too large"),
        ("--interval 1K --bytes 1G --size 0", "less than 1 byte"),
        ("--interval 1K --bytes 1K --size 2K", "size 2KiB is larger than the total of 1KiB"),
        ("--interval 1K --bytes 1G --samples 0", "--samples"),
        ("--interval 1K --bytes 1G --samples -1", "--samples"),
        ("--interval 1K --bytes 1G --samples 18446744073709551615", "stand for too many bytes"),
        ("--interval 1K --bytes 1G --tail-bytes 5", "--samples"),
        ("--interval 1K --bytes 1G --confidence 0.9", "--samples"),
        ("--interval 1K --bytes 1G --samples 1 --tail-bytes -5", "negative"),
        ("--interval 1K --bytes 1G --samples 1 --confidence 1", "between 0 and 1"),
        ("--interval 1K --bytes 1G --samples 1 --confidence 0", "between 0 and 1"),
        ("--interval 1K --bytes 1G --samples 1 --confidence nan", "between 0 and 1"),
    ] {
        let ran = plan(arguments);
        let stderr = ran.failure(2);
        assert!(stderr.contains(words), "{arguments}: {stderr}");
    }
}

#[test]
fn strategies_are_compared() {
    // Without a samplerd: the built-in mixes.
    let all = ran(command().args(["plan", "--compare", "--json", "--interval", "64KiB"])).json();
    assert_eq!(all["interval_bytes"], 65_536);
    let error = all["exponential"]["largest_relative_error"].as_f64().unwrap();
    assert!((error * 2.0 * 65_536.0 - 1.0).abs() < 1e-3, "{error}");
    let mixes = all["compared"].as_array().unwrap();
    assert_eq!(mixes.len(), 5);
    for mix in mixes {
        for (name, of) in mix["strategies"].as_object().unwrap() {
            for ratio in ["alloc_ratio", "live_ratio"] {
                assert!(of[ratio].as_f64().unwrap() > 0.999_999, "{name} {ratio}: {mix}");
            }
        }
        let of = &mix["strategies"];
        let live = |name: &str| of[name]["live_ratio"].as_f64().unwrap();
        assert!(
            live("adaptive") <= live("geometric") * 1.000_001
                && live("geometric") < live("bernoulli")
        );
        assert!(mix["strategy"].is_null());
    }
    let text = ran(command().args(["plan", "--compare"]));
    assert!(text.text().starts_with("plan      as many samples as geometric takes at 512KiB\n"));
    assert!(text.text().lines().all(|line| line.chars().count() <= 80), "{}", text.text());
}

#[test]
fn a_process_is_compared_with_its_optimum() {
    let mock = Mock::unix();
    let text = sampler(&mock.address, &format!("plan --compare --pid {PID}"));
    let first = text.text().lines().next().unwrap();
    assert!(first.starts_with("answer    pid 4121, geometric: error of live bytes "), "{first}");
    let of = sampler(&mock.address, &format!("plan --compare --pid {PID} --json")).json();
    let of = &of["compared"][0];
    assert_eq!((&of["name"], &of["strategy"]), (&"pid 4121".into(), &"geometric".into()));
    assert!(of["strategies"]["geometric"]["samples"].as_f64().unwrap() > 0.0);
    for arguments in
        ["plan --compare --bytes 1", "plan --interval 1 --bytes 1 --pid 1", "plan --bytes 1MiB"]
    {
        sampler(&mock.address, arguments).failure(2);
    }
}
