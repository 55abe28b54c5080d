//! `--format`: each one to a pipe and to a file, and names that nobody knows.

use super::{Mock, sampler};
use serde_json::Value;

/// Names, and how each begins.
const FORMATS: [(&str, &[u8]); 11] = [
    ("text", b"Memory allocated since attach"),
    ("folded", b"main;"),
    ("pprof", b"\x1f\x8b"),
    ("jeprof", b"heap profile: "),
    ("json", b"{\"kind\":\"alloc\","),
    ("svg", b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "),
    ("speedscope", b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","),
    ("csv", b"row,pid,alloc_space,alloc_space_low,alloc_space_high,"),
    ("firefox", b"{\"meta\":{"),
    // Field 1 of a trace, of the data of profiles.
    ("perfetto", b"\x0a"),
    ("otlp", b"\x0a"),
];

#[test]
fn an_output_file_equals_piped_output() {
    let mock = Mock::unix();
    let directory = tempfile::tempdir().unwrap();
    for (name, start) in FORMATS {
        let piped = sampler(&mock.address, &format!("profile --format {name}"));
        assert_eq!((piped.code, &*piped.stderr), (0, ""), "{name}");
        assert!(piped.stdout.starts_with(start), "{name}: {:?}", &piped.stdout[..80]);
        let file = directory.path().join(name);
        let saved =
            sampler(&mock.address, &format!("profile --format {name} -o {}", file.display()));
        assert!(saved.text().is_empty());
        assert!(std::fs::read(file).unwrap() == piped.stdout, "{name} differs in a file");
    }
}

#[test]
fn no_format_prints_terminal_controls_of_a_name() {
    let mock = Mock::unix();
    for (name, _) in FORMATS.into_iter().filter(|(name, _)| *name != "pprof" && *name != "otlp") {
        let out = sampler(&mock.address, &format!("profile --format {name}")).stdout;
        let escape = out.contains(&0x1b);
        // Perfetto's numbers may be any byte.
        let evil = out.windows(4).any(|bytes| bytes == b"\x1b[2J");
        assert!(!evil && (!escape || name == "perfetto"), "{name}");
    }
}

#[test]
fn formats_have_equal_totals() {
    let mock = Mock::unix();
    let text = |name: &str| {
        let out = sampler(&mock.address, &format!("profile --format {name}"));
        String::from_utf8(out.stdout).unwrap()
    };
    let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
    let profile = json("json");
    let space = |stack: &Value| stack["alloc_space"]["value"].as_f64().unwrap();
    let stacks = profile["stacks"].as_array().unwrap();
    let sum: f64 = stacks.iter().map(space).sum();
    let near =
        |name: &str, got: f64| assert!((got - sum).abs() <= stacks.len() as f64, "{name} {got}");
    let weights = |of: &Value| -> f64 {
        of.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).sum()
    };
    near("speedscope", weights(&json("speedscope")["profiles"][0]["weights"]));
    let threads = json("firefox")["threads"].clone();
    let threads = threads.as_array().unwrap().iter();
    near("firefox", threads.map(|of| weights(&of["nativeAllocations"]["weight"])).sum());
    let csv = text("csv");
    let rows = csv.lines().filter(|row| row.starts_with("stack,"));
    near("csv", rows.map(|row| row.split(',').nth(2).unwrap().parse::<f64>().unwrap()).sum());
    let svg = text("svg");
    let outermost = svg.lines().filter(|line| line.contains("data-d=\"1\""));
    let value = |line: &str| {
        let numbers = line.split_once("data-v=\"").unwrap().1;
        numbers.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    near("svg", outermost.map(value).sum());
}

#[test]
fn an_unknown_format_error_lists_the_known_ones() {
    let mock = Mock::unix();
    let ran = sampler(&mock.address, "profile --format gif");
    assert_eq!(ran.code, 2);
    for (name, _) in FORMATS {
        assert!(ran.stderr.contains(name), "{name} is not in {:?}", ran.stderr);
    }
    let help = sampler(&mock.address, "profile --help").text().to_owned();
    for (name, _) in FORMATS {
        assert!(help.contains(&format!("- {name}:")), "{name} is not in {help}");
    }
}
