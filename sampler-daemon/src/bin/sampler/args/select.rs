//! Options that choose processes.

use clap::Args as Group;
use clap::builder::NonEmptyStringValueParser;
use sampler_daemon::pid_argument::parse_pid;
use sampler_daemon::rpc::v1::ProcessSelector;

/// Processes: any of one kind, and of every kind that is given.
#[derive(Clone, Debug, Default, Group)]
pub(crate) struct Select {
    /// Only this process; may be repeated [default: all]
    #[arg(long = "pid", value_name = "PID", value_parser = parse_pid)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) pids: Vec<u32>,
    /// Only processes with this command name; may be a pattern ('cc1*', with * and ?) and repeated
    #[arg(long = "comm", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    comms: Vec<String>,
    /// Only processes of this executable: a path, a file name, or a pattern of either; may be repeated
    #[arg(long = "exe", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    exes: Vec<String>,
    /// Only processes in this control group and below (/system.slice/nginx.service), in a container (by the beginning of its id) or
    /// unit (nginx.service); may be repeated
    #[arg(long = "cgroup", value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    cgroups: Vec<String>,
}

impl Select {
    /// Returns the selector without pids; `None` if it chooses nothing else.
    pub(crate) fn without_pids(&self) -> Option<ProcessSelector> {
        let selector = ProcessSelector { pids: vec![], ..self.selector() };
        (selector != ProcessSelector::default()).then_some(selector)
    }

    /// Returns the whole selector.
    pub(crate) fn selector(&self) -> ProcessSelector {
        ProcessSelector {
            pids: self.pids.clone(),
            comms: self.comms.clone(),
            exes: self.exes.clone(),
            cgroups: self.cgroups.clone(),
        }
    }
}
