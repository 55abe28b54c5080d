//! Functions of an `.eh_frame` section by address, for files whose linker made no searchable table.
//!
//! The section may be hostile. Each entry is read once and each CIE is parsed once, so the time is
//! proportional to the section's size. Reference: the LSB chapter on `.eh_frame`.

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice, Error,
    LittleEndian, Section as _, UnwindSection as _,
};
use rustc_hash::FxHashMap;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Most functions held, 16 bytes each. Functions beyond the bound have no unwind information.
const MAX_FUNCTIONS: usize = 1 << 20;

/// Length that announces the true length in the next eight bytes.
const LONG_LENGTH: u32 = u32::MAX;

/// The kind of an entry, by the 4-byte word behind the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cie,
    Fde,
}

/// First address of each function and the offset of its FDE, by address.
pub(in crate::unwind) fn functions(
    section: &EhFrame<Bytes<'_>>,
    bases: &BaseAddresses,
) -> Vec<(u64, usize)> {
    let mut cies: FxHashMap<usize, CommonInformationEntry<Bytes<'_>>> = FxHashMap::default();
    let mut functions = Vec::new();
    for (offset, kind) in entries(section.reader().slice()) {
        match kind {
            Kind::Cie => {
                // A CIE with an unknown augmentation is left out, together with its FDEs.
                if let Ok(cie) = section.cie_from_offset(bases, EhFrameOffset(offset)) {
                    cies.insert(offset, cie);
                }
            }
            Kind::Fde if functions.len() < MAX_FUNCTIONS => {
                // A CIE precedes its FDEs.
                let cie = |_: &_, _: &_, of: EhFrameOffset<usize>| {
                    cies.get(&of.0).cloned().ok_or(Error::NotCiePointer(of.0 as u64))
                };
                if let Ok(description) = section.fde_from_offset(bases, offset.into(), cie)
                    && description.len() > 0
                {
                    functions.push((description.initial_address(), offset));
                }
            }
            Kind::Fde => break,
        }
    }
    functions.sort_unstable();
    functions
}

/// Offsets and kinds of the entries. Zero lengths, which end the part of one object file, are
/// skipped.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (usize, Kind)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            let offset = next;
            let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
            let (body, length) = match word(offset)? {
                0 => {
                    next = offset + 4;
                    continue;
                }
                LONG_LENGTH => {
                    let length = u64::from_le_bytes(*bytes.get(offset + 4..)?.first_chunk()?);
                    (offset + 12, usize::try_from(length).ok()?)
                }
                length => (offset + 4, length as usize),
            };
            next = body.checked_add(length).filter(|end| *end <= bytes.len())?;
            let kind = if word(body)? == 0 { Kind::Cie } else { Kind::Fde };
            return Some((offset, kind));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry: its length, the word behind the length, and the rest, padded with zeros.
    fn entry(word: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = word.to_le_bytes().to_vec();
        bytes.extend(rest);
        bytes.resize(bytes.len().next_multiple_of(8) + 4, 0);
        [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
    }

    /// A CIE: version, augmentation, factors, the return address's column, and with a `z` the
    /// encoding of addresses.
    fn cie(augmentation: &str) -> Vec<u8> {
        let mut rest = vec![1];
        rest.extend(augmentation.bytes());
        rest.extend([0, 1, 0x78, 16]);
        if augmentation.starts_with('z') {
            // One byte of data: absolute addresses.
            rest.extend([1, 0]);
        }
        entry(0, &rest)
    }

    fn fde(back_to_cie: usize, start: u64, length: u64) -> Vec<u8> {
        let rest = [&start.to_le_bytes()[..], &length.to_le_bytes(), &[0]].concat();
        entry(back_to_cie as u32, &rest)
    }

    fn found(bytes: &[u8]) -> Vec<u64> {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(0);
        functions(&section, &bases).iter().map(|(start, _)| *start).collect()
    }

    #[test]
    fn unknown_augmentations_do_not_hide_later_entries() {
        let mut bytes = cie("zR");
        let at = |bytes: &Vec<u8>, cie: usize| bytes.len() + 4 - cie;
        bytes.extend(fde(at(&bytes, 0), 0x2000, 0x10));
        let unknown = bytes.len();
        bytes.extend(cie("zQ"));
        bytes.extend(fde(at(&bytes, unknown), 0x9000, 0x10));
        bytes.extend([0; 4]);
        bytes.extend(fde(at(&bytes, 0), 0x1000, 0x10));
        // An FDE without code, and an entry that ends beyond the section.
        bytes.extend(fde(at(&bytes, 0), 0x3000, 0));
        bytes.extend([0xf0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(found(&bytes), [0x1000, 0x2000]);
    }

    #[test]
    fn any_fde_bytes_are_read_to_an_end() {
        for seed in 0_u64..200 {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8 & if seed % 2 == 0 { 7 } else { 0xff }
            };
            let bytes: Vec<u8> = (0..1000).map(|_| next()).collect();
            found(&bytes);
        }
    }

    /// A CIE of 1 MB for 40,000 functions. Parsing it for each function would take minutes.
    #[test]
    fn a_long_cie_is_parsed_once() {
        let begin = std::time::Instant::now();
        let mut bytes = cie(&format!("zR{}", "S".repeat(1 << 20)));
        for index in 0..40_000 {
            let back = bytes.len() + 4;
            bytes.extend(fde(back, 0x1000 + index * 16, 16));
        }
        assert_eq!(found(&bytes).len(), 40_000);
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }
}
