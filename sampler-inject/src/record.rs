//! The record of an injection, stored in the target. A later injector uses it to eject the sampler,
//! or to go on with it.
//!
//! The record lies on a page of the image. Its magic number is written last, when everything that
//! the record names exists. No hook leads into the image before that. An image without a magic
//! number was left by a killed injector. No code ever ran there, so the image may be unmapped.

use crate::maps::{Mapping, Maps, PAGE_BYTES};
use crate::memory::Memory;
use anyhow::{Result, ensure};

use sampler_common::injected::BREAKPOINT;
pub use sampler_common::injected::{Hook, IMAGE as NAME, MAX_HOOKS, Record};

/// Name of the image's memory file as the kernel shows it.
pub const SHOWN: &str = "/memfd:otel_memory-sampler (deleted)";

/// What earlier injectors left in a process.
#[derive(Debug, Default)]
pub struct Remains {
    /// Record of a complete image.
    pub record: Option<Record>,
    /// Parts of an incomplete image: first address, and address behind the last one.
    pub ranges: Vec<(u64, u64)>,
    /// Descriptors of the memory file that are still open.
    pub descriptors: Vec<i32>,
}

impl Remains {
    /// Searches a process for what earlier injectors left.
    ///
    /// # Errors
    /// If a record names memory outside the image.
    pub fn find(pid: i32, maps: &Maps, memory: &Memory) -> Result<Remains> {
        let mut of_image = maps.all.iter().filter(|mapping| is_of_image(mapping));
        let record = of_image.find_map(|mapping| read(memory, mapping.start));
        if let Some(record) = record {
            let end = record.base.wrapping_add(record.bytes);
            let is_ours = |at: u64| maps.at(at).is_some_and(is_of_image);
            let is_sound =
                is_ours(record.base) && is_ours(end.wrapping_sub(1)) && is_sound(&record);
            ensure!(is_sound, "the record of the image is broken");
            return Ok(Remains {
                record: Some(record),
                descriptors: descriptors(pid),
                ..Remains::default()
            });
        }
        Ok(Remains { record: None, ranges: ranges(maps), descriptors: descriptors(pid) })
    }
}

/// Whether a mapping belongs to an image, complete or not.
#[must_use]
pub fn is_of_image(mapping: &Mapping) -> bool {
    mapping.name == SHOWN
}

/// Ranges of an incomplete image: its mappings, and anonymous memory between two of them if the
/// first one is writable. The image's own anonymous memory follows its data. Other memory there is
/// the program's, perhaps between two pages of code around hooks.
fn ranges(maps: &Maps) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    // End of the last mapping of the image, or of the anonymous memory adjacent to it. `None` after
    // a gap.
    let mut open: Option<u64> = None;
    for mapping in &maps.all {
        let follows = open == Some(mapping.start);
        if is_of_image(mapping) {
            match ranges.last_mut() {
                Some(last) if follows => last.1 = mapping.end,
                _ => ranges.push((mapping.start, mapping.end)),
            }
            open = mapping.is_writable.then_some(mapping.end);
        } else if follows && mapping.inode == 0 && mapping.name.is_empty() {
            open = Some(mapping.end);
        } else {
            open = None;
        }
    }
    ranges
}

/// Whether the code that a hook leads to is mapped, also the code for each combination of other
/// tools' breakpoints.
#[must_use]
pub fn has_landings(maps: &Maps, hook: &Hook) -> bool {
    (0..16_u8).all(|subset| {
        let mut distance = hook.following;
        for (at, byte) in distance.iter_mut().enumerate() {
            if subset & hook.boundaries & 1 << at != 0 {
                *byte = BREAKPOINT;
            }
        }
        let distance = i64::from(i32::from_le_bytes(distance));
        let landing = hook.patch.wrapping_add_signed(5 + distance);
        maps.at(landing).is_some_and(is_of_image)
    })
}

fn descriptors(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let of_image = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        (target.to_str() == Some(SHOWN)).then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    };
    entries.filter_map(Result::ok).filter_map(of_image).collect()
}

/// Whether everything that the record names lies in the image. The record is the target's own
/// memory, and so untrusted.
fn is_sound(record: &Record) -> bool {
    let is_inside = |start: u64, bytes: u64| {
        start >= record.base && bytes <= record.bytes && start - record.base <= record.bytes - bytes
    };
    let rates = record.rates.iter().all(|rate| is_inside(*rate, 8));
    rates && record.areas.iter().all(|(start, bytes)| is_inside(*start, *bytes))
}

/// Reads the record at an address. `None`: no record is there.
fn read(memory: &Memory, address: u64) -> Option<Record> {
    let page: [u8; PAGE_BYTES as usize] = memory.array(address).ok()?;
    Record::parse(&page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x7f00_0000_0000;

    fn maps(all: Vec<Mapping>) -> Maps {
        let mut maps = Maps::read(std::process::id().cast_signed()).unwrap();
        maps.all = all;
        maps
    }

    /// A mapping of one page.
    fn page(number: u64, name: &str, is_writable: bool) -> Mapping {
        let start = AT + number * PAGE_BYTES;
        Mapping {
            start,
            end: start + PAGE_BYTES,
            offset: 0,
            inode: u64::from(!name.is_empty()),
            device: (0, 1),
            is_executable: !is_writable,
            is_writable,
            name: name.to_owned(),
        }
    }

    #[test]
    fn anonymous_memory_between_pages_of_code_is_the_programs() {
        let at = |number: u64| AT + number * PAGE_BYTES;
        // Data, its anonymous memory and the record; then two pages of code with memory between.
        let all = vec![
            page(0, SHOWN, true),
            page(1, "", true),
            page(2, SHOWN, true),
            page(8, SHOWN, false),
            page(9, "", true),
            page(10, SHOWN, false),
        ];
        let expected = [(at(0), at(3)), (at(8), at(9)), (at(10), at(11))];
        assert_eq!(ranges(&maps(all)), expected);
    }

    #[test]
    fn a_hook_needs_the_code_for_each_combination_of_breakpoints() {
        // Without and with a breakpoint in the third byte of the distance.
        let distances = [0x0004_1234, 0x00cc_1234];
        let hook = Hook {
            name: "malloc".to_owned(),
            patch: AT,
            original: 0x41,
            following: [0x34, 0x12, 0x04, 0],
            boundaries: 0b100,
            is_past_malloc: false,
            prefix: 0,
        };
        let landing = |distance: u64| page((5 + distance) / PAGE_BYTES, SHOWN, false);
        let [plain, with_breakpoint] = distances.map(landing);
        assert!(has_landings(&maps(vec![plain.clone(), with_breakpoint]), &hook));
        assert!(!has_landings(&maps(vec![plain]), &hook));
    }

    #[test]
    fn a_record_with_areas_outside_its_image_is_refused() {
        let base = 0x7f00_0000_0000;
        let record = Record {
            base,
            bytes: 0x30_0000,
            rates: [base, base + 8],
            areas: [(base, 4), (base + 4, 0x2f_fffc)],
            hooks: Vec::new(),
        };
        assert!(is_sound(&record));
        assert!(!is_sound(&Record { areas: [(3, 4), (5, 6)], ..record.clone() }));
        assert!(!is_sound(&Record { areas: [(base, 4), (base + 4, 0x2f_fffd)], ..record }));
        assert_eq!(SHOWN, format!("/memfd:{NAME} (deleted)"));
    }
}
