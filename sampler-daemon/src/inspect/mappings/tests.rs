use super::*;
use proptest::prelude::*;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

fn one(line: &str) -> Mapping {
    maps::lines(line.as_bytes()).map(mapping).next().unwrap()
}

#[test]
fn a_line_is_parsed() {
    let mapping =
        one("7f0c2a600000-7f0c2a755000 r-xp 00026000 fe:01 1312063    /usr/lib/libc.so.6");
    assert_eq!(
        mapping,
        Mapping {
            start: 0x7f0c_2a60_0000,
            end: 0x7f0c_2a75_5000,
            offset: 0x26000,
            executable: true,
            device: (0xfe, 1),
            inode: 1_312_063,
            backing: Backing::File("/usr/lib/libc.so.6".into()),
        }
    );
    assert!(!one("1000-2000 rw-p 00000000 00:00 0").executable);
}

#[test]
fn the_backing_of_a_mapping_is_recognized() {
    let file = |path: &str| Backing::File(path.into());
    for (path, inode, backing) in [
        ("", 0, Backing::Anonymous),
        ("[heap]", 0, Backing::Anonymous),
        ("[stack]", 0, Backing::Anonymous),
        ("[anon:JavaScript code]", 0, Backing::Anonymous),
        ("[vdso]", 0, Backing::Vdso),
        ("[uprobes]", 0, Backing::Uprobes),
        ("[uprobes-trampoline]", 0, Backing::Uprobes),
        ("[vvar]", 0, Backing::Other("[vvar]".into())),
        ("[vsyscall]", 0, Backing::Other("[vsyscall]".into())),
        ("anon_inode:[perf_event]", 7, Backing::Other("anon_inode:[perf_event]".into())),
        ("/a b/ c", 7, file("/a b/ c")),
        ("/a\\012b", 7, file("/a\nb")),
        ("/a (deleted)", 7, file("/a")),
        ("/memfd:jit (deleted)", 7, file("/memfd:jit")),
        ("/[vdso]", 7, file("/[vdso]")),
        ("/a\u{e4}", 7, file("/a\u{e4}")),
    ] {
        let line = format!("1000-2000 r-xp 00000000 00:01 {inode}                  {path}");
        assert_eq!(one(&line).backing, backing, "{path}");
    }
}

#[test]
fn our_own_mappings_equal_those_of_the_procfs_crate() {
    // The heap may grow between the two readings; code does not move.
    let ours = || -> Vec<_> {
        let all = read(std::process::id()).unwrap();
        let code = all.iter().filter(|mapping| mapping.executable);
        code.map(|m| ((m.start, m.end), m.offset, m.device, m.inode)).collect()
    };
    let theirs = || -> Vec<_> {
        let all = procfs::process::Process::myself().unwrap().maps().unwrap();
        let code =
            all.iter().filter(|map| map.perms.contains(procfs::process::MMPermissions::EXECUTE));
        code.map(|map| (map.address, map.offset, (map.dev.0, map.dev.1), map.inode)).collect()
    };
    // Other tests of this process map code at the same time. Two equal readings of ours prove the
    // mappings in between.
    let (ours, theirs) = (0..1000)
        .map(|_| (ours(), theirs(), ours()))
        .find_map(|(before, theirs, after)| (before == after).then_some((before, theirs)))
        .expect("a moment in which nobody maps code");
    assert!(ours.len() >= 3);
    assert_eq!(ours, theirs);
}

#[test]
fn a_mapped_file_is_opened() {
    let pid = std::process::id();
    let exe = fs::canonicalize("/proc/self/exe").unwrap();
    let mappings = read(pid).unwrap();
    let is_exe = |m: &&Mapping| m.backing == Backing::File(exe.to_string_lossy().into_owned());
    let mapping = mappings.iter().find(is_exe).unwrap();
    let status = open(pid, mapping).unwrap().metadata().unwrap();
    let expected = fs::metadata(&exe).unwrap();
    assert_eq!((status.dev(), status.ino()), (expected.dev(), expected.ino()));
    let anonymous = mappings.iter().find(|m| m.backing == Backing::Anonymous).unwrap();
    assert_eq!(open(pid, anonymous).unwrap_err().kind(), ErrorKind::InvalidInput);
    let gone = Mapping { start: 0x1000, end: 0x2000, inode: 1, ..mapping.clone() };
    let error = open(pid, &gone).unwrap_err().to_string();
    assert!(error.starts_with(&format!("open {}: ", exe.display())), "{error}");
}

