//! What an unwind depended on. It is a function of the program image, the registers and the words of the stack that it used: where those are
//! equal the frames are, whatever the rest of the stack holds.
//!
//! Used is not the same as read. Every frame has callee-saved registers on the stack, which are a program's data, another one each time; most of
//! them never lead to a frame. So a word is noted when its value decides something: a return address at once, a saved register when
//! an address is made of it.

use sampler_common::limits::KNOWN_WORDS;

/// Words and registers that have decided the frames of one unwind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Address and value.
    words: Vec<(u64, u64)>,
    uses_bp: bool,
    is_lacking: bool,
}

impl Evidence {
    /// Words of the stack, address and value, in the order of their use; `None` if they do not tell all: there were more than
    /// [`KNOWN_WORDS`], or something else had its part.
    pub fn words(&self) -> Option<&[(u64, u64)]> {
        (!self.is_lacking).then_some(&self.words)
    }

    /// Whether the frame pointer of the call had its part: without frame pointers it is any number.
    pub fn uses_bp(&self) -> bool {
        self.uses_bp
    }

    /// Of these words, and nothing else.
    #[cfg(test)]
    pub(crate) fn of_words(words: &[(u64, u64)]) -> Evidence {
        Evidence { words: words.to_vec(), ..Evidence::default() }
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.words.clear();
        (self.uses_bp, self.is_lacking) = (false, false);
    }

    /// The word at an address had its part.
    pub(super) fn word(&mut self, address: u64, value: u64) {
        if self.words.iter().rev().any(|(known, _)| *known == address) {
            return;
        }
        if self.words.len() < KNOWN_WORDS {
            self.words.push((address, value));
        } else {
            self.is_lacking = true;
        }
    }

    /// The frame pointer of the call had its part.
    pub(super) fn bp(&mut self) {
        self.uses_bp = true;
    }

    /// Something had its part that is no word of the stack.
    pub(crate) fn mark_incomplete(&mut self) {
        self.is_lacking = true;
    }
}

#[cfg(test)]
mod tests;
