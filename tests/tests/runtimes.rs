//! Names of the code of runtimes, as the table in `docs/runtimes.md` says: what is seen, and which
//! command or option a profile names.

use anyhow::{Context, Result, ensure};
use sampler_tests::pid_namespace::{child_of, innermost_pid};
use sampler_tests::{Daemon, Profile, Workload};
use std::fs;
use std::process::Command;

const ARGUMENTS: &[&str] = &["--interval", "4096"];

fn source(name: &str) -> String {
    format!("{}/workloads/runtimes/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The notes of a profile that contain a text.
fn notes<'a>(profile: &'a Profile, text: &str) -> Vec<&'a str> {
    let notes = profile.json["notes"].as_array().map_or(&[][..], Vec::as_slice);
    notes.iter().filter_map(|note| note.as_str()).filter(|note| note.contains(text)).collect()
}

fn has_frame(profile: &Profile, text: &str) -> bool {
    profile.stacks.iter().any(|stack| stack.frames.iter().any(|frame| frame.contains(text)))
}

/// Checks that a profile of the process has a note with this text. Returns the note.
fn says(daemon: &Daemon, text: &str) -> Result<String> {
    let has_note = |profile: &Profile| !notes(profile, text).is_empty();
    let what = format!("a note with {text}");
    let profile = daemon.profile_where(&what, "alloc", &[], has_note)?;
    // The text format has the note, too.
    let printed = daemon.sampler(&["profile", "--kind", "alloc"])?.success("profile")?.stdout;
    let printed = String::from_utf8(printed)?.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(printed.contains(text), "{text} is not in {printed}");
    Ok(notes(&profile, text)[0].to_owned())
}

/// A running runtime; its perf map is removed in the end.
struct Runtime {
    workload: Workload,
    /// The process, if it is a child of the workload.
    pid: u32,
}

impl Runtime {
    fn start(name: &str, command: &mut Command) -> Result<Runtime> {
        let workload = Workload::spawn(name, command)?;
        Ok(Runtime { pid: workload.pid(), workload })
    }

    fn end(mut self) -> Result<()> {
        // The end of its standard input is its sign to end.
        self.workload.child().close_stdin();
        let status = self.workload.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.pid));
    }
}

/// The end of the note on stacks that end early.
const KEEP_FRAMES: &str = "(start Java with -XX:+PreserveFramePointer)";

/// Without frame pointers a stack ends at the second Java function.
const JAVA_OPTIONS: [&str; 2] = ["-XX:+PreserveFramePointer", "-Xmx256m"];

/// Checks that the command that the note names gives names.
fn java_is_named(daemon: &Daemon, pid: u32) -> Result<()> {
    // Code that the JVM compiles later needs the command again.
    daemon.profile_where("a Java function", "alloc", &[], |profile| {
        let said = Command::new("jcmd").args([&pid.to_string(), "Compiler.perfmap"]).output();
        said.is_ok_and(|said| said.status.success())
            && has_frame(profile, "Direct.outer(int)")
            && has_frame(profile, "JavaMain")
    })?;
    Ok(())
}

#[test]
#[ignore = "it takes a JDK: cargo xtask test --long installs one"]
fn a_jvm_gets_names_by_the_command_that_a_note_names() -> Result<()> {
    let mut command = Command::new("java");
    command.args(JAVA_OPTIONS).arg(source("Direct.java"));
    let java = Runtime::start("java (apt-get install openjdk-17-jdk-headless)", &mut command)?;
    let daemon = Daemon::start(&[java.pid], ARGUMENTS)?;
    let note = says(&daemon, "Compiler.perfmap")?;
    let expected =
        format!("pid {0}: Java code has no names: run jcmd {0} Compiler.perfmap", java.pid);
    ensure!(note == expected, "{note}");
    java_is_named(&daemon, java.pid)?;
    let cut = daemon.profile("alloc", &[])?;
    ensure!(notes(&cut, KEEP_FRAMES).is_empty(), "{:?}", notes(&cut, KEEP_FRAMES));
    java.end()?;
    daemon.stop()
}

/// Compiled Java code uses the frame pointer for something else, unless an option keeps it.
#[test]
#[ignore = "it takes a JDK: cargo xtask test --long installs one"]
fn a_jvm_without_frame_pointers_has_cut_stacks_and_a_note_names_the_option() -> Result<()> {
    let mut command = Command::new("java");
    command.arg("-Xmx256m").arg(source("Direct.java"));
    let java = Runtime::start("java (apt-get install openjdk-17-jdk-headless)", &mut command)?;
    let daemon = Daemon::start(&[java.pid], ARGUMENTS)?;
    let note = says(&daemon, KEEP_FRAMES)?;
    ensure!(note.contains("% of bytes have stacks that end early"), "{note}");
    let profile = daemon.profile("alloc", &[])?;
    ensure!(has_frame(&profile, "[no unwind information]"), "no stack ends early");
    java.end()?;
    daemon.stop()
}

