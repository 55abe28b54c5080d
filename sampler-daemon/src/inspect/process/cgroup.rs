//! The control group of a process, and the container that its path names.
//!
//! References: cgroups(7), "/proc/PID/cgroup"; the group names that docker, containerd, CRI-O,
//! podman, systemd-nspawn and LXC give to their containers.

use std::fs;

/// Hexadecimal digits of a container id.
const ID: usize = 64;
/// Hierarchies of version 1, in the order of their use if version 2 gives no group.
const HIERARCHIES: [&str; 4] = ["memory", "name=systemd", "pids", "cpu"];

/// The group and the container of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Path of the group, as our own cgroup namespace shows it. The path of version 2 is used,
    /// unless it is the root and a hierarchy of version 1 has a path other than the root.
    pub path: String,
    /// Id (64 hex digits) or name of the container; empty if none is recognized.
    pub container: String,
}

/// The group of process `pid`; empty if the process is gone.
pub fn read(pid: u32) -> Cgroup {
    parse(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
}

/// Parses lines of `HIERARCHY:CONTROLLERS:PATH`.
pub(in crate::inspect) fn parse(text: &str) -> Cgroup {
    let groups: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .map(|(controllers, path)| (controllers, path.trim_end_matches(" (deleted)")))
        .collect();
    let of = |wanted: &str| {
        let group = groups.iter().find(|(controllers, _)| {
            *controllers == wanted || controllers.split(',').any(|of| of == wanted)
        });
        group.map(|(_, path)| *path)
    };
    let unified = of("");
    let telling = [""].into_iter().chain(HIERARCHIES).filter_map(of);
    let path = telling.into_iter().find(|path| *path != "/").or(unified).unwrap_or("/");
    let container = std::iter::once(path).chain(groups.iter().map(|(_, path)| *path));
    let container = container.filter_map(container_of).next().unwrap_or_default();
    match groups.is_empty() {
        true => Cgroup::default(),
        false => Cgroup { path: path.to_owned(), container },
    }
}

/// The innermost container in a path.
fn container_of(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').peekable();
    while let Some(part) = parts.next() {
        let unit = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".service"));
        let name = unit.unwrap_or(part);
        // The group of a container's monitor is not in the container.
        if name.contains("conmon") {
            continue;
        }
        if let Some(id) = id_of(name) {
            return Some(id.to_owned());
        }
        let machine = name
            .strip_prefix("lxc.payload.")
            .or_else(|| name.strip_prefix("systemd-nspawn@"))
            .or_else(|| unit.and(name.strip_prefix("machine-")))
            .or_else(|| (parts.peek() == Some(&"lxc")).then_some(name));
        if let Some(machine) = machine.filter(|machine| !machine.is_empty()) {
            return Some(unescaped(machine));
        }
    }
    None
}

/// The uid of the Kubernetes pod in the path of a group: the part `podUID` that the kubelet's
/// cgroupfs driver makes, or the slice `…-podUID.slice` of its systemd driver, which writes `_` for
/// `-`. A static pod has a hash of 32 digits as its uid. A path shows neither name nor namespace.
///
/// Reference: kubelet's `pkg/kubelet/cm`, `GetPodContainerName` and `ToSystemd`.
pub fn pod_uid(path: &str) -> Option<String> {
    // containerd without a driver for systemd writes `SLICE:cri-containerd:ID`.
    path.rsplit(['/', ':']).find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let (before, uid) = part.rsplit_once("pod")?;
        let uid = uid.replace('_', "-");
        let is_named = before.is_empty() || before.ends_with('-');
        (is_named && is_uid(&uid)).then_some(uid)
    })
}

/// Whether a text is a UUID, or 32 hexadecimal digits.
fn is_uid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    is_hex && (groups == [8, 4, 4, 4, 12] || groups == [32])
}

/// The id in `docker-ID`, `cri-containerd-ID`, `crio-ID`, `libpod-ID`, `RUNTIME:ID`, or in a name
/// that is only the id.
fn id_of(name: &str) -> Option<&str> {
    let id = name.rsplit(['-', ':']).next()?;
    let is_hex = id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (id.len() == ID && is_hex).then_some(id)
}

