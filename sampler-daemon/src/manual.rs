//! Completions for shells and manual pages, generated from the definition of a command line: they
//! say what `--help` says.
//!
//! Text after the options in the help (examples, exit status) becomes sections of the manual. A
//! line that begins in the first column and ends in a colon is a heading. The text below it is kept
//! line by line.

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The heading of the section that pages of verbs take from the command itself.
const EXIT_STATUS: &str = "Exit status";

/// Prints completions of `command`.
///
/// # Errors
/// If `out` cannot be written.
pub fn complete(mut command: Command, shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    out.write_all(&script)
}

/// Writes the page of `command`, and one page of each of its verbs, into `directory`, which is made
/// if needed.
///
/// # Errors
/// One line on what could not be written.
pub fn write_pages(command: Command, section: &str, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    for (name, page) in pages(command, section)? {
        let path = directory.join(name);
        fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Every page with its file name.
fn pages(command: Command, section: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let exit = sections(&command).into_iter().filter(|(heading, _)| heading == EXIT_STATUS);
    let exit: Vec<_> = exit.collect();
    let mut pages = vec![page(&command, section, sections(&command))?];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let own = sections(verb);
        let says = own.iter().any(|(heading, _)| heading == EXIT_STATUS);
        let inherited = if says { Vec::new() } else { exit.clone() };
        pages.push(page(verb, section, [own, inherited].concat())?);
    }
    Ok(pages)
}

type Section = (String, Vec<String>);

/// The sections after the options.
fn sections(command: &Command) -> Vec<Section> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines() {
        match line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            Some(heading) => sections.push((heading.to_owned(), Vec::new())),
            None => {
                if let Some((_, lines)) = sections.last_mut() {
                    lines.push(line.strip_prefix("  ").unwrap_or(line).to_owned());
                }
            }
        }
    }
    sections
}

fn page(command: &Command, section: &str, sections: Vec<Section>) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).section(section).manual("sampler");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    for (heading, lines) in &sections {
        roff.control("SH", [heading.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in lines.iter().filter(|line| !line.is_empty()) {
            roff.text([roman(line.as_str())]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(&mut page)?;
    Ok((man.get_filename(), without_double_breaks(&page)))
}

/// The page without line breaks next to empty lines, which break lines anyway: mandoc complains of
/// them.
fn without_double_breaks(page: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = page.split(|byte| *byte == b'\n').collect();
    let is_space =
        |line: Option<&&[u8]>| line.is_some_and(|line| line.is_empty() || *line == b".sp");
    let kept = (0..lines.len()).filter(|at| {
        let before = at.checked_sub(1).and_then(|before| lines.get(before));
        let is_double = is_space(before) || is_space(lines.get(at + 1));
        !(lines[*at] == b".br" && is_double)
    });
    kept.map(|at| lines[at]).collect::<Vec<_>>().join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("x")
            .about("Does things")
            .after_help("Examples:\n  x --a 'b.c'\n  .x -- y\n\nExit status:\n  0  done")
            .subcommand(Command::new("do").about("Do it"))
            .subcommand(Command::new("__hidden").hide(true))
    }

    #[test]
    fn examples_are_kept_line_by_line() {
        let pages = pages(command(), "1").unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x.1", "x-do.1"]);
        let text = String::from_utf8(pages[0].1.clone()).unwrap();
        // A leading dot would be a request, a plain hyphen is typeset as another character.
        for line in [".SH EXAMPLES", r"x \-\-a \*(Aqb.c\*(Aq", ".SH \"EXIT STATUS\""] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("\n.x"), "{text}");
        let verb = String::from_utf8(pages[1].1.clone()).unwrap();
        assert!(verb.contains("EXIT STATUS") && !verb.contains("EXAMPLES"), "{verb}");
    }

    #[test]
    fn completions_know_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            complete(command(), shell, &mut script).unwrap();
            assert!(String::from_utf8(script).unwrap().contains("do"), "{shell}");
        }
    }
}
