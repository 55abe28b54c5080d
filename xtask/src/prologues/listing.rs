//! objdump's listing of a library, as a second opinion on instruction boundaries and jumps.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::step;

/// Number of bytes from an entry on that are considered.
const REACH_BYTES: u64 = 80;

/// A disassembled library.
pub(super) struct Listing {
    /// Addresses of instructions.
    instructions: BTreeSet<u64>,
    /// Targets of jumps.
    targets: BTreeSet<u64>,
}

impl Listing {
    pub(super) fn of(path: &Path) -> Result<Listing> {
        let mut objdump = Command::new("objdump");
        objdump.args(["--disassemble", "--no-show-raw-insn", "--wide"]).arg(path);
        Ok(Listing::parse(&step::output(&mut objdump)?))
    }

    fn parse(text: &str) -> Listing {
        let mut listing = Listing { instructions: BTreeSet::new(), targets: BTreeSet::new() };
        for line in text.lines() {
            let Some((address, instruction)) = line.split_once(":\t") else { continue };
            let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
            listing.instructions.insert(address);
            if let Some(target) = target(instruction) {
                listing.targets.insert(target);
            }
        }
        listing
    }

    /// Lengths of the instructions from an entry on, each as one hexadecimal digit.
    pub(super) fn lengths(&self, entry: u64) -> String {
        let starts: Vec<&u64> = self.instructions.range(entry..entry + REACH_BYTES).collect();
        starts.windows(2).map(|pair| format!("{:x}", pair[1] - pair[0])).collect()
    }

    /// Offsets of jump targets from an entry. A jump to the entry itself is left out: it is another
    /// function's call.
    pub(super) fn entered(&self, entry: u64) -> Vec<u64> {
        self.targets.range(entry + 1..entry + REACH_BYTES).map(|target| target - entry).collect()
    }
}

/// Target of a direct jump, conditional or not.
fn target(instruction: &str) -> Option<u64> {
    let mut words = instruction.split_whitespace();
    let mnemonic = words.find(|word| !matches!(*word, "bnd" | "notrack"))?;
    let operand = words.next()?;
    let is_jump = mnemonic.starts_with('j') || mnemonic.starts_with("loop");
    is_jump.then(|| u64::from_str_radix(operand, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_jump_targets_are_read_from_a_listing() {
        let text = "\n98ef0 <free>:\n   98ef0:\ttest   %rdi,%rdi\n   98ef3:\tje     98ef9 <free+0x9>\n   98ef9:\tcall   98ef3 <free>\n   98efa:\tbnd jmp 98ef3 <free>\n   98f00:\tret\n";
        let listing = Listing::parse(text);
        assert_eq!(listing.lengths(0x98ef0), "3616");
        assert_eq!(listing.entered(0x98ef0), [3, 9]);
    }
}
