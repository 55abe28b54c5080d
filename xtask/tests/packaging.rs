//! The files of `packaging/` agree with each other, and with the version of the programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CONTAINERS: [&str; 2] =
    ["packaging/kubernetes/daemonset.yaml", "packaging/helm/templates/daemonset.yaml"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rest of the first line that begins with `begin`.
fn setting<'t>(text: &'t str, begin: &str) -> &'t str {
    let mut lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(begin));
    lines.next().unwrap_or_else(|| panic!("no {begin}"))
}

#[test]
fn a_container_has_the_capabilities_of_the_service() {
    let unit = read("packaging/samplerd.service");
    let names = setting(&unit, "CapabilityBoundingSet=").split(' ');
    let wanted: BTreeSet<&str> = names.map(|name| name.trim_start_matches("CAP_")).collect();
    for file in CONTAINERS {
        let text = read(file);
        let list = setting(&text, "add: [").trim_end_matches(']');
        let given: BTreeSet<&str> = list.split(", ").map(|name| name.trim_matches('"')).collect();
        assert_eq!(given, wanted, "{file}");
        assert_eq!(setting(&text, "drop: "), "[\"ALL\"]", "{file}");
    }
}

#[test]
fn every_file_names_the_version_of_the_programs() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read("packaging/helm/Chart.yaml");
    assert_eq!(setting(&chart, "version: "), version);
    assert_eq!(setting(&chart, "appVersion: "), version);
    let image = format!("sampler:{version}");
    assert_eq!(setting(&read(CONTAINERS[0]), "image: "), image);
    for (file, name) in [
        ("packaging/Dockerfile", image),
        ("docs/operations.md", format!("sampler_{version}_amd64.deb")),
        ("CHANGELOG.md", format!("\n## {version}\n")),
        ("sampler-ebpf/Cargo.toml", format!("\nversion = \"{version}\"\n")),
    ] {
        assert!(read(file).contains(&name), "{file} does not name {name}");
    }
}