#[test]
#[ignore = "it takes a JDK: cargo xtask test --long installs one"]
fn a_jvm_in_a_container_gets_names() -> Result<()> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]);
    // The program may be below `/tmp`, which is hidden.
    let folder = tempfile::tempdir_in("/var/tmp").context("make a directory")?;
    fs::copy(source("Direct.java"), folder.path().join("Direct.java"))?;
    command.arg("mount -t tmpfs none /tmp && exec java \"$@\"").arg("java");
    command.args(JAVA_OPTIONS).arg(folder.path().join("Direct.java"));
    let mut java = Runtime::start("java in a container", &mut command)?;
    java.pid = child_of(java.workload.pid())?;
    ensure!(innermost_pid(java.pid)? == 1, "the JVM is the first process in its namespace");
    let daemon = Daemon::start(&[java.pid], ARGUMENTS)?;
    let note = says(&daemon, "Compiler.perfmap")?;
    let expected = format!(
        "run jcmd {} Compiler.perfmap (in its container: jcmd 1 Compiler.perfmap)",
        java.pid
    );
    ensure!(note.ends_with(&expected), "{note}");
    java_is_named(&daemon, java.pid)?;
    java.end()?;
    daemon.stop()
}

#[test]
fn node_gets_names_by_the_option_that_a_note_names() -> Result<()> {
    // With the option, node leaves a log of V8 in its working directory.
    let folder = tempfile::tempdir().context("make a directory")?;
    for has_option in [false, true] {
        let mut command = Command::new("node");
        command.current_dir(folder.path());
        command.args(has_option.then_some("--perf-basic-prof")).arg(source("buffers.js"));
        let node = Runtime::start("node (apt-get install nodejs)", &mut command)?;
        let daemon = Daemon::start(&[node.pid], ARGUMENTS)?;
        if has_option {
            let is_named = |profile: &Profile| {
                // V8 inlines the functions into each other.
                let own = ["innermost", "outer", "(anonymous)"];
                own.iter().any(|name| has_frame(profile, name)) && has_frame(profile, "node::Start")
            };
            let profile = daemon.profile_where("a name", "alloc", &[], is_named)?;
            let unnamed = notes(&profile, "no names: ");
            ensure!(unnamed.is_empty(), "{unnamed:?}");
        } else {
            says(&daemon, "JavaScript code has no names: start node with --perf-basic-prof")?;
        }
        node.end()?;
        daemon.stop()?;
    }
    Ok(())
}

/// PHP's compiler puts its code into shared memory.
#[test]
fn php_gets_names_by_the_option_that_a_note_names() -> Result<()> {
    for debug in [0, 16] {
        let mut command = Command::new("php");
        // PHP's own allocator maps its memory.
        command.env("USE_ZEND_ALLOC", "0");
        for setting in ["enable_cli=1", "jit_buffer_size=64M", "jit=tracing"] {
            command.args(["-d", &format!("opcache.{setting}")]);
        }
        command.args(["-d", &format!("opcache.jit_debug={debug}")]).arg(source("strings.php"));
        let php = Runtime::start("php (apt-get install php8.2-cli php8.2-opcache)", &mut command)?;
        let daemon = Daemon::start(&[php.pid], ARGUMENTS)?;
        if debug == 0 {
            says(&daemon, "start PHP with -d opcache.jit_debug=16")?;
        } else {
            // A trace has the name of the function that it begins in.
            let is_named =
                |profile: &Profile| has_frame(profile, "outer") || has_frame(profile, "innermost");
            daemon.profile_where("a name", "alloc", &[], is_named)?;
        }
        php.end()?;
        daemon.stop()?;
    }
    Ok(())
}

/// The tried version of Ruby cannot name its compiled code. A note says which version can.
#[test]
fn ruby_gets_a_note() -> Result<()> {
    let mut command = Command::new("ruby");
    command.arg("--yjit").arg(source("strings.rb"));
    let ruby = Runtime::start("ruby (apt-get install ruby)", &mut command)?;
    let daemon = Daemon::start(&[ruby.pid], ARGUMENTS)?;
    says(&daemon, "start ruby with --yjit-perf (Ruby 3.3 or later)")?;
    let has_both =
        |profile: &Profile| has_frame(profile, "[jit ") && has_frame(profile, "rb_str_times");
    daemon.profile_where("compiled code", "alloc", &[], has_both)?;
    ruby.end()?;
    daemon.stop()
}