/// The names break careless parsers. The file is then deleted, and another file takes its name.
#[test]
fn a_file_with_an_odd_name_is_opened_after_its_deletion() {
    let directory = tempfile::TempDir::new().unwrap();
    for name in ["a b  c", " lead", "new\nline", "real (deleted)", "r-xp 00:00 0 [vdso]"] {
        let program = directory.path().join(name);
        // `cp` writes the program. If we wrote it, a child forked at that time would hold it open
        // for writing. A file that is open for writing cannot be started.
        assert!(Command::new("cp").arg("/bin/cat").arg(&program).status().unwrap().success());
        let mut command = Command::new(&program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The program answers, so its file is mapped.
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let inode = fs::metadata(&program).unwrap().ino();
        let mapping = read(child.id()).unwrap().into_iter().find(|m| m.inode == inode).unwrap();
        let shown = program.to_string_lossy();
        let shown = shown.strip_suffix(" (deleted)").unwrap_or(&shown);
        assert_eq!(mapping.backing, Backing::File(shown.into()), "{name:?}");
        let before = open(child.id(), &mapping).map(|file| file.metadata().unwrap().ino());
        assert_eq!(before.unwrap(), inode, "{name:?}");

        fs::remove_file(&program).unwrap();
        fs::write(&program, "another one").unwrap();
        match open(child.id(), &mapping) {
            Ok(mut file) => {
                let mut content = Vec::new();
                file.read_to_end(&mut content).unwrap();
                assert!(content == fs::read("/bin/cat").unwrap(), "{name:?}: another file");
            }
            Err(error) => {
                assert!(error.to_string().contains("run as root"), "{error}");
                eprintln!("NOT RUN: opening a deleted file that is mapped needs root");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_device_is_not_opened() {
    let error = open_regular("/dev/null", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

proptest! {
    #[test]
    fn any_line_is_parsed_or_left_out(line in "[0-9a-f]{0,5}-?[0-9a-f ]{0,6}.{0,60}") {
        let _ = maps::lines(line.as_bytes()).map(mapping).count();
    }

    #[test]
    fn any_file_name_is_parsed_back(name in "/[^\n]{1,80}") {
        prop_assume!(!name.ends_with(" (deleted)") && !name.contains("\\012"));
        let mapping = one(&format!("1000-2000 r-xp 00000000 00:01 7      {name}"));
        prop_assert_eq!(mapping.backing, Backing::File(name));
    }
}

#[test]
fn the_file_of_a_process_that_is_gone_is_opened_by_its_path() {
    let ours = read(std::process::id()).unwrap();
    let program = std::env::current_exe().unwrap().display().to_string();
    let mapping = ours.iter().find(|it| it.backing == Backing::File(program.clone())).unwrap();
    // No process has such a number.
    let pids = [1 << 30, std::process::id()];
    let file = open_past(&pids, mapping).unwrap();
    assert_eq!(file.metadata().unwrap().ino(), mapping.inode);
    assert!(open_past(&pids[..1], mapping).is_ok());
    // The file at the same path is another one by now.
    let other = Mapping { inode: mapping.inode + 1, ..mapping.clone() };
    assert!(open_past(&pids, &other).is_err());
    let other = Mapping { device: (0, 0), ..mapping.clone() };
    assert!(open_past(&pids, &other).is_err());
}

#[test]
fn a_file_shows_the_device_that_mappings_show() {
    let ours = read(std::process::id()).unwrap();
    let program = std::env::current_exe().unwrap();
    let path = Backing::File(program.display().to_string());
    let mapping = ours.iter().find(|it| it.backing == path).unwrap();
    let file = File::open(program).unwrap();
    assert_eq!(shown_identity(&file), Some((mapping.device, mapping.inode)));
}

#[test]
fn names_of_events_are_those_of_maps() {
    let file = |path: &str| Backing::File(path.into());
    for (name, inode, backing) in [
        ("//anon", 0, Backing::Anonymous),
        ("[vdso]", 0, Backing::Vdso),
        ("[uprobes]", 0, Backing::Uprobes),
        ("[heap]", 0, Backing::Anonymous),
        ("/a b", 7, file("/a b")),
        ("/a (deleted)", 7, file("/a")),
        ("/a\\012b", 7, file("/a\\012b")),
        ("//toolong", 7, file("//toolong")),
        ("//enomem", 0, Backing::Other("[unknown]".into())),
    ] {
        assert_eq!(backing_of_event(name.as_bytes(), inode), backing, "{name}");
    }
}

#[test]
fn symlinks_and_fifos_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let open = |path: &str| open_in_root(std::process::id(), &at(path));
    fs::write(at("file"), "1000 10 name\n").unwrap();
    assert!(open("file").is_ok());
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    assert!(open("link").is_err());
    // A link of a folder is followed below the root directory of the process.
    std::os::unix::fs::symlink(folder.path(), at("folder")).unwrap();
    assert!(open("folder/file").is_ok());
    // Opening a FIFO for reading waits for a writer.
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    assert!(open("fifo").is_err());
}

#[test]
fn a_truncated_read_ends_with_a_whole_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = format!("1000-2000 r-xp 0 08:01 7 /{}\n", "x".repeat(4000));
    std::fs::write(file.path(), line.repeat(5000)).unwrap();
    let text = read_lines(file.path()).unwrap();
    assert!(text.len() as u64 <= MAX_MAPS_BYTES && text.ends_with(b"x\n"));
    assert_eq!(maps::lines(&text).count(), (MAX_MAPS_BYTES as usize) / line.len());
}
