//! The selection of processes by pid, command name, executable, control group or container.

use super::ProcessRecord;
use super::pattern::matches;
use std::fmt;

/// The properties by which a process is selected.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessIdentity<'a> {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: &'a str,
    /// Path of the executable.
    pub exe: &'a str,
    /// Path of the process's control group.
    pub cgroup: &'a str,
    /// Id or name of the process's container.
    pub container: &'a str,
}

impl ProcessRecord {
    /// The properties by which the process is selected.
    pub fn who(&self) -> ProcessIdentity<'_> {
        ProcessIdentity {
            pid: self.pid,
            comm: &self.comm,
            exe: &self.exe,
            cgroup: &self.origin.cgroup,
            container: &self.origin.container,
        }
    }
}

/// A criterion for the selection of processes. Its text is `pid:12`, `comm:postgres*`,
/// `exe:/usr/bin/…` or `cgroup:/system.slice/x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// The process id.
    Pid(u32),
    /// The command name, or a pattern for it (`*`, `?`).
    Comm(String),
    /// The path of the executable, or a pattern for it. Without a `/`, its file name.
    Exe(String),
    /// The control group. With a `/` in front: the path of the process's group or of a group above
    /// it. Otherwise the beginning of its container's id, the container's name, or one of the names
    /// in the group's path (`nginx.service`).
    Cgroup(String),
}

impl Criterion {
    /// Whether a process meets the criterion.
    pub fn matches(&self, who: ProcessIdentity<'_>) -> bool {
        match self {
            Criterion::Pid(pid) => who.pid == *pid,
            Criterion::Comm(pattern) => matches(pattern, who.comm),
            Criterion::Exe(pattern) if pattern.contains('/') => matches(pattern, who.exe),
            Criterion::Exe(pattern) => {
                matches(pattern, who.exe.rsplit('/').next().unwrap_or_default())
            }
            Criterion::Cgroup(wanted) => in_group(wanted, who),
        }
    }

    /// Parses the text of a criterion.
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Criterion, String> {
        let known = "try pid:12, comm:NAME, exe:PATH or cgroup:PATH";
        let (kind, value) = text.split_once(':').ok_or_else(|| format!("has no kind ({known})"))?;
        if value.is_empty() {
            return Err(format!("has no value behind {kind}: ({known})"));
        }
        match kind {
            "pid" => match value.parse() {
                Ok(pid) if pid > 0 => Ok(Criterion::Pid(pid)),
                _ => Err(format!("{value} is no process id ({known})")),
            },
            "comm" => Ok(Criterion::Comm(value.to_owned())),
            "exe" => Ok(Criterion::Exe(value.to_owned())),
            "cgroup" => Ok(Criterion::Cgroup(value.to_owned())),
            _ => Err(format!("{kind} is no kind ({known})")),
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Criterion::Pid(pid) => write!(f, "pid:{pid}"),
            Criterion::Comm(pattern) => write!(f, "comm:{pattern}"),
            Criterion::Exe(pattern) => write!(f, "exe:{pattern}"),
            Criterion::Cgroup(group) => write!(f, "cgroup:{group}"),
        }
    }
}

fn in_group(wanted: &str, who: ProcessIdentity<'_>) -> bool {
    if wanted.starts_with('/') {
        let wanted = wanted.trim_end_matches('/');
        let rest = who.cgroup.strip_prefix(wanted);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    let of_container = !who.container.is_empty() && who.container.starts_with(wanted);
    of_container || who.cgroup.split('/').any(|name| name == wanted)
}

/// Selected processes: those that meet one criterion of every kind that is given. Without criteria,
/// all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The criteria, of all kinds.
    pub criteria: Vec<Criterion>,
}

impl Selector {
    /// Selects these processes, or all if `pids` is empty.
    pub fn pids(pids: &[u32]) -> Selector {
        Selector { criteria: pids.iter().map(|pid| Criterion::Pid(*pid)).collect() }
    }

    /// Whether all processes are selected.
    pub fn is_all(&self) -> bool {
        self.criteria.is_empty()
    }

    /// Whether a process is selected.
    pub fn matches(&self, who: ProcessIdentity<'_>) -> bool {
        let kind = std::mem::discriminant::<Criterion>;
        self.criteria.iter().all(|one| {
            let same = self.criteria.iter().filter(|other| kind(other) == kind(one));
            same.into_iter().any(|criterion| criterion.matches(who))
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.criteria.iter().map(Criterion::to_string).collect();
        write!(f, "{}", all.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: ProcessIdentity<'_> = ProcessIdentity {
        pid: 7,
        comm: "postgres",
        exe: "/usr/lib/postgresql/15/bin/postgres",
        cgroup: "/system.slice/postgresql.service/main",
        container: "0123abcd",
    };

    fn is(text: &str) -> bool {
        Criterion::parse(text).unwrap().matches(WHO)
    }

    #[test]
    fn criteria_match_the_described_process() {
        for text in [
            "pid:7",
            "comm:postgres",
            "comm:post*",
            "comm:*gr?s",
            "exe:postgres",
            "exe:/usr/lib/*/bin/postgres",
            "cgroup:/system.slice",
            "cgroup:/system.slice/",
            "cgroup:/",
            "cgroup:/system.slice/postgresql.service/main",
            "cgroup:postgresql.service",
            "cgroup:0123",
        ] {
            assert!(is(text), "{text}");
            assert_eq!(Criterion::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "pid:70",
            "comm:post",
            "comm:Postgres",
            "exe:bin/postgres",
            "exe:postgresql",
            "cgroup:/system",
            "cgroup:/system.slice/postgresql",
            "cgroup:postgresql",
            "cgroup:123",
        ] {
            assert!(!is(text), "{text}");
        }
        for text in ["", "postgres", "pid:", "pid:x", "pid:0", "pid:-1", "user:root", "comm:"] {
            let error = Criterion::parse(text).unwrap_err();
            assert!(error.contains("comm:NAME") && !error.contains('\n'), "{error}");
        }
        // A process without a container is not in every container.
        let nowhere = ProcessIdentity { container: "", cgroup: "/", ..WHO };
        assert!(!Criterion::Cgroup("0".into()).matches(nowhere));
    }

    #[test]
    fn one_criterion_of_each_kind_must_match() {
        let select = |texts: &[&str]| {
            let criteria = texts.iter().map(|text| Criterion::parse(text).unwrap()).collect();
            Selector { criteria }.matches(WHO)
        };
        assert!(select(&[]));
        assert!(select(&["comm:redis", "comm:postgres"]));
        assert!(select(&["pid:8", "comm:postgres", "pid:7"]));
        assert!(!select(&["pid:8", "comm:postgres"]));
        assert!(!select(&["cgroup:/x", "comm:postgres"]));
    }
}
