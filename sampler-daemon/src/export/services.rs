//! Which service a process belongs to, and the facts of a service.
//!
//! A service is a systemd unit, a container, or a program: not a process, since backends keep a series for each, and pids come and go.

use super::label::Label;
use crate::pipeline::Program;
use rustc_hash::FxHashMap;
use sampler_common::encode::push::Attributes;
use std::time::{Duration, Instant};

/// Most services at a time: four series of each are below the 5,000 that Pyroscope takes of a tenant.
const MAX_SERVICES: usize = 256;
/// One that nothing was seen of for so long makes room for others.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Backends take values of 2,048 bytes.
const MAX_VALUE_BYTES: usize = 1024;
/// The service of what finds no room.
const OTHER: &str = "other";

/// The services that were seen.
pub(super) struct Services {
    host: String,
    labels: Vec<Label>,
    /// When each was last seen.
    seen: FxHashMap<Attributes, Instant>,
    max_services: usize,
}

impl Services {
    /// Of a host, with facts that all of them get.
    pub(super) fn new(host: String, labels: Vec<Label>) -> Services {
        Services { host, labels, seen: FxHashMap::default(), max_services: MAX_SERVICES }
    }

    /// The facts of the service that a program belongs to.
    pub(super) fn of(&mut self, program: &Program, now: Instant) -> Attributes {
        let attributes = self.attributes(program);
        if let Some(seen) = self.seen.get_mut(&attributes) {
            *seen = now;
            return attributes;
        }
        if self.seen.len() >= self.max_services {
            self.seen.retain(|_, seen| now.duration_since(*seen) < FORGOTTEN_AFTER);
        }
        if self.seen.len() >= self.max_services {
            return self.completed(vec![("service.name".to_owned(), OTHER.to_owned())]);
        }
        self.seen.insert(attributes.clone(), now);
        attributes
    }

    fn attributes(&self, program: &Program) -> Attributes {
        let path = program.exe.strip_suffix(" (deleted)").unwrap_or(&program.exe);
        let base = path.rsplit('/').next().unwrap_or_default();
        let name = unit(&program.cgroup)
            .or(Some(base).filter(|base| !base.is_empty()))
            .unwrap_or(&program.comm);
        let is_id = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let container = match is_id(&program.container) {
            true => "container.id",
            false => "container.name",
        };
        let all = [
            ("service.name", name),
            (container, program.container.as_str()),
            ("process.executable.name", base),
            ("process.executable.path", path),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_empty());
        self.completed(known.map(|(key, value)| (key.to_owned(), cut(value).to_owned())).collect())
    }

    /// With what all of them have. A label takes the place of a fact of its key.
    fn completed(&self, mut attributes: Attributes) -> Attributes {
        attributes.push(("host.name".to_owned(), self.host.clone()));
        attributes.retain(|(key, _)| self.labels.iter().all(|label| label.key != *key));
        attributes.extend(self.labels.iter().map(|of| (of.key.clone(), of.value.clone())));
        attributes
    }
}

/// The systemd service of a control group, without its suffix. That of a user's session is none: everything runs in it.
fn unit(cgroup: &str) -> Option<&str> {
    let unit = cgroup.rsplit('/').find_map(|name| name.strip_suffix(".service"))?;
    Some(unit).filter(|unit| !unit.is_empty() && !unit.starts_with("user@"))
}

fn cut(value: &str) -> &str {
    &value[..value.floor_char_boundary(MAX_VALUE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(labels: &[&str]) -> Services {
        let labels = labels.iter().map(|text| Label::parse(text).unwrap()).collect();
        Services::new("h".into(), labels)
    }

    fn program(exe: &str, cgroup: &str, container: &str) -> Program {
        let [exe, cgroup, container] = [exe, cgroup, container].map(str::to_owned);
        Program { exe, comm: "comm".into(), cgroup, container }
    }

    fn found(services: &mut Services, program: &Program) -> Vec<String> {
        let attributes = services.of(program, Instant::now());
        attributes.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn a_service_is_a_unit_a_container_or_a_program() {
        let id = "0123456789abcdef".repeat(4);
        for (exe, cgroup, container, expected) in [
            ("/usr/bin/redis", "/system.slice/redis-server.service", "", "redis-server"),
            ("/usr/bin/redis", "/system.slice/docker-1.scope", id.as_str(), "redis"),
            ("/usr/bin/vim (deleted)", "/user.slice/user@1000.service/app.slice", "", "vim"),
            ("", "/", "", "comm"),
        ] {
            let program = program(exe, cgroup, container);
            let attributes = found(&mut services(&[]), &program);
            assert_eq!(attributes[0], format!("service.name={expected}"));
            let has_id = attributes.contains(&format!("container.id={id}"));
            assert_eq!(has_id, !container.is_empty(), "{attributes:?}");
            assert_eq!(attributes.last().unwrap(), "host.name=h");
            assert!(attributes.iter().all(|of| !of.ends_with('=')), "{attributes:?}");
        }
    }

    #[test]
    fn a_label_takes_the_place_of_a_fact() {
        let mut services = services(&["service.name=mine", "env=test"]);
        let attributes = found(&mut services, &program("/x", "", ""));
        let names: Vec<_> = attributes.iter().filter(|of| of.starts_with("service.name")).collect();
        assert_eq!(names, ["service.name=mine"]);
        assert!(attributes.contains(&"env=test".to_owned()));
    }

    #[test]
    fn there_are_no_more_than_backends_take() {
        let mut services = Services { max_services: 3, ..services(&[]) };
        let begin = Instant::now();
        let mut name = |number: u64, at| {
            let program = program(&format!("/{number}{}", "x".repeat(3000)), "", "");
            let attributes = services.of(&program, begin + Duration::from_secs(at));
            assert!(attributes.iter().all(|(_, value)| value.len() <= MAX_VALUE_BYTES));
            attributes[0].1[..5].to_owned()
        };
        let names = [(1, 0), (2, 0), (3, 0), (4, 0), (1, 3000)].map(|(of, at)| name(of, at));
        assert_eq!(names, ["1xxxx", "2xxxx", "3xxxx", "other", "1xxxx"]);
        // The first one was seen meanwhile, the others were not.
        let names = [(4, 3700), (1, 3700), (5, 3700), (6, 3700)].map(|(of, at)| name(of, at));
        assert_eq!(names, ["4xxxx", "1xxxx", "5xxxx", "other"]);
    }
}
