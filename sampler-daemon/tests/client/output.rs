//! Where the output goes: files, devices, closed pipes, terminals.

use super::mock::Mock;
use super::{SAMPLER, command, ran, sampler};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_file_is_written_whole() {
    let mock = Mock::unix();
    let path = mock.path("p.folded");
    let write = |path: &std::path::Path| {
        sampler(&mock.address, &format!("profile --format folded -o {}", path.display()))
    };
    assert_eq!(write(&path).text(), "");
    let contents = std::fs::read_to_string(&path).unwrap();
    assert!(contents.starts_with("main;load_file;malloc "), "{contents}");

    // Replaced whole, with its mode; a link stays a link.
    std::fs::write(&path, "x".repeat(100_000)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = mock.path("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(write(&link).text(), "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());

    // A device is written to, not replaced.
    assert_eq!(write("/dev/null".as_ref()).text(), "");
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let mut files = mock.files();
    files.sort();
    assert_eq!(files, ["link", "p.folded"]);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let mock = Mock::unix();
    let directory = mock.directory.path().display().to_string();
    for (path, words) in [
        (format!("{directory}/no/such/file"), "no such file or directory"),
        (directory.clone(), "is a directory"),
        ("/dev/full".to_owned(), "no space left on device"),
        ("/proc/version/x".to_owned(), "not a directory"),
    ] {
        let ran = sampler(&mock.address, &format!("profile -o {path}"));
        assert_eq!(ran.failure(1), format!("sampler: write {path}: {words}\n"));
    }
    assert!(mock.files().is_empty());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = ran(command().args(["--connect", &mock.address, "status"]).stdout(full));
    assert_eq!(ran.failure(1), "sampler: write standard output: no space left on device\n");
}

#[test]
fn a_closed_pipe_ends_without_an_error() {
    let mock = Mock::unix();
    for arguments in
        [&["profile", "--json"][..], &["status"], &["watch", "--period", "100ms", "--count", "3"]]
    {
        let mut child = command()
            .args(["--connect", &mock.address])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{arguments:?}");
    }
}

/// Runs on a terminal made by script(1), which merges standard output and error.
fn on_a_terminal(arguments: &str) -> Option<(i32, String)> {
    let line = format!("{SAMPLER} {arguments}");
    let script = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output();
    match script {
        Ok(output) => {
            Some((output.status.code()?, String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Err(error) => {
            eprintln!("NOT TESTED on a terminal: script(1): {error} (install bsdutils)");
            None
        }
    }
}

#[test]
fn a_terminal_gets_emphasis_but_no_binary() {
    let mock = Mock::unix();
    let address = &mock.address;
    let Some((code, text)) = on_a_terminal(&format!("--connect {address} profile --format pprof"))
    else {
        return;
    };
    assert_eq!((code, text.trim_end().lines().count()), (1, 1), "{text}");
    assert!(text.contains("give -o FILE"), "{text}");
    let (code, text) = on_a_terminal(&format!("--connect {address} profile")).unwrap();
    assert!(code == 0 && text.contains("\u{1b}[1m"), "{text}");
    let watch = format!("--connect {address} watch --period 100ms --count 2");
    let (code, text) = on_a_terminal(&watch).unwrap();
    assert!(code == 0 && text.contains("\u{1b}[H\u{1b}[2J") && text.contains("\u{1b}[J"), "{text}");
}
