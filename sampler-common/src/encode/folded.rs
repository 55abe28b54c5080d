//! The folded format of flame graph tools: `root;…;leaf VALUE`, one line per stack.
//!
//! VALUE is the estimated bytes of the profile's kind, rounded to an integer. The format has no
//! room for intervals: json and text carry them.

use super::{Encode, NO_STACK, name};
use crate::profile::{Line, Profile};
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes the folded format, by falling value.
///
/// Stacks with the same frames (of two processes, or at two places of one function) share a line. A
/// line that rounds to 0 bytes is left out.
pub struct Folded;

impl Encode for Folded {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let mut lines: HashMap<String, f64> = HashMap::with_capacity(profile.stacks.len());
        for stack in &profile.stacks {
            let mut line = String::new();
            for location in stack.locations.iter().rev().map(|at| &profile.locations[*at as usize])
            {
                let is_interpreted = profile.is_interpreted(location);
                for frame in location.lines.iter().rev() {
                    if !line.is_empty() {
                        line.push(';');
                    }
                    if is_interpreted && !frame.file.is_empty() {
                        line.push_str(&name::folded(&with_file(frame)));
                    } else {
                        line.push_str(&name::folded(&frame.function));
                    }
                }
            }
            if line.is_empty() {
                line.push_str(NO_STACK);
            }
            *lines.entry(line).or_default() += stack.quantities.space(profile.kind).estimate.value;
        }
        // The sum is rounded, not its terms: a thousand rows of 0.4 bytes are 400 bytes.
        let mut lines: Vec<(String, u64)> =
            lines.into_iter().map(|(line, bytes)| (line, bytes.round() as u64)).collect();
        lines.retain(|(_, bytes)| *bytes > 0);
        lines.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for (line, bytes) in lines {
            writeln!(out, "{line} {bytes}")?;
        }
        Ok(())
    }
}

/// `module.function (file.py:12)` of Python, `function (file.js:12)` of JavaScript.
fn with_file(Line { function, file, line }: &Line) -> String {
    let base = name::base_name(file);
    match module(file) {
        Some(module) => format!("{module}.{function} ({base}:{line})"),
        None => format!("{function} ({base}:{line})"),
    }
}

/// The Python module that a file has by its path: below a folder of Python's libraries the whole
/// dotted name, else the name of the file or of its package. `None` for code without a file.
fn module(file: &str) -> Option<String> {
    if let Some(frozen) = file.strip_prefix("<frozen ") {
        return frozen.strip_suffix('>').map(str::to_owned);
    }
    let mut parts: Vec<&str> = file.strip_suffix(".py")?.split('/').collect();
    if parts.len() > 1 && parts.last() == Some(&"__init__") {
        parts.pop();
    }
    // `site-packages` is below `python3.11`, so the last such folder counts.
    let below = parts.iter().rposition(|part| is_library(part));
    let first = below.map_or(parts.len() - 1, |at| (at + 1).min(parts.len() - 1));
    Some(parts.get(first..)?.join(".")).filter(|module| !module.is_empty())
}

/// Whether a folder with this name contains top-level modules: `python3.11`, `python311.zip`,
/// `site-packages` or `dist-packages`.
fn is_library(folder: &str) -> bool {
    let version = folder.strip_prefix("python").unwrap_or_default();
    let version = version.strip_suffix(".zip").unwrap_or(version);
    let is_version =
        version.starts_with('3') && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_version || matches!(folder, "site-packages" | "dist-packages")
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::{Kind, Mapping};

    fn written(profile: &Profile) -> String {
        String::from_utf8(fixture::encoded(&Folded, profile)).unwrap()
    }

    #[test]
    fn golden() {
        fixture::golden("alloc.folded", written(&fixture::profile(Kind::Alloc)));
        fixture::golden("live.folded", written(&fixture::profile(Kind::Live)));
    }

    #[test]
    fn python_functions_have_their_module_file_and_line() {
        let mut profile = fixture::profile(Kind::Alloc);
        profile.mappings.push(Mapping { path: "[python 7]".into(), ..Mapping::default() });
        let (function, file) = ("Cache.add".into(), "/srv/app/cache;x.py".into());
        profile.locations[0].lines = vec![Line { function, file, line: 12 }];
        profile.locations[0].mapping = profile.mappings.len() as u32 - 1;
        let text = written(&profile);
        assert!(text.contains(";cache:x.Cache.add (cache:x.py:12)"), "{text}");
    }

    #[test]
    fn modules_have_the_names_that_an_import_gives() {
        for (file, expected) in [
            ("/usr/lib/python3.11/json/decoder.py", Some("json.decoder")),
            ("/usr/lib/python3.11/json/__init__.py", Some("json")),
            (
                "/venv/lib/python3.13/site-packages/django/db/models/query.py",
                Some("django.db.models.query"),
            ),
            ("/usr/lib/python3/dist-packages/six.py", Some("six")),
            ("/opt/python39.zip/abc.py", Some("abc")),
            ("/srv/python-app/leak.py", Some("leak")),
            ("leak.py", Some("leak")),
            ("/srv/shop/__init__.py", Some("shop")),
            ("__init__.py", Some("__init__")),
            ("/usr/lib/python3.11/__init__.py", Some("python3.11")),
            ("<frozen importlib._bootstrap>", Some("importlib._bootstrap")),
            ("<string>", None),
            ("/srv/run", None),
            ("/.py", None),
        ] {
            assert_eq!(module(file).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn an_empty_profile_has_no_lines() {
        assert_eq!(written(&fixture::empty()), "");
    }

    #[test]
    fn hostile_names_keep_the_format() {
        let text = written(&fixture::hostile());
        for line in text.lines() {
            let (frames, value) = line.rsplit_once(' ').unwrap();
            value.parse::<u64>().unwrap();
            assert!(frames.split(';').all(|frame| !frame.is_empty()), "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        // Rows that the format cannot distinguish share a line.
        let same = text.lines().filter(|line| line.starts_with("a:b;c d;")).count();
        assert_eq!((same, text.lines().count()), (1, 3), "{text}");
    }
}
