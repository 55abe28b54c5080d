//! Every estimator, and a process whose numbers have no interval.

use super::mock::{Mock, STRIDE_PID};
use super::sampler;
use serde_json::Value;

#[test]
fn estimators_are_chosen_by_name() {
    let mock = Mock::unix();
    let profile =
        |name: &str| sampler(&mock.address, &format!("profile --json --estimator {name}")).json();
    for name in ["weighted", "failed-trials", "calibrated"] {
        let json = profile(name);
        assert_eq!((&json["estimator"], &json["strategy"]), (&name.into(), &"geometric".into()));
    }
    let json = sampler(&mock.address, "profile --json").json();
    assert_eq!(json, profile("weighted"));
    // The moments of the strata are those of the stack.
    let stack = &json["stacks"][0];
    assert_eq!(stack["strata"][0]["alloc_space"], stack["alloc_space"]["moments"]);
    assert_eq!(json["reference"]["pids"], serde_json::json!([4121]));

    // Tails are half as long as their blocks, so that it differs.
    let of = |json: &Value| json["totals"]["alloc_space"]["value"].as_f64().unwrap();
    let trials = profile("failed-trials");
    assert_eq!(trials["totals"]["alloc_space"]["method"], "failed-trials");
    assert!((of(&trials) - of(&json)).abs() > 1.0);

    let watch = "watch --json --period 100ms --count 1 --estimator calibrated";
    assert_eq!(sampler(&mock.address, watch).json()["estimator"], "calibrated");
    let text = sampler(&mock.address, "profile --estimator calibrated");
    assert!(text.text().contains("\nmethod    estimator calibrated\n"), "{}", text.text());
}

/// Functions are sums of rows, so that any estimator can be asked for them.
#[test]
fn functions_have_the_chosen_estimator() {
    let mock = Mock::unix();
    let json = sampler(&mock.address, "profile --json --estimator failed-trials").json();
    let bytes = json["stacks"][0]["alloc_space"]["value"].as_f64().unwrap();
    let text = sampler(&mock.address, "profile --estimator failed-trials");
    let row = text.text().lines().find(|line| line.contains("load_file ")).unwrap();
    let shown = sampler_common::units::human_bytes(bytes);
    assert!(row.trim_start().starts_with(&shown), "{shown}: {row}");
}

#[test]
fn a_stride_has_no_interval() {
    let mock = Mock::unix();
    let command = format!("profile --pid {STRIDE_PID}");
    let json = sampler(&mock.address, &format!("{command} --json")).json();
    assert_eq!((&json["estimator"], &json["strategy"]), (&"points".into(), &"stride".into()));
    let space = &json["totals"]["alloc_space"];
    assert!(space["value"].is_f64() && space["low"].is_f64() && space["high"].is_null(), "{space}");
    let text = sampler(&mock.address, &command);
    assert!(text.text().contains("(no interval)"), "{}", text.text());
    assert!(text.text().contains("biased on periodic programs, no interval"), "{}", text.text());
    let pprof = sampler(&mock.address, &format!("{command} --format pprof"));
    assert_eq!((pprof.code, &pprof.stdout[..2]), (0, &b"\x1f\x8b"[..]));
}