/// The name as it was before systemd wrote `-` as `\x2d`.
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn of(path: &str) -> Cgroup {
        parse(&format!("0::{}\n", path.replace("ID", HEX)))
    }

    #[test]
    fn containers_are_recognized_by_the_names_of_their_groups() {
        for path in [
            "/system.slice/docker-ID.scope",
            "/docker/ID",
            "/docker/ID/system.slice/cron.service",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_5.slice/cri-containerd-ID.scope",
            "/kubepods/besteffort/pod8d3f-11/ID",
            "/kubepods.slice/kubepods-pod1.slice/crio-ID.scope/container",
            "/machine.slice/libpod-ID.scope",
            "/user.slice/user-0.slice/user@0.service/user.slice/libpod-ID.scope/container",
            "/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:ID",
            "/ecs/task/ID",
        ] {
            let group = of(path);
            assert_eq!(group.container, HEX, "{path}");
            assert_eq!(group.path, path.replace("ID", HEX));
        }
        for (path, name) in [
            ("/lxc/web1", "web1"),
            ("/lxc.payload.web1/init.scope", "web1"),
            ("/machine.slice/systemd-nspawn@build\\x2dhost.service", "build-host"),
            ("/machine.slice/machine-build\\x2dhost.scope", "build-host"),
        ] {
            assert_eq!(of(path).container, name, "{path}");
        }
    }

    #[test]
    fn groups_without_a_container_have_no_id() {
        for path in [
            "/",
            "/init.scope",
            "/system.slice/nginx.service",
            "/user.slice/user-0.slice/session-1.scope",
            "/machine.slice/libpod-conmon-ID.scope",
            "/lxc.monitor.web1",
            "/docker/0123456789abcdef",
            "/docker/ID0",
            "/docker/XID",
        ] {
            assert_eq!(of(path).container, "", "{path}");
        }
        assert_eq!(parse(""), Cgroup::default());
        assert_eq!(parse("nonsense\n0:\n"), Cgroup::default());
    }

    #[test]
    fn pods_are_recognized_by_the_groups_of_both_drivers() {
        const UID: &str = "8d3f1b2c-1a2b-4c3d-9e8f-0123456789ab";
        const SLICE: &str = "8d3f1b2c_1a2b_4c3d_9e8f_0123456789ab";
        for path in [
            // cgroupfs, of all three classes
            "/kubepods/podUID/ID",
            "/kubepods/burstable/podUID/ID",
            "/kubepods/besteffort/podUID/ID/nested",
            // systemd, with containerd, CRI-O and docker
            "/kubepods.slice/kubepods-podSLICE.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSLICE.slice/crio-ID.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podSLICE.slice/docker-ID.scope",
            "/system.slice/containerd.service/kubepods-burstable-podSLICE.slice:cri-containerd:ID",
            // a kubelet in a container, and a path as another namespace shows it
            "/docker/ID/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podSLICE.slice/cri-containerd-ID.scope",
            "/../../kubepods-besteffort-podSLICE.slice/cri-containerd-ID.scope",
        ] {
            let path = path.replace("UID", UID).replace("SLICE", SLICE).replace("ID", HEX);
            assert_eq!(pod_uid(&path).as_deref(), Some(UID), "{path}");
            // The line of version 1 has the same path.
            let v1 = parse(&format!("11:memory:{path}\n1:name=systemd:{path}\n0::/\n"));
            assert_eq!((v1.path.as_str(), v1.container.as_str()), (path.as_str(), HEX));
        }
        let hash = &HEX[..32];
        let static_pod = format!("/kubepods/burstable/pod{hash}/{HEX}");
        assert_eq!(pod_uid(&static_pod).as_deref(), Some(hash));
        for path in [
            "/",
            "/kubepods.slice",
            "/system.slice/podman.service",
            "/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope",
            "/kubepods/pod8d3f1b2c/ID",
            "/kubepods/xpodUID/ID",
            "/kubepods/podUIDx/ID",
        ] {
            assert_eq!(pod_uid(&path.replace("UID", UID).replace("ID", HEX)), None, "{path}");
        }
    }

    #[test]
    fn cgroup_v1_is_used_where_v2_has_the_root() {
        let v1 = "9:name=systemd:/a\n8:pids:/\n4:cpu,memory:/b\n0::/\n";
        assert_eq!(parse(v1).path, "/b");
        assert_eq!(parse("4:memory:/b\n0::/c\n").path, "/c");
        assert_eq!(parse("9:name=systemd:/\n0::/\n").path, "/");
        assert_eq!(parse("3:cpuset:/\n1:name=systemd:/s (deleted)\n").path, "/s");
        let hybrid = format!("4:memory:/docker/{HEX}\n0::/system.slice/x.service\n");
        let hybrid = parse(&hybrid);
        assert_eq!(
            (hybrid.path.as_str(), hybrid.container.as_str()),
            ("/system.slice/x.service", HEX)
        );
    }

    #[test]
    fn the_cgroup_of_this_process_is_read() {
        assert!(read(std::process::id()).path.starts_with('/'));
    }
}
