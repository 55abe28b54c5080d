//! The secret of this start.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;
use std::hint::black_box;

/// 128 random bits.
const BYTES: usize = 16;

/// What whoever wants to read must know. It is printed nowhere but in the URL at the start: there is no `Debug`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Another one than ever before, from the kernel.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub fn new() -> Result<Token, Errno> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        let mut text = String::with_capacity(2 * BYTES);
        for byte in bytes {
            // Into a string: it cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Token(text))
    }

    /// As it stands in the URL.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether this is it. How long that takes says nothing of where it differs.
    pub fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differences = own.iter().zip(given).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        own.len() == given.len() && differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_itself() {
        let (token, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(token.text().len() == 32 && token.text() != other.text());
        assert!(token.text().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(token.is(token.text()) && !token.is(other.text()));
        let text = token.text();
        for wrong in ["", &text[..31], &format!("{text}0"), &text.to_uppercase().replace('0', "O")]
        {
            // One of digits alone is the same in upper case.
            assert!(wrong == text || !token.is(wrong), "{wrong:?}");
        }
        for at in 0..32 {
            let mut wrong = text.to_owned().into_bytes();
            wrong[at] ^= 1;
            assert!(!token.is(std::str::from_utf8(&wrong).unwrap()));
        }
    }
}
