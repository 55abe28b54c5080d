//! Attributes that the command line gives to every service.

/// Maximum number of labels. Backends accept 30 labels a series, and samplerd adds some of its own.
pub const MAX_LABELS: usize = 16;
/// Maximum length of a value. Backends accept 2,048 bytes.
const MAX_VALUE_BYTES: usize = 1024;
const MAX_KEY_BYTES: usize = 128;

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The attribute's name, `deployment.environment` for example.
    pub key: String,
    /// The attribute's value.
    pub value: String,
}

impl Label {
    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Label, String> {
        let (key, value) = text.split_once('=').ok_or("is no label (try KEY=VALUE)")?;
        let is_key = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.chars().all(is_key) {
            return Err("has no key before the = (letters, digits and . _ - /)".into());
        }
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || value.chars().any(char::is_control)
        {
            return Err(format!(
                "has no value behind the = (1 to {MAX_VALUE_BYTES} bytes of text)"
            ));
        }
        Ok(Label { key: key.to_owned(), value: value.to_owned() })
    }

    /// Checks a set of labels.
    ///
    /// # Errors
    /// One line, if there are too many labels or two labels with one key.
    pub fn check(labels: &[Label]) -> Result<(), String> {
        if labels.len() > MAX_LABELS {
            let given = labels.len();
            return Err(format!("--export-label: given {given} times (at most {MAX_LABELS})"));
        }
        let twice = labels
            .iter()
            .enumerate()
            .find(|(at, of)| labels[..*at].iter().any(|other| other.key == of.key));
        match twice {
            Some((_, of)) => {
                Err(format!("--export-label: {} is given twice (give each key once)", of.key))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_parsed_and_limited() {
        let label = Label::parse("deployment.environment=a=b c").unwrap();
        assert_eq!((label.key.as_str(), label.value.as_str()), ("deployment.environment", "a=b c"));
        for text in ["", "x", "=y", "x=", "a b=c", "ä=c", "x=\n"] {
            assert!(!Label::parse(text).unwrap_err().contains('\n'), "{text:?}");
        }
        let of = |number: usize| Label { key: number.to_string(), value: "x".into() };
        let labels: Vec<Label> = (0..MAX_LABELS).map(of).collect();
        assert_eq!(Label::check(&labels), Ok(()));
        assert!(Label::check(&[labels, vec![of(99)]].concat()).unwrap_err().contains("17 times"));
        assert!(Label::check(&[of(1), of(2), of(1)]).unwrap_err().contains("1 is given twice"));
    }
}
