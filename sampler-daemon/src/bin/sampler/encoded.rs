//! A profile in the format that was asked for.

use crate::connect::{self, Address};
use crate::page;
use anyhow::{Result, bail};
use sampler_common::encode::Format;
use sampler_common::encode::text::Text;
use sampler_common::profile::Profile;
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::{self, GetProfileRequest};

/// Appends `profile` to `into`; the text has `top` functions and stacks, and colors where they are wanted.
pub(crate) fn append(
    profile: &Profile,
    format: Format,
    top: Option<u32>,
    color: bool,
    into: &mut Vec<u8>,
) -> Result<()> {
    let rows = top.map(|top| top as usize);
    let text = Text {
        width: page::width(),
        color,
        rows: rows.unwrap_or(Text::DEFAULT_ROWS),
        stacks: rows.unwrap_or(Text::DEFAULT_STACKS),
    };
    Ok(format.encoder(text).encode(profile, into)?)
}

/// What samplerd is asked for of a profile in a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimits {
    /// Stacks; `None`: all.
    top: Option<u32>,
    /// Functions, which samplerd sums over every stack.
    functions: u32,
}

impl RowLimits {
    /// `top` functions and stacks of a table, or its usual ones; of another format `top` stacks.
    pub(crate) fn of(format: Format, top: Option<u32>) -> RowLimits {
        match format {
            Format::Text => RowLimits::table(
                top.map_or(Text::DEFAULT_ROWS, |top| top as usize),
                top.map_or(Text::DEFAULT_STACKS, |top| top as usize),
            ),
            _ => RowLimits { top, functions: 0 },
        }
    }

    /// So many functions, and stacks.
    pub(crate) fn table(functions: usize, stacks: usize) -> RowLimits {
        // None at all would be all of them.
        let one = |of: usize| u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        RowLimits { top: Some(one(stacks)), functions: one(functions) }
    }

    /// A request for that, besides what `request` asks for.
    pub(crate) fn request(self, request: GetProfileRequest) -> GetProfileRequest {
        GetProfileRequest { top: self.top.unwrap_or(0), functions: self.functions, ..request }
    }

    /// The answer, checked.
    ///
    /// # Errors
    /// If samplerd sends what it should not, or is of before it summed functions.
    pub(crate) fn answer(self, address: &Address, answer: v1::Profile) -> Result<Profile> {
        let profile = connect::check(address, from_wire(answer))?;
        if self.functions > 0 && profile.functions.is_none() {
            bail!(
                "samplerd at {address} is older than this sampler (start a samplerd of the same version)"
            );
        }
        Ok(profile)
    }
}
