//! Encodes a profile in the requested format.

use crate::connect::{self, Address};
use crate::page;
use anyhow::{Result, bail};
use sampler_common::encode::Format;
use sampler_common::encode::text::Text;
use sampler_common::profile::Profile;
use sampler_common::units::grouped;
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::{self, GetProfileRequest};
use std::io::Write as _;

/// Appends `profile` to `into`. Text has as many rows as `limits` says, and colors if they are
/// wanted.
pub(crate) fn append(
    profile: &Profile,
    format: Format,
    limits: RowLimits,
    color: bool,
    into: &mut Vec<u8>,
) -> Result<()> {
    let (rows, stacks) = (limits.functions as usize, limits.stacks);
    let text = Text { width: page::width(), color, rows, stacks };
    format.encoder(text).encode(profile, into)?;
    if format == Format::Text && stacks == 0 && profile.stacks_total > 0 {
        let total = grouped(profile.stacks_total);
        writeln!(into, "stacks    {total}, not shown (--stacks shows the largest)")?;
    }
    Ok(())
}

/// The rows that a format needs from samplerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLimits {
    /// Maximum number of stacks; `None`: all.
    top: Option<u32>,
    /// Maximum number of functions. samplerd sums them over all stacks.
    functions: u32,
    /// Maximum number of stacks in a table.
    stacks: usize,
}

impl RowLimits {
    /// Returns the limits of a format. `top` limits the functions and stacks of a table, and the
    /// stacks of other formats. A table without `top` has the default numbers.
    pub(crate) fn of(format: Format, top: Option<u32>, has_stacks: bool) -> RowLimits {
        let or = |usual: usize| top.map_or(usual, |top| top as usize);
        match format {
            Format::Text if has_stacks => {
                RowLimits::table(or(Text::DEFAULT_ROWS), or(Text::DEFAULT_STACKS))
            }
            Format::Text => RowLimits::table(or(Text::DEFAULT_ROWS), 0),
            _ => RowLimits { top, functions: 0, stacks: 0 },
        }
    }

    /// Returns the limits of a table.
    pub(crate) fn table(functions: usize, stacks: usize) -> RowLimits {
        // samplerd reads 0 as "all", so at least one is requested.
        let one = |of: usize| u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        RowLimits { top: Some(one(stacks)), functions: one(functions), stacks }
    }

    /// Adds the limits to `request`.
    pub(crate) fn request(self, request: GetProfileRequest) -> GetProfileRequest {
        GetProfileRequest { top: self.top.unwrap_or(0), functions: self.functions, ..request }
    }

    /// Checks the answer to such a request.
    ///
    /// # Errors
    /// If samplerd sends an invalid profile, or is too old to sum functions.
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
