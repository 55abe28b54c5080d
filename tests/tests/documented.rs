//! Every command line in the documentation is one that the programs take.
//!
//! A command of a code block is run with `--help` at its end: the program checks all that comes
//! before, and does nothing. A command in the text may have placeholders, so its verb and the names
//! of its options are looked up in the program's help.
//!
//! `docs/options.md` has the help of every program and verb. `cargo xtask commands` writes it.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{build, docs};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of the project with a command line for people.
const PROGRAMS: [&str; 2] = ["samplerd", "sampler"];

/// Fewest command lines that the documentation has of each kind. With fewer, the search finds
/// nothing any more.
const MIN_COMMANDS: usize = 20;

/// Most lines of README.md.
const MAX_README_LINES: usize = 150;

/// Most words of the middle one of README.md's sentences, by their length.
const MAX_MEDIAN_WORDS: usize = 16;

/// Returns the pages for users.
fn pages() -> Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for folder in ["docs", "docs/fleet", "docs/guide", "examples"] {
        let entries = fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
        let files = entries.flatten().map(|entry| entry.path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|of| of == "md")));
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// Splits a page into the lines of its shell blocks, and the text outside of blocks.
fn parts(page: &str) -> (Vec<&str>, String) {
    let (mut commands, mut text, mut block) = (Vec::new(), String::new(), None);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language == "sh"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => commands.push(line),
            (None, Some(false)) => {}
            (None, None) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    (commands, text)
}

/// The commands of our programs in a shell line, each with its arguments. `$(…)` stands for a pid.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut line = line.to_owned();
    while let Some(start) = line.find("$(") {
        let Some(length) = line[start..].find(')') else { break };
        line.replace_range(start..=start + length, "1");
    }
    let (mut all, mut words) = (Vec::new(), Vec::new());
    for word in shell_words(&line).into_iter().chain([String::from("|")]) {
        match word.as_str() {
            "|" | "&" | "&&" | ">" | ";" => all.push(std::mem::take(&mut words)),
            "sudo" if words.is_empty() => {}
            _ => words.push(word),
        }
    }
    all.retain(|words| words.first().is_some_and(|first| PROGRAMS.contains(&first.as_str())));
    all
}

/// The words of a shell line up to its comment, without single quotes.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted && !word.is_empty() => words.push(std::mem::take(&mut word)),
            ' ' if !quoted => {}
            '#' if !quoted && word.is_empty() => break,
            _ => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[test]
fn commands_of_code_blocks_are_valid() -> Result<()> {
    let mut checked = 0;
    for (path, page) in pages()? {
        for words in parts(&page).0.into_iter().flat_map(commands) {
            let own = words.iter().position(|word| word == "--").unwrap_or(words.len());
            let mut command = Command::new(build::program(&words[0])?);
            let help = finish(command.args(&words[1..own]).arg("--help"))?;
            let line = words.join(" ");
            ensure!(help.status.success(), "{}: {line}: {}", path.display(), help.stderr);
            ensure!(String::from_utf8_lossy(&help.stdout).contains("Usage: "), "{line}");
            checked += 1;
        }
    }
    ensure!(checked >= MIN_COMMANDS, "only {checked} commands were found");
    Ok(())
}

/// The help of a program, or of a verb of it, once each.
#[derive(Default)]
struct Help(BTreeMap<Vec<String>, Option<String>>);

impl Help {
    /// Returns `None` if there is no such verb.
    fn of(&mut self, verb: &[String]) -> Result<Option<&str>> {
        if !self.0.contains_key(verb) {
            let mut command = Command::new(build::program(&verb[0])?);
            let help = finish(command.args(&verb[1..]).arg("--help"))?;
            let text = help.status.success().then(|| String::from_utf8_lossy(&help.stdout).into());
            self.0.insert(verb.to_vec(), text);
        }
        Ok(self.0[verb].as_deref())
    }
}

