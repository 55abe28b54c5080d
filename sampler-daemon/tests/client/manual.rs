//! Help, completions and manual pages: their examples work, and shells and manual readers accept
//! them.

use super::{command, ran};
use std::fs;
use std::process::{Command, Stdio};

const SAMPLERD: &str = env!("CARGO_BIN_EXE_samplerd");
const VERBS: [&str; 16] = [
    "run",
    "status",
    "ps",
    "profile",
    "watch",
    "flamegraph",
    "leaks",
    "top",
    "lifetimes",
    "set",
    "diff",
    "plan",
    "symbolize",
    "completions",
    "man",
    "help",
];

/// The arguments of a shell line, up to the first operator of the shell. `None` unless the line
/// begins with `sampler`.
fn arguments(example: &str) -> Option<Vec<String>> {
    let line = example.trim().trim_start_matches("sudo ");
    let line = line.split("   ").next().unwrap_or_default();
    let words = line.split(' ').take_while(|word| !["|", ">", "&&", "&", ";"].contains(word));
    let mut words = words.map(|word| word.trim_matches('\'').to_owned());
    (words.next()? == "sampler").then(|| words.collect())
}

/// Every example is a command line without a usage error.
#[test]
fn examples_of_the_help_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for verb in VERBS.iter().map(|verb| vec![*verb, "--help"]).chain([vec!["--help"]]) {
        if verb[0] == "help" {
            continue;
        }
        let help = ran(command().args(&verb));
        let text = help.text();
        assert!(text.contains("Examples:"), "{verb:?} teaches nothing: {text}");
        let (_, examples) = text.split_once("Examples:\n").unwrap();
        let examples = examples.lines().take_while(|line| !line.is_empty());
        for example in examples {
            assert!(example.chars().count() <= 80, "{example}");
            let Some(arguments) = arguments(example) else { continue };
            // In an empty directory and without a daemon, the examples do no harm.
            let mut run = command();
            run.args(arguments.iter().filter(|word| word.as_str() != "--"));
            run.current_dir(directory.path()).env("SAMPLER_CONNECT", "unix:none");
            if ["run", "man", "symbolize"].contains(&arguments[0].as_str()) {
                run.arg("--help");
            }
            let output = run.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_ne!(output.status.code(), Some(2), "{example}: {said}");
            tried += 1;
        }
    }
    assert!(tried >= 20, "only {tried} examples were found");
    for (help, code) in
        [(ran(command().arg("-h")), "  2  "), (ran(Command::new(SAMPLERD).arg("-h")), "  2  ")]
    {
        assert!(help.text().contains("Exit status:") && help.text().contains(code));
    }
}

#[test]
fn help_fits_the_page() {
    let sampler = VERBS.iter().filter(|verb| **verb != "help").map(|verb| {
        let mut help = command();
        help.args([*verb, "--help"]);
        help
    });
    let mut samplerd = Command::new(SAMPLERD);
    samplerd.arg("--help").env_remove("COLUMNS");
    let mut whole = command();
    whole.arg("--help");
    for mut help in sampler.chain([samplerd, whole]) {
        let said = ran(&mut help);
        // clap does not wrap a line of usage.
        let lines = said.text().lines().filter(|line| !line.starts_with("Usage:"));
        let long: Vec<&str> = lines.filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{help:?}: {long:#?}");
    }
}

#[test]
fn bash_completes() {
    for (program, line, expected) in [
        (env!("CARGO_BIN_EXE_sampler"), &["completions", "bash"][..], "sampler profile --ki"),
        (SAMPLERD, &["--completions", "bash"], "samplerd --inte"),
    ] {
        let script = ran(Command::new(program).args(line));
        let (name, rest) = expected.split_once(' ').unwrap();
        let words: Vec<&str> = [name].into_iter().chain(rest.split(' ')).collect();
        // What readline does: sets the words, and calls the function that was registered.
        let ask = format!(
            "set -eu\n{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n\
             function=$(complete -p {name} | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n\
             $function {name} {} {}\necho \"${{COMPREPLY[*]}}\"",
            script.text(),
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let bash = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        let reply = String::from_utf8_lossy(&bash.stdout);
        let said = String::from_utf8_lossy(&bash.stderr);
        assert!(bash.status.success() && said.is_empty(), "{said}");
        assert!(
            ["--kind", "--interval"].contains(&reply.trim()),
            "{expected} completes to {reply}"
        );
    }
}

#[test]
fn other_shells_complete_and_unknown_ones_are_refused() {
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = ran(command().args(["completions", shell]));
        assert!(script.text().contains("lifetimes"), "{shell}");
    }
    assert!(ran(command().args(["completions", "tcsh"])).failure(2).contains("bash"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = ran(command().arg("man").arg(&file));
    assert!(refused.failure(1).contains("file"), "{}", refused.stderr);
}

#[test]
fn manual_pages_are_clean() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("made/here");
    assert_eq!(ran(command().arg("man").arg(&pages)).text(), "");
    assert_eq!(ran(Command::new(SAMPLERD).arg("--man").arg(&pages)).text(), "");
    let mut names: Vec<_> =
        fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    // `help` and hidden verbs have no page.
    assert_eq!(names.len(), VERBS.len() - 1 + 2, "{names:?}");
    for page in &names {
        let text = fs::read_to_string(page).unwrap();
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", r#""EXIT STATUS""#] {
            assert!(text.contains(&format!(".SH {heading}\n")), "{heading}: {}", page.display());
        }
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"]).env("MANWIDTH", "80").env("MANPAGER", "cat");
        reader("man", man.arg(page));
        reader("mandoc", Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(page));
    }
}

/// Checks that a reader of manual pages has no complaint about a page.
fn reader(name: &str, of: &mut Command) {
    let Ok(output) = of.stdin(Stdio::null()).output() else {
        eprintln!("NOT TESTED: {name} is not in PATH (apt-get install man-db mandoc)");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let linted = if name == "mandoc" { String::from_utf8_lossy(&output.stdout) } else { "".into() };
    // The pages have no date, so that the same program makes the same pages.
    let is_of_a_date = |line: &&str| !line.contains(" date");
    let complaints: Vec<&str> = said.lines().chain(linted.lines()).filter(is_of_a_date).collect();
    assert!(complaints.is_empty(), "{name}: {}", complaints.join("\n"));
}
