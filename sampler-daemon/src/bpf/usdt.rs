//! Attaches to the USDT probes of processes that sample by themselves. A probe's arguments may be
//! in any register or memory place, which the map `SITES` describes.

use super::guardian::{Attacher, Link, all_or_none};
use super::object::ProgramText;
use super::request::{Hook, Kind, Point, Request};
use super::sys;
use anyhow::{Context as _, anyhow};
use aya::Pod;
use aya::maps::{Array, MapData};
use sampler_common::limits::MAX_SITES;
use sampler_common::wire::{Cookie, Role, SITE_ARGUMENTS, Site};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// [`Site`] as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct SiteValue(Site);

// SAFETY: `repr(C)` integers with explicit padding; every bit pattern is a value.
#[allow(unsafe_code, reason = "marks plain data")]
unsafe impl Pod for SiteValue {}

/// A USDT probe to attach to.
#[derive(Clone, Copy, Debug)]
pub struct UsdtPoint {
    /// [`Role::OtelAlloc`], [`Role::OtelFree`] or [`Role::LibraryEnded`].
    pub role: Role,
    /// File offset of the probe.
    pub offset: u64,
    /// File offset of the probe's semaphore.
    pub semaphore: Option<u64>,
    /// Places of the probe's arguments.
    pub site: Site,
    /// Whether the probe lies in our own preloaded library.
    pub is_in_library: bool,
}

/// The programs and the map `SITES`.
pub struct UsdtPrograms {
    allocate: OwnedFd,
    free: OwnedFd,
    attacher: Attacher,
    sites: Array<MapData, SiteValue>,
    /// Numbers of the sites in the map. Sites are never removed: programs may still be using them.
    numbers: HashMap<Site, u32>,
}

impl UsdtPrograms {
    pub(super) fn load(
        text: &ProgramText,
        attacher: Attacher,
        sites: Array<MapData, SiteValue>,
    ) -> anyhow::Result<UsdtPrograms> {
        let programs = ["otel_alloc", "otel_free"].map(|name| (name, sys::ATTACH_MULTI));
        let [allocate, free] = text.load_all(programs)?;
        Ok(UsdtPrograms { allocate, free, attacher, sites, numbers: HashMap::new() })
    }

    /// Attaches to `points` of `file` in process `pid` (`None`: in every process) with `slot` in
    /// the cookies. Frees are attached first, so that no free is missed. On an error nothing stays
    /// attached.
    ///
    /// # Errors
    /// If the kernel refuses, or if the arguments have more different places than the map has
    /// entries.
    pub fn attach(
        &mut self,
        file: &File,
        pid: Option<u32>,
        slot: u32,
        points: &[UsdtPoint],
    ) -> anyhow::Result<Vec<Link>> {
        let (mut freeing, mut allocating) = (Vec::new(), Vec::new());
        for point in points {
            let site = self.number(point.role, point.site)?;
            let cookie = Cookie::new(slot, point.role).at_site(site);
            let cookie = if point.is_in_library { cookie.in_library() } else { cookie }.0;
            let counter = point.semaphore.unwrap_or(0);
            let list = if point.role == Role::OtelFree { &mut freeing } else { &mut allocating };
            list.push(Point { offset: point.offset, cookie, counter });
        }
        all_or_none(|links| {
            for (program, points) in [(&self.free, &freeing), (&self.allocate, &allocating)] {
                if points.is_empty() {
                    continue;
                }
                let (program, file) = (program.as_fd(), file.as_fd());
                let kind = Kind::Multi(Hook::Entry);
                let request = Request { program, kind, file, pid, points };
                let what = || format!("attach to {} probes of a sampler", points.len());
                self.attacher.attach(&request, links).with_context(what)?;
            }
            Ok(())
        })
    }

    fn number(&mut self, role: Role, site: Site) -> anyhow::Result<u32> {
        let read = if role == Role::OtelAlloc { SITE_ARGUMENTS } else { 1 };
        if site.is_as_of_functions(read) {
            return Ok(Site::FUNCTION_REGISTERS);
        }
        if let Some(number) = self.numbers.get(&site) {
            return Ok(*number);
        }
        let number = self.numbers.len() as u32;
        if number >= MAX_SITES {
            return Err(anyhow!("arguments of USDTs in more than {MAX_SITES} different places"));
        }
        self.sites
            .set(number, SiteValue(site), 0)
            .with_context(|| format!("enter USDT arguments as number {number}"))?;
        self.numbers.insert(site, number);
        Ok(number)
    }
}
