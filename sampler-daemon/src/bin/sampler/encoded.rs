//! Encodes a profile in the requested format.

use crate::args::Frames;
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
    limits: RowLimits<'_>,
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
#[derive(Clone, Copy)]
pub(crate) struct RowLimits<'a> {
    /// Maximum number of stacks; `None`: all.
    top: Option<u32>,
    /// Maximum number of functions. samplerd sums them over all stacks.
    functions: u32,
    /// Maximum number of stacks in a table.
    stacks: usize,
    /// Stacks and frames chosen by name. Names are chosen here, in what samplerd sends.
    frames: Option<&'a Frames>,
}

impl<'a> RowLimits<'a> {
    /// Returns the limits of a format. `top` limits the functions and stacks of a table, and the
    /// stacks of other formats. A table without `top` has the default numbers.
    pub(crate) fn of(format: Format, top: Option<u32>, has_stacks: bool) -> RowLimits<'a> {
        let or = |usual: usize| top.map_or(usual, |top| top as usize);
        match format {
            Format::Text if has_stacks => {
                RowLimits::table(or(Text::DEFAULT_ROWS), or(Text::DEFAULT_STACKS))
            }
            Format::Text => RowLimits::table(or(Text::DEFAULT_ROWS), 0),
            _ => RowLimits { top, functions: 0, stacks: 0, frames: None },
        }
    }

    /// Returns the limits of a table.
    pub(crate) fn table(functions: usize, stacks: usize) -> RowLimits<'a> {
        // samplerd reads 0 as "all", so at least one is requested.
        let one = |of: usize| u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        RowLimits { top: Some(one(stacks)), functions: one(functions), stacks, frames: None }
    }

    /// Adds a choice of stacks and frames by name, which needs every stack.
    pub(crate) fn with(self, frames: &'a Frames) -> RowLimits<'a> {
        RowLimits { frames: Some(frames).filter(|frames| frames.is_given()), ..self }
    }

    /// Adds the limits to `request`.
    pub(crate) fn request(self, request: GetProfileRequest) -> GetProfileRequest {
        let (top, functions) = match self.frames {
            Some(_) => (0, 0),
            None => (self.top.unwrap_or(0), self.functions),
        };
        GetProfileRequest { top, functions, ..request }
    }

    /// Checks the answer to such a request.
    ///
    /// # Errors
    /// If samplerd sends an invalid profile, or is too old to sum functions.
    pub(crate) fn answer(self, address: &Address, answer: v1::Profile) -> Result<Profile> {
        let mut profile = connect::check(address, from_wire(answer))?;
        if let Some(frames) = self.frames {
            frames.choose(&mut profile);
            // A table sums its functions over every stack.
            if let Some(top) = self.top.filter(|_| self.functions == 0) {
                profile.keep_largest(top as usize);
            }
            return Ok(profile);
        }
        if self.functions > 0 && profile.functions.is_none() {
            bail!(
                "samplerd at {address} is older than this sampler (start a samplerd of the same version)"
            );
        }
        Ok(profile)
    }
}
