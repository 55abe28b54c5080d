//! Names from other people's binaries: the page shows them as text, and never interprets them.

use super::{Served, drawn};
use anyhow::{Context, Result, ensure};
use sampler_tests::browser::keys;
use sampler_tests::child::finish;
use sampler_tests::{Workload, build};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

const LONG: usize = 5000;
/// Name of the program's file, which is no UTF-8.
const FILE: &[u8] = b"<i>&bad\xff";

/// Names of the functions in the symbol table, and the text that the page shows for each.
fn names() -> [(Vec<u8>, String); 5] {
    let long = format!("std::map<{}>::f()", "std::pair<int,std::string>,".repeat(LONG / 27));
    [
        (b"<script>window.hacked=1</script>".to_vec(), "<script>window.hacked=1</script>".into()),
        (
            b"<img src=x onerror=window.hacked=1>".to_vec(),
            "<img src=x onerror=window.hacked=1>".into(),
        ),
        (b"a;b\nc\xe2\x80\xaed&amp;\"'".to_vec(), "a;b c?d&amp;\"'".into()),
        // The symbolizer rejects this name. The file and the offset replace the name.
        (b"bad\xff\xfeutf".to_vec(), "<i>&bad\u{fffd}+0x".into()),
        (long.clone().into_bytes(), long),
    ]
}

#[test]
fn hostile_names_are_text() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let plain = fs::read(build::compile("hostile.c", &["-Wl,--export-dynamic"])?)?;
    let (from, to) =
        (directory.path().join("plain"), directory.path().join(OsStr::from_bytes(FILE)));
    fs::write(&from, plain)?;
    let symbols = directory.path().join("symbols");
    let mut table = Vec::new();
    for (at, (name, _)) in (1..).zip(names()) {
        table.extend_from_slice(format!("hostile_{at} ").as_bytes());
        // White space would end the name. The script inserts it afterwards.
        table.extend(
            name.iter().map(|byte| if byte.is_ascii_whitespace() { b'\x01' } else { *byte }),
        );
        table.push(b'\n');
    }
    fs::write(&symbols, table)?;
    let mut command = Command::new("objcopy");
    command.arg("--strip-debug").arg(format!("--redefine-syms={}", symbols.display()));
    finish(command.arg(&from).arg(&to))?.success("objcopy")?;
    let mut contents = fs::read(&to)?;
    for (name, _) in names() {
        let written: Vec<u8> = name
            .iter()
            .map(|byte| if byte.is_ascii_whitespace() { b'\x01' } else { *byte })
            .collect();
        let places: Vec<usize> = (0..contents.len().saturating_sub(name.len()))
            .filter(|at| contents[*at..].starts_with(&written))
            .collect();
        ensure!(!places.is_empty(), "objcopy left {:?} out", String::from_utf8_lossy(&name));
        places.iter().for_each(|at| contents[*at..*at + name.len()].copy_from_slice(&name));
    }
    fs::write(&to, contents)?;
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    let mut workload = Workload::start_program(&to, &[])?;
    let served = Served::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    workload.truth()?;
    let page = served.page()?;
    let shown = |selector: &str| -> Result<String> {
        let text = page.run(&format!("return document.querySelector('{selector}').textContent"))?;
        text.as_str().map(str::to_owned).context("no text")
    };
    ensure!(shown("#processes")?.contains("<b onload=x>"), "{}", shown("#processes")?);
    // The details of the flame graph list the frames from the root to the leaf.
    page.run("document.querySelector('#flame').focus()")?;
    let mut walked = Vec::new();
    for _ in 0..16 {
        page.press(keys::UP)?;
        walked.push(shown("#details .frame-name")?);
    }
    page.press("t")?;
    drawn(&page)?;
    let table = shown("#table")?;
    for (_, name) in names() {
        let is_met =
            walked.iter().any(|of| *of == name || name.ends_with("+0x") && of.contains(&name));
        ensure!(is_met, "{name:.80} is not among {walked:.99?}");
        ensure!(table.contains(&name), "{name:.80} is not in the table");
    }
    // The search takes the text literally.
    page.press("/")?;
    page.press("<IMG src=x")?;
    page.until("what is found", "return document.querySelector('#found').textContent.includes('1 function match “<IMG src=x”')")?;
    page.press(keys::ESCAPE)?;
    let elements = "return document.querySelectorAll('script').length + document.querySelectorAll('img, i, body b, [onload], [onerror]').length";
    ensure!(page.run(elements)? == 1, "an element came from a name: {}", page.run(elements)?);
    ensure!(page.run("return window.hacked === undefined")? == true, "a script came from a name");
    let complaints = page.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    served.daemon.stop()
}
