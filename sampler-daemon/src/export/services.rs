//! The service that a process belongs to, and the attributes of a service.
//!
//! A service is what a process was given as `OTEL_SERVICE_NAME`, or a systemd unit, a container, or
//! a program. A process is no service: backends keep a
//! series for each service, and pids come and go.

use super::label::Label;
use crate::inspect::process::cgroup::pod_uid;
use crate::pipeline::Program;
use rustc_hash::FxHashMap;
use sampler_common::encode::push::Attributes;
use std::time::{Duration, Instant};

/// Maximum number of services at a time. Pyroscope accepts 5,000 series of a tenant; a service has
/// four.
const MAX_SERVICES: usize = 256;
/// A service without profiles for this time makes room for another service.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Maximum length of a value. Backends accept 2,048 bytes.
const MAX_VALUE_BYTES: usize = 1024;
/// The service of processes that find no room.
const OTHER: &str = "other";

/// The known services.
pub(super) struct Services {
    host: String,
    labels: Vec<Label>,
    /// The time when each service was last seen.
    seen: FxHashMap<Attributes, Instant>,
    max_services: usize,
}

impl Services {
    /// Creates an empty set for a host. All services get `labels`.
    pub(super) fn new(host: String, labels: Vec<Label>) -> Services {
        Services { host, labels, seen: FxHashMap::default(), max_services: MAX_SERVICES }
    }

    /// Returns the attributes of the service that a program belongs to. `build_id` is that of its
    /// executable, empty if unknown.
    pub(super) fn of(&mut self, program: &Program, build_id: &str, now: Instant) -> Attributes {
        let attributes = self.attributes(program, build_id);
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

    fn attributes(&self, program: &Program, build_id: &str) -> Attributes {
        let path = path(program);
        let base = path.rsplit('/').next().unwrap_or_default();
        let named = |name| Some(name).filter(|name: &&str| !name.is_empty());
        let name = named(&program.service)
            .or_else(|| unit(&program.cgroup))
            .or_else(|| named(base))
            .unwrap_or(&program.comm);
        let is_id = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let container = match is_id(&program.container) {
            true => "container.id",
            false => "container.name",
        };
        let pod = pod_uid(&program.cgroup).unwrap_or_default();
        let all = [
            ("service.name", name),
            (container, program.container.as_str()),
            ("k8s.pod.uid", &pod),
            ("process.executable.name", base),
            ("process.executable.path", path),
            ("process.executable.build_id.gnu", build_id),
        ];
        let known = all.into_iter().filter(|(_, value)| !value.is_empty());
        self.completed(known.map(|(key, value)| (key.to_owned(), cut(value).to_owned())).collect())
    }

    /// Adds the attributes of all services. A label replaces an attribute with the same key.
    fn completed(&self, mut attributes: Attributes) -> Attributes {
        attributes.push(("host.name".to_owned(), self.host.clone()));
        attributes.retain(|(key, _)| self.labels.iter().all(|label| label.key != *key));
        attributes.extend(self.labels.iter().map(|of| (of.key.clone(), of.value.clone())));
        attributes
    }
}

/// Returns the path of a program's executable.
pub(super) fn path(program: &Program) -> &str {
    program.exe.strip_suffix(" (deleted)").unwrap_or(&program.exe)
}

/// Returns the systemd service of a control group, without its suffix. A user's session is no
/// service: everything runs in it.
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
        Program { exe, comm: "comm".into(), cgroup, container, service: String::new() }
    }

    fn found(services: &mut Services, program: &Program) -> Vec<String> {
        let attributes = services.of(program, "01", Instant::now());
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
    fn a_service_in_a_pod_has_the_uid_of_the_pod() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "8d3f1b2c-1a2b-4c3d-9e8f-0123456789ab";
        let program = program("/usr/bin/redis", &format!("/kubepods/pod{uid}/{id}"), &id);
        let attributes = found(&mut services(&[]), &program);
        assert!(attributes.contains(&format!("k8s.pod.uid={uid}")), "{attributes:?}");
    }

    #[test]
    fn a_service_has_the_name_that_it_was_given() {
        let unnamed = program("/usr/bin/redis", "/system.slice/redis-server.service", "");
        let program = Program { service: "cart".into(), ..unnamed };
        assert_eq!(found(&mut services(&[]), &program)[0], "service.name=cart");
    }

    #[test]
    fn a_label_overrides_an_attribute_of_the_program() {
        let mut services = services(&["service.name=mine", "env=test"]);
        let attributes = found(&mut services, &program("/x", "", ""));
        let names: Vec<_> = attributes.iter().filter(|of| of.starts_with("service.name")).collect();
        assert_eq!(names, ["service.name=mine"]);
        assert!(attributes.contains(&"env=test".to_owned()));
    }

    #[test]
    fn the_number_of_services_is_bounded() {
        let mut services = Services { max_services: 3, ..services(&[]) };
        let begin = Instant::now();
        let mut name = |number: u64, at| {
            let program = program(&format!("/{number}{}", "x".repeat(3000)), "", "");
            let attributes = services.of(&program, "", begin + Duration::from_secs(at));
            assert!(attributes.iter().all(|(_, value)| value.len() <= MAX_VALUE_BYTES));
            attributes[0].1[..5].to_owned()
        };
        let names = [(1, 0), (2, 0), (3, 0), (4, 0), (1, 3000)].map(|(of, at)| name(of, at));
        assert_eq!(names, ["1xxxx", "2xxxx", "3xxxx", "other", "1xxxx"]);
        // Service 1 was seen recently, services 2 and 3 were not.
        let names = [(4, 3700), (1, 3700), (5, 3700), (6, 3700)].map(|(of, at)| name(of, at));
        assert_eq!(names, ["4xxxx", "1xxxx", "5xxxx", "other"]);
    }
}
