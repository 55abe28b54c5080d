//! What a daemon with a configuration can report, and why it cannot report the rest. All refusals
//! are made here.

use crate::bpf::Settings;
use crate::pipeline::config::Config;
use sampler_common::profile::Kind;
use sampler_common::windows::Budget;

/// The alternative in a refusal of a kind.
const OTHER_KIND: &str = "use kind alloc, or ";

/// The parts of the configuration that decide what is available.
pub(super) struct Capabilities {
    windows: Option<Budget>,
    track_live: bool,
    mappings: bool,
}

impl Config {
    /// What a daemon with this configuration can report.
    pub(super) fn capabilities(&self) -> Capabilities {
        let Settings { track_live, mappings, .. } = self.settings;
        Capabilities { windows: self.windows, track_live, mappings }
    }
}

impl Capabilities {
    /// Whether there are profiles of this kind; otherwise why not, in one line.
    pub(super) fn kind(&self, kind: Kind) -> Result<(), String> {
        let what = format!("kind {}", kind.name());
        match kind {
            Kind::Alloc => Ok(()),
            Kind::Live | Kind::Peak => self.followed(&what, OTHER_KIND),
            Kind::Mapped if self.windows.is_some() => {
                self.since_attach(&what, "mapping", OTHER_KIND)
            }
            Kind::Mapped if !self.mappings => {
                Err(format!("{what}: not followed (start samplerd without --no-mappings)"))
            }
            Kind::Mapped => Ok(()),
        }
    }

    /// Whether frees are known, which `what` needs; otherwise why not.
    pub(super) fn frees(&self, what: &str) -> Result<(), String> {
        self.followed(what, "")
    }

    fn followed(&self, what: &str, instead: &str) -> Result<(), String> {
        self.since_attach(what, "free", instead)?;
        match self.track_live {
            true => Ok(()),
            false => Err(format!(
                "{what}: frees are not probed, so nobody knows (start samplerd without --no-live)"
            )),
        }
    }

    /// Whether all allocations of a time are seen, which `what` needs; otherwise why not.
    pub(super) fn whole(&self, what: &str) -> Result<(), String> {
        let Some(why) = self.sees_windows_only() else { return Ok(()) };
        Err(format!(
            "{what} needs all allocations of a time: {why} (leave it out, or start samplerd without --windows)"
        ))
    }

    /// What is not available, by name, and why.
    pub(super) fn unsupported(&self) -> Vec<(&'static str, String)> {
        let kinds = [Kind::Live, Kind::Alloc, Kind::Peak, Kind::Mapped];
        let kinds = kinds.into_iter().map(|of| (of.name(), self.kind(of)));
        let views = [
            ("history", self.whole("a history")),
            ("leaks", self.frees("leaks")),
            ("lifetimes", self.frees("lifetimes")),
        ];
        kinds.chain(views).filter_map(|(name, of)| Some((name, of.err()?))).collect()
    }

    fn since_attach(&self, what: &str, event: &str, instead: &str) -> Result<(), String> {
        let Some(why) = self.sees_windows_only() else { return Ok(()) };
        Err(format!(
            "{what}: every {event} since attach would have to be seen: {why} ({instead}start samplerd without --windows)"
        ))
    }

    /// Why only windows are seen, if so.
    fn sees_windows_only(&self) -> Option<String> {
        let budget = self.windows?;
        Some(format!(
            "samplerd runs with --windows {budget}, and sees allocations in short windows only"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(capabilities: Capabilities) -> Vec<&'static str> {
        capabilities.unsupported().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn each_option_disables_its_capabilities() {
        let all = || Capabilities { windows: None, track_live: true, mappings: true };
        assert!(names(all()).is_empty());
        let held = ["live", "peak", "leaks", "lifetimes"];
        assert_eq!(names(Capabilities { track_live: false, ..all() }), held);
        assert_eq!(names(Capabilities { mappings: false, ..all() }), ["mapped"]);
        let windows = Budget::parse("1%").ok();
        let none = ["live", "peak", "mapped", "history", "leaks", "lifetimes"];
        assert_eq!(names(Capabilities { windows, ..all() }), none);
    }

    #[test]
    fn reasons_are_one_line_with_a_remedy() {
        let windows = Budget::parse("1%").ok();
        let capabilities = [
            Capabilities { windows, track_live: false, mappings: false },
            Capabilities { windows: None, track_live: false, mappings: false },
        ];
        for (_, why) in capabilities.iter().flat_map(Capabilities::unsupported) {
            assert!(!why.contains('\n') && why.contains("start samplerd without --"), "{why}");
        }
    }
}