#[test]
fn verbs_and_options_in_the_text_exist() -> Result<()> {
    let (mut checked, mut help) = (0, Help::default());
    for (path, page) in pages()? {
        let text = parts(&page).1;
        let code = text.split('`').skip(1).step_by(2);
        for words in code.flat_map(commands) {
            let line = words.join(" ");
            let whole = || format!("{}: {line}", path.display());
            let is_verb = |word: &&String| word.chars().all(|c| c.is_ascii_lowercase());
            let verb = words.iter().skip(1).find(|word| !word.starts_with('-')).filter(is_verb);
            let verb = verb.filter(|_| words[0] == "sampler");
            let named: Vec<String> = words[..1].iter().chain(verb).cloned().collect();
            let known = help.of(&named)?.with_context(whole)?;
            let own = words.iter().take_while(|word| *word != "--");
            for option in own.filter(|word| word.starts_with("--")) {
                let option = option.split(['=', ',', '…', '|']).next().unwrap_or(option);
                let is_there =
                    |line: &str| line.split([' ', ',', '[', '=']).any(|word| word == option);
                ensure!(known.lines().any(is_there), "{}: no option {option}", whole());
            }
            checked += 1;
        }
    }
    ensure!(checked >= MIN_COMMANDS, "only {checked} commands were found");
    Ok(())
}

/// What a program prints with `--help`, in 80 columns.
fn help_of(words: &[&str]) -> Result<String> {
    let mut command = Command::new(build::program(words[0])?);
    command.args(&words[1..]).arg("--help").env("COLUMNS", "80");
    let help = String::from_utf8(finish(&mut command)?.success(words[0])?.stdout)?;
    Ok(help.lines().map(|line| format!("{}\n", line.trim_end())).collect())
}

/// The page of all options.
fn options() -> Result<String> {
    let all = help_of(&["sampler"])?;
    let (_, verbs) = all.split_once("\nCommands:\n").context("sampler has no commands")?;
    let names = verbs.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut page = String::from(
        "# Options\n\nThis page is what the programs print with `--help`. `cargo xtask commands` writes it. [commands.md](commands.md) explains the most used commands.\n",
    );
    let verbs =
        names.filter(|name| !matches!(*name, "" | "help")).map(|name| vec!["sampler", name]);
    for words in [vec!["samplerd"], vec!["sampler"]].into_iter().chain(verbs) {
        page += &format!("\n## {}\n\n```text\n{}```\n", words.join(" "), help_of(&words)?);
    }
    Ok(page)
}

#[test]
fn the_page_of_options_is_what_the_programs_print() -> Result<()> {
    let (page, path) = (options()?, docs::directory().join("options.md"));
    ensure!(page.matches("\n## ").count() > 10, "verbs are missing:\n{page}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &page).with_context(|| path.display().to_string())?;
    }
    let is = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    ensure!(is == page, "docs/options.md is out of date (cargo xtask commands writes it)");
    Ok(())
}

#[test]
fn a_shell_line_is_read_as_a_shell_does() {
    let line =
        "sudo samplerd --pid $(pidof -s x) --comm 'a b' & sampler ps | less # not: sampler x";
    let expected: Vec<Vec<&str>> =
        vec![vec!["samplerd", "--pid", "1", "--comm", "a b"], vec!["sampler", "ps"]];
    assert_eq!(commands(line), expected);
}

/// README.md is for somebody with a problem and ten minutes.
#[test]
fn the_readme_is_short() -> Result<()> {
    let path = docs::directory().join("../README.md");
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = page.lines().count();
    ensure!(lines <= MAX_README_LINES, "README.md has {lines} lines");
    let (_, text) = parts(&page);
    let prose = text.lines().filter(|line| !line.starts_with(['|', '#']));
    let prose = prose.collect::<Vec<_>>().join(" ").replace(": ", ". ").replace("? ", ". ");
    let sentences = prose.split(". ").map(|sentence| sentence.split_whitespace().count());
    let mut words: Vec<usize> = sentences.collect();
    words.sort_unstable();
    ensure!(words.len() >= MIN_COMMANDS, "README.md has only {} sentences", words.len());
    let median = words[words.len() / 2];
    ensure!(median <= MAX_MEDIAN_WORDS, "half of README.md's sentences have {median} words");
    Ok(())
}
