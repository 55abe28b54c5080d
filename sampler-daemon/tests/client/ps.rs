//! `sampler ps`: few processes, many, groups; all on 80 columns.

use super::many::EXITED;
use super::mock::{Mock, PID};
use super::{Ran, command, ran, sampler};

fn fits(ran: &Ran) -> Vec<&str> {
    let lines: Vec<&str> = ran.text().lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", ran.text());
    assert!(!ran.text().contains('\u{1b}'));
    lines
}

#[test]
fn exited_processes_are_folded_by_command() {
    let mock = Mock::tcp();
    let ran = sampler(&mock.address, "ps");
    let lines = fits(&ran);
    assert!(lines.len() < 20, "{}", ran.text());
    assert!(lines[0].ends_with("RSS SAMPLES INTERVAL  COST  COMMAND"), "{}", lines[0]);
    let words = ["   4121 ", " 172 MiB ", " 210 MiB ", "  512KiB  6.2%  kvstore"];
    assert!(words.iter().all(|words| lines[1].contains(words)), "{}", lines[1]);
    let exited = format!("exited: {EXITED} processes, by command (--exited lists each)");
    let at = lines.iter().position(|line| **line == exited).unwrap();
    assert!(lines[at + 1].starts_with("    299 ") && lines[at + 1].ends_with("  cc1plus"));
    assert!(lines[at + 2].ends_with("  (not known)"));
    assert_eq!(
        lines[at + 3..].join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
        "cost: kvstore 4121: 1.23 s ±10% of CPU time in probes, 6.2% of the 20.0 s since attach; samplerd used 104 ms for the samples \
         blind: 5 processes (python3 4200, python3 4201, python3 4202, …): arenas are mapped, not allocated"
    );
}

#[test]
fn exited_processes_are_listed_on_request() {
    let mock = Mock::tcp();
    let ran = sampler(&mock.address, "ps --exited --sort name");
    let lines = fits(&ran);
    let at = lines.iter().position(|line| *line == "exited").unwrap();
    assert_eq!(
        lines[at + 1..].iter().filter(|line| line.starts_with("  10")).count(),
        EXITED as usize
    );
    assert!(lines[1].contains(" 4121 ") && lines[2].contains(" 4200 "), "{}", ran.text());
    let newest = sampler(&mock.address, "ps --sort newest");
    assert!(fits(&newest)[1].contains(" 4204 "), "{}", newest.text());
}

#[test]
fn groups_are_printed_with_their_sums() {
    let mock = Mock::tcp();
    for by in ["pid", "comm", "exe", "cgroup", "container"] {
        let ran = sampler(&mock.address, &format!("ps --by {by} --sort samples"));
        let lines = fits(&ran);
        assert!(lines[0].trim_start().starts_with("PROCS "));
        assert!(lines[0].ends_with(&format!("  {}", by.to_uppercase())), "{}", lines[0]);
        assert!(lines[1].starts_with("    300 ") && lines[1].contains(" 300 MiB "), "{}", lines[1]);
        assert!(lines[1].contains("1.00 GiB") && lines[2].ends_with("  a"), "{}", ran.text());
        assert_eq!(lines.len(), 3);
    }
    let json = sampler(&mock.address, "ps --by comm --json").json();
    assert_eq!((&json["by"], &json["groups"][0]["key"]), (&"comm".into(), &"a".into()));
    assert_eq!(json["groups"][1]["exact"]["alloc_space"], 300 << 20);
    assert!(json["groups"][1]["totals"]["inuse_space"]["high"].is_f64());
}

#[test]
fn json_has_every_process() {
    let mock = Mock::tcp();
    let list = sampler(&mock.address, "--json ps").json();
    let processes = list["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 6 + EXITED as usize);
    let first = &list["processes"][0];
    assert_eq!((&first["pid"], &first["container"]), (&PID.into(), &"c0ffee".into()));
    assert_eq!(first["exact"]["alloc_space"], 180_000_000);
    assert_eq!(first["memory"]["heap_bytes"], 188_743_680);
    assert!(first["totals"]["inuse_space"]["moments"]["sum"].is_f64());
    assert!(list["processes"][1]["memory"].is_null());
}

#[test]
fn processes_are_selected() {
    let mock = Mock::tcp();
    let python = sampler(&mock.address, "ps --comm python3 --comm cc1plus --json").json();
    assert_eq!(python["processes"].as_array().unwrap().len(), 105);
    for verb in ["ps", "profile", "watch", "lifetimes"] {
        let help = ran(command().args([verb, "--help"]));
        for flag in ["--pid", "--comm", "--exe", "--cgroup"] {
            assert!(help.text().contains(flag), "{verb} {flag}");
        }
    }
    for mistake in ["ps --comm=", "profile --exe=", "ps --by user", "ps --by pid --exited"] {
        ran(command().args(mistake.split(' '))).failure(2);
    }
}
