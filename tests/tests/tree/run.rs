//! `sampler run` starts a program and profiles its tree.

use crate::{Truth, add, sum};
use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, Finished, finish};
use sampler_tests::nobody::PublicCopy;
use sampler_tests::{Profile, build, wait};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// `sampler run` as a command, with `arguments`.
fn run(arguments: &[&str]) -> Result<Command> {
    build::require_root()?;
    let mut command = Command::new(build::program("sampler")?);
    command.arg("run").args(arguments);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        command.env_remove(variable);
    }
    Ok(command)
}

/// Processes that `parent` has started, with their command names.
fn children(parent: u32) -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list /proc")?.flatten() {
        // A process that has exited meanwhile is skipped.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        let Some((pid, name)) = name.split_once(" (") else { continue };
        if rest.split(' ').nth(1) == Some(&parent.to_string()) {
            found.push((pid.parse().context("a pid")?, name.to_owned()));
        }
    }
    Ok(found)
}

/// The child of this name, once the child exists.
fn child_named(parent: u32, name: &str) -> Result<u32> {
    wait::until(&format!("{name} under {parent}"), || {
        Ok(children(parent)?.into_iter().find(|(_, of)| of == name).map(|(pid, _)| pid))
    })
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether the run with this pid has a directory. Other runs may exist as well.
fn has_directory(run: u32) -> Result<bool> {
    let mut names = fs::read_dir("/run").context("list /run")?.flatten();
    let beginning = format!("sampler-run.{run}.");
    Ok(names.any(|entry| entry.file_name().to_string_lossy().starts_with(&beginning)))
}

/// Runs the workload built with `flags`. Returns its own counts, and the profile.
fn tree(flags: &[&str], arguments: &[&str]) -> Result<(Truth, Profile)> {
    let program = build::compile("tree.c", flags)?.display().to_string();
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile").display().to_string();
    let given = [&["--json", "-o", &file, "--", &program], arguments].concat();
    let Finished { status, stdout, stderr, .. } = finish(&mut run(&given)?)?;
    ensure!(status.success(), "{status}: {stderr}");
    let mut truth = Truth::new();
    String::from_utf8(stdout)?.lines().try_for_each(|line| add(&mut truth, line))?;
    let contents = fs::read(&file).with_context(|| format!("no profile: {stderr}"))?;
    Ok((truth, Profile::parse(&contents)?))
}

#[test]
fn a_program_is_counted_from_its_first_allocation() -> Result<()> {
    let (truth, profile) = tree(&[], &["now"])?;
    let seen = (profile.exact_objects, profile.exact_space);
    ensure!(truth.len() == 7 && seen == sum(&truth), "{seen:?} is not {truth:?}");
    Ok(())
}

/// No process has mapped a static program's allocator before the program runs. Its start-up
/// allocates as well, and always the same.
#[test]
fn a_static_program_is_counted_from_its_first_allocation() -> Result<()> {
    let mut start_up = Vec::new();
    for blocks in ["3", "1003"] {
        let (truth, profile) = tree(&["-static"], &["leaf", blocks])?;
        let (objects, bytes) = sum(&truth);
        let more = |seen: u64, said: u64| seen.checked_sub(said).context("some are missing");
        start_up.push((more(profile.exact_objects, objects)?, more(profile.exact_space, bytes)?));
    }
    ensure!(start_up[0] == start_up[1] && start_up[0].0 < 100, "start-up: {start_up:?}");
    Ok(())
}

/// A static program without symbols cannot be profiled. The output claims neither that it allocated
/// nothing, nor that all was counted.
#[test]
fn unprobed_programs_are_not_reported_as_zero() -> Result<()> {
    let program = build::compile("tree.c", &["-static", "-s"])?.display().to_string();
    let finished = finish(&mut run(&["--", &program, "leaf", "100"])?)?;
    let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(said.contains("0 B: no allocation was seen"), "{said}");
    let why = ["it called no function that is probed", "static and stripped"];
    ensure!(why.iter().any(|why| said.contains(why)), "{said}");
    ensure!(!said.contains("all counted"), "{said}");
    Ok(())
}

/// The output shows what the program holds at its end. A process of the tree that has exited
/// counts.
#[test]
fn blocks_held_at_the_end_are_reported() -> Result<()> {
    let program = build::compile("tree.c", &[])?.display().to_string();
    let finished = finish(&mut run(&["--interval", "1", "--", &program, "leaf", "100"])?)?;
    let said = &finished.stderr;
    // One of two sets of 100 blocks of 600 bytes.
    for words in ["Still held at the end", "29.3 KiB", "50 objects", "100 allocations"] {
        ensure!(said.contains(words), "nothing of {words:?}: {said}");
    }
    Ok(())
}

#[test]
fn the_exit_code_of_the_program_is_kept() -> Result<()> {
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["no-such-command-anywhere"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let finished = finish(&mut run(&[&["--"], command].concat())?)?;
        let said = &finished.stderr;
        ensure!(finished.code() == code, "{command:?}: {} is not {code}: {said}", finished.code());
        ensure!(finished.stdout.is_empty(), "{command:?}: wrote to the standard output");
        ensure!(!has_directory(finished.pid)?, "{command:?}: left its directory behind");
        match code {
            126 | 127 => {
                ensure!(said.lines().count() == 1, "{command:?}: more than a line: {said}")
            }
            _ => ensure!(said.contains("allocated"), "{command:?}: no profile: {said}"),
        }
    }
    Ok(())
}

/// Output, descriptors, directory and environment are the program's own.
#[test]
fn output_and_environment_of_the_program_are_kept() -> Result<()> {
    let list = ["ls", "/proc/self/fd"];
    let alone = finish(Command::new(list[0]).arg(list[1]))?.success("ls")?;
    let listed = finish(&mut run(&[&["--"][..], &list].concat())?)?.success("run")?;
    ensure!(listed.stdout == alone.stdout, "{}", String::from_utf8_lossy(&listed.stdout));
    let script = "pwd; echo $SAMPLED; echo $0; echo \"$@\"";
    let mut command = run(&["--", "sh", "-c", script, "zero", "--one", "two words"])?;
    let said = finish(command.current_dir("/usr").env("SAMPLED", "yes"))?.success("run")?;
    let said = String::from_utf8(said.stdout)?;
    ensure!(said == "/usr\nyes\nzero\n--one two words\n", "{said}");
    Ok(())
}

#[test]
fn under_sudo_it_runs_as_the_invoking_user() -> Result<()> {
    let who = |arguments: &[&str]| -> Result<String> {
        let given = [arguments, &["--", "sh", "-c", "id -u; id -g; id -G"]].concat();
        let mut command = run(&given)?;
        command.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
        let finished = finish(&mut command)?.success("run")?;
        ensure!(finished.stderr.contains("allocated"), "no profile: {}", finished.stderr);
        Ok(String::from_utf8(finished.stdout)?)
    };
    ensure!(who(&[])? == "65534\n65534\n65534\n", "{}", who(&[])?);
    ensure!(who(&["--as-root"])?.starts_with("0\n0\n"), "{}", who(&["--as-root"])?);
    ensure!(who(&["--user", "daemon"])? == "1\n1\n1\n", "{}", who(&["--user", "daemon"])?);
    Ok(())
}

#[test]
fn unrunnable_programs_are_refused_in_one_line() -> Result<()> {
    let copy = PublicCopy::of("sampler")?;
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(&copy.program)
        .args(["run", "--", "true"]);
    let without_daemon = |says: &str| -> Result<Finished> {
        let mut command = Command::new(&copy.program);
        let finished = finish(command.args(["run", "--", "true"]).env("PATH", "/nowhere"))?;
        ensure!(finished.stderr.contains(says), "{}", finished.stderr);
        Ok(finished)
    };
    let nobody = finish(&mut command)?;
    ensure!(nobody.stderr.contains("sudo sampler run"), "{}", nobody.stderr);
    let no_user = finish(&mut run(&["--user", "no-such-user", "--", "true"])?)?;
    ensure!(no_user.stderr.contains("no such user"), "{}", no_user.stderr);
    for finished in [nobody, no_user, without_daemon("install both")?] {
        let said = &finished.stderr;
        ensure!(finished.code() == 1 && said.lines().count() == 1, "{}: {said}", finished.code());
    }
    Ok(())
}

/// SIGTERM is passed on, and Ctrl-C goes to the group of both. The profile is printed in both
/// cases, and nothing stays.
#[test]
fn a_signalled_run_ends_with_its_program() -> Result<()> {
    signalled(15, |sampler| sampler.signal(15))?;
    signalled(2, |sampler| {
        let group = format!("-{}", sampler.pid());
        finish(Command::new("kill").args(["-2", "--", &group]))?.success("kill").map(drop)
    })
}

fn signalled(signal: i32, send: impl Fn(&Child) -> Result<()>) -> Result<()> {
    let plain = run(&["--", "sleep", "300"])?;
    // The program would ignore a signal that the test's parent ignores.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(plain.get_program()).args(plain.get_args());
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    // A group of its own, as a shell starts a job.
    command.process_group(0);
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    command.stderr(fs::File::create(&log)?);
    let mut sampler = Child::start("sampler run", &mut command)?;
    let program = child_named(sampler.pid(), "sleep")?;
    let daemon = child_named(sampler.pid(), "samplerd")?;
    send(&sampler)?;
    let status = sampler.wait()?;
    let said = fs::read_to_string(&log)?;
    ensure!(status.code() == Some(128 + signal), "{status}: {said}");
    ensure!(said.contains("allocated"), "no profile: {said}");
    ensure!(is_gone(program) && is_gone(daemon), "left behind");
    ensure!(!has_directory(sampler.pid())?, "left its directory behind");
    Ok(())
}

/// A killed `sampler run` can do nothing more. Its samplerd ends by itself, and the program goes
/// on.
#[test]
fn a_killed_run_leaves_no_daemon() -> Result<()> {
    let mut sampler = Child::start("sampler run", &mut run(&["--", "sleep", "300"])?)?;
    let program = child_named(sampler.pid(), "sleep")?;
    let daemon = child_named(sampler.pid(), "samplerd")?;
    sampler.signal(9)?;
    sampler.wait()?;
    wait::until("the end of samplerd", || Ok(is_gone(daemon).then_some(())))?;
    let unharmed = !is_gone(program);
    sampler_tests::child::kill(program, 9)?;
    ensure!(unharmed, "the program was harmed");
    ensure!(!has_directory(sampler.pid())?, "left its directory behind");
    Ok(())
}
