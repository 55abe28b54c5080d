//! Options that choose stacks and frames by name.

use clap::Args as Group;
use regex::Regex;
use sampler_common::profile::Profile;

/// Which stacks and frames are shown. A name is a function, a source file or a mapped file.
#[derive(Group)]
pub(crate) struct Frames {
    /// Only stacks in which REGEX matches a function, a source file or a mapped file
    #[arg(long, value_name = "REGEX", value_parser = regex, allow_hyphen_values = true)]
    focus: Option<Regex>,
    /// Leave out frames in which REGEX matches a function, a source file or a mapped file; their
    /// callers have their bytes
    #[arg(long, value_name = "REGEX", value_parser = regex, allow_hyphen_values = true)]
    hide: Option<Regex>,
}

fn regex(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("is empty, which matches everything (give a part of a name)".to_owned());
    }
    // The error of the crate draws the place on lines of its own; its last line has the reason.
    Regex::new(text).map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().next_back().unwrap_or(&text).trim_start_matches("error: ");
        format!("is no regular expression: {reason} (a backslash makes a character literal)")
    })
}

impl Frames {
    /// Whether stacks or frames are chosen.
    pub(crate) fn is_given(&self) -> bool {
        self.focus.is_some() || self.hide.is_some()
    }

    /// Cuts the profile to the chosen stacks and frames.
    pub(crate) fn choose(&self, profile: &mut Profile) {
        if let Some(focus) = &self.focus {
            profile.focus(focus.as_str(), |name| focus.is_match(name));
        }
        if let Some(hide) = &self.hide {
            profile.hide(|name| hide.is_match(name));
        }
    }
}
