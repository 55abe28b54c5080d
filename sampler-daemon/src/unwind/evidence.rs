//! The input on which an unwind depended. An unwind is a function of the program image, the
//! registers and the used words of the stack. If these are equal, the frames are equal, whatever
//! the rest of the stack holds.
//!
//! A word that was read is not necessarily used. Every frame saves callee-saved registers on the
//! stack. Their values are a program's data and change all the time, and most of them never lead to
//! a frame. So a word is recorded when its value decides something: a return address at once, a
//! saved register when an address is computed from it.

use sampler_common::limits::MAX_CACHED_WORDS;

/// Words and registers that have decided the frames of one unwind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Address and value of each word.
    words: Vec<(u64, u64)>,
    uses_bp: bool,
    is_lacking: bool,
}

impl Evidence {
    /// Words of the stack, by address and value, in the order of their use. `None` if the words are
    /// not all of the evidence: there were more than [`MAX_CACHED_WORDS`], or something else
    /// decided too.
    pub fn words(&self) -> Option<&[(u64, u64)]> {
        (!self.is_lacking).then_some(&self.words)
    }

    /// Whether the frame pointer of the call was used. In code without frame pointers it can be any
    /// number.
    pub fn uses_bp(&self) -> bool {
        self.uses_bp
    }

    /// Evidence of these words and nothing else.
    #[cfg(test)]
    pub(crate) fn of_words(words: &[(u64, u64)]) -> Evidence {
        Evidence { words: words.to_vec(), ..Evidence::default() }
    }

    /// Starts again without evidence.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        (self.uses_bp, self.is_lacking) = (false, false);
    }

    /// Records that the word at an address was used.
    pub(super) fn word(&mut self, address: u64, value: u64) {
        if self.words.iter().rev().any(|(known, _)| *known == address) {
            return;
        }
        if self.words.len() < MAX_CACHED_WORDS {
            self.words.push((address, value));
        } else {
            self.is_lacking = true;
        }
    }

    /// Records that the frame pointer of the call was used.
    pub(super) fn bp(&mut self) {
        self.uses_bp = true;
    }

    /// Records that something other than a word of the stack was used.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_lacking = true;
    }
}

#[cfg(test)]
mod tests;
