//! Wrong command lines, nobody listening, and daemons that answer nonsense.

use super::mock::{Mock, STRIDE_PID};
use super::{command, ran, sampler};
use std::io::{Read, Write};

#[test]
fn usage_errors_exit_with_2_and_say_what_to_do() {
    for (arguments, words) in [
        ("set --interval 0", "less than 1 byte"),
        ("set --interval -1", "negative"),
        ("set --interval -512KiB", "negative"),
        ("set --interval 5GiB", "between 1 and 4GiB"),
        ("set --interval x", "try 512KiB"),
        ("set", "--interval"),
        ("set --strategy fair", "geometric"),
        ("set --one-in 0", "0 is not in 1"),
        ("set --one-in 5 --samples-per-second 5", "cannot be used with"),
        ("set --samples-per-second nan", "above 0"),
        ("profile --format gif", "svg"),
        ("profile --kind held", "live"),
        ("profile --confidence 1", "between 0 and 1"),
        ("profile --confidence -0.5", "between 0 and 1"),
        ("profile --confidence nan", "between 0 and 1"),
        ("profile --pid 0", "--pid"),
        ("profile --pid x", "--pid"),
        ("profile --pid 12 34", "give each its own --pid"),
        ("profile --top 0", "--top"),
        ("profile --estimator exact", "weighted, failed-trials or calibrated"),
        ("watch --estimator Weighted", "weighted, failed-trials or calibrated"),
        ("profile --json --format pprof", "different formats"),
        ("watch --period 50ms", "100ms"),
        ("watch --period -1s", "negative"),
        ("watch --format pprof", "--format"),
        ("bogus", "bogus"),
        ("--connect /run/x.sock ps", "unix:PATH"),
    ] {
        let ran = ran(command().args(arguments.split_whitespace()));
        let stderr = ran.failure(2);
        assert!(stderr.contains(words), "{arguments}: {stderr}");
    }
    let ran = ran(command().args(["profile", "--pid", "12 34"]));
    assert!(ran.failure(2).contains("give each: --pid 12 --pid 34"), "{}", ran.stderr);
}

#[test]
fn a_missing_daemon_is_reported_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let missing = format!("unix:{}/none.sock", directory.path().display());
    let remedy =
        "no samplerd listens there (start one: samplerd --all, or --pid PID; or give --connect)";
    for verb in ["status", "ps", "profile", "watch", "set --interval 1MiB"] {
        let ran = sampler(&missing, verb);
        assert_eq!(ran.failure(1), format!("sampler: connect {missing}: {remedy}\n"));
    }
    // A socket file whose daemon is gone, and a port that nobody has.
    let stale = directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(sampler(&format!("unix:{}", stale.display()), "ps").failure(1).contains(remedy));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert!(sampler(&format!("tcp:127.0.0.1:{port}"), "ps").failure(1).contains(remedy));
    // No output file for a profile that could not be had.
    let output = directory.path().join("p.json");
    sampler(&missing, &format!("profile -o {}", output.display())).failure(1);
    assert!(!output.exists());
    let ran = ran(command().env("SAMPLER_CONNECT", "nonsense").arg("ps"));
    assert!(ran.failure(1).contains("SAMPLER_CONNECT is \"nonsense\""));
}

#[test]
fn the_environment_names_the_daemon() {
    let mock = Mock::unix();
    let ran = ran(command().env("SAMPLER_CONNECT", &mock.address).arg("set").arg("--interval=1M"));
    assert_eq!(ran.text(), "pid 4121: one sample per 1MiB\n");
}

#[test]
fn errors_of_the_daemon_are_shown() {
    let mock = Mock::unix();
    let refused = sampler(&mock.address, "profile --pid 77");
    assert_eq!(refused.failure(1), "sampler: pid 77 is not profiled (see: sampler ps)\n");
    let nonsense = sampler(&mock.address, "profile --pid 4121 --pid 4121");
    assert!(nonsense.failure(1).contains("location 99 is out of range"), "{}", nonsense.stderr);
}

#[test]
fn a_missing_estimator_is_refused_in_one_line() {
    let mock = Mock::unix();
    for name in ["weighted", "failed-trials", "calibrated"] {
        for verb in ["profile", "watch --period 100ms"] {
            let command = format!("{verb} --pid {STRIDE_PID} --estimator {name}");
            let words = format!("pid 4130: estimator {name} does not exist for strategy stride");
            let refused = sampler(&mock.address, &command);
            assert!(refused.failure(1).contains(&words), "{}", refused.stderr);
        }
    }
}

#[test]
fn a_foreign_server_on_the_socket_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut some = [0; 16];
            let _ = stream.read(&mut some);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let ran = sampler(&format!("unix:{}", path.display()), "status");
    assert!(ran.failure(1).contains("is it samplerd that listens there?"), "{}", ran.stderr);
}
