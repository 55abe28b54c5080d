//! Every link from one page of the project to another leads to a file, and to a heading in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Fewest links that the pages have. With fewer, the search finds nothing any more.
const MIN_LINKS: usize = 50;

fn pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_source = !matches!(name.to_str(), None | Some("target" | ".git"));
        if is_source && path.is_dir() {
            pages(&path, into);
        } else if path.extension().is_some_and(|of| of == "md") {
            into.push(path);
        }
    }
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let (mut seen, mut in_code) = (BTreeSet::new(), false);
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free = [anchor.clone()].into_iter().chain(again).find(|of| !seen.contains(of));
        seen.extend(free);
    }
    seen
}

/// The targets of a page's links, without those to the network.
fn links(page: &str) -> Vec<&str> {
    let parts = page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    parts.filter(|link| !link.contains("://") && !link.starts_with("mailto:")).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let mut all = Vec::new();
    pages(&root, &mut all);
    let (mut checked, mut broken) = (0, Vec::new());
    for page in all {
        let text = fs::read_to_string(&page).expect("a page");
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().expect("a folder");
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            let has_anchor = || {
                let text = fs::read_to_string(&target).unwrap_or_default();
                anchor.is_empty() || anchors(&text).contains(anchor)
            };
            if !target.exists() || !has_anchor() {
                broken.push(format!("{}: {link}", page.display()));
            }
            checked += 1;
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(checked >= MIN_LINKS, "only {checked} links were found");
}

#[test]
fn every_page_is_in_the_book() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let summary = fs::read_to_string(root.join("SUMMARY.md")).expect("the contents");
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|of| root.join(of)).collect();
    let mut written = Vec::new();
    pages(&root.join("docs"), &mut written);
    pages(&root.join("examples"), &mut written);
    let missing: Vec<&PathBuf> = written.iter().filter(|page| !listed.contains(*page)).collect();
    assert!(missing.is_empty() && !written.is_empty(), "not in SUMMARY.md: {missing:?}");
}

#[test]
fn anchors_are_made_as_on_github() {
    let page = "# What it is\n```\n# code\n```\n## A `--pid`, or not?\n## What it is\n";
    let expected = ["a---pid-or-not", "what-it-is", "what-it-is-1"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
}
