//! Checks whether a probe's breakpoint is in a process: compares the bytes in memory with the bytes
//! of the file.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Number of bytes compared. The longest instruction that a probe replaces (a five-byte nop) fits.
const BYTES: usize = 5;

/// A probed instruction of a file.
#[derive(Clone, Debug)]
pub struct Site {
    path: String,
    offset: u64,
}

impl Site {
    /// The instruction at `offset` of the file that is mapped as `path`.
    pub fn at(path: &str, offset: u64) -> Site {
        Site { path: path.to_owned(), offset }
    }
}

/// The probed instructions that `status --json` lists.
pub fn sites(status: &Value) -> Result<Vec<Site>> {
    let probes = status["probes"].as_array().context("status has no probes")?;
    let site = |probe: &Value| {
        let number = |key: &str| {
            probe[key].as_u64().with_context(|| format!("probe without {key}: {probe}"))
        };
        let path = probe["path"].as_str().context("probe without path")?.to_string();
        Ok(Site { path, offset: number("function_offset")? + number("displacement")? })
    };
    probes.iter().map(site).collect()
}

/// Returns how many of `sites` differ between the memory of `pid` and their files.
pub fn standing(pid: u32, sites: &[Site]) -> Result<usize> {
    let maps = format!("/proc/{pid}/maps");
    let maps = fs::read_to_string(&maps).with_context(|| format!("read {maps}"))?;
    let memory = format!("/proc/{pid}/mem");
    let memory = File::open(&memory).with_context(|| format!("open {memory}"))?;
    let mut count = 0;
    for site in sites {
        let Some(address) = maps.lines().find_map(|line| address(line, site)) else { continue };
        let file = File::open(&site.path).with_context(|| format!("open {}", site.path))?;
        let (mut there, mut here) = ([0; BYTES], [0; BYTES]);
        memory.read_exact_at(&mut there, address).with_context(|| format!("read {site:?}"))?;
        file.read_exact_at(&mut here, site.offset).with_context(|| format!("read {site:?}"))?;
        count += usize::from(there != here);
    }
    Ok(count)
}

/// Returns how many code bytes of the file that is mapped as `path` differ between the memory of
/// `pid` and the file.
pub fn changed(pid: u32, path: &str) -> Result<usize> {
    let maps = format!("/proc/{pid}/maps");
    let maps = fs::read_to_string(&maps).with_context(|| format!("read {maps}"))?;
    let memory = format!("/proc/{pid}/mem");
    let memory = File::open(&memory).with_context(|| format!("open {memory}"))?;
    let file = fs::read(path).with_context(|| format!("read {path}"))?;
    let mut count = 0;
    for line in maps.lines().filter(|line| line.ends_with(path) && line.contains(" r-xp ")) {
        let field = |number: usize| line.split([' ', '-']).nth(number).unwrap_or_default();
        let number =
            |text: &str| u64::from_str_radix(text, 16).with_context(|| format!("parse {line}"));
        // start-end permissions offset
        let (start, end) = (number(field(0))?, number(field(1))?);
        let offset = number(line.split(' ').nth(2).unwrap_or_default())? as usize;
        let mut there = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut there, start).with_context(|| format!("read {line}"))?;
        let here = file.get(offset..).unwrap_or_default();
        count += there.iter().zip(here).filter(|(there, here)| there != here).count();
    }
    Ok(count)
}

/// Address of `site` in the mapping that `line` of a maps file describes.
fn address(line: &str, site: &Site) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let executable = fields.next()?.contains('x');
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let path = fields.nth(2)?;
    let inside = (offset..offset + (end - start)).contains(&site.offset);
    (executable && path == site.path && inside).then(|| start + (site.offset - offset))
}
