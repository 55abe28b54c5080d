use super::*;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn sleeper() -> Child {
    Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_running_process_is_known_until_it_ends() {
    let mut child = sleeper();
    let process = Process::open(child.id()).unwrap();
    assert_eq!(process.pid, child.id());
    assert!(process.start_ticks > 0);
    assert!(process.is_running());
    until(|| process.comm() == "sleep");
    assert!(process.exe().starts_with('/'), "{}", process.exe());
    child.kill().unwrap();
    until(|| !process.is_running());
    // The child has not been waited for, so it is a zombie.
    assert!(matches!(Process::open(child.id()), Err(ProcessError::Exited(_))));
    assert_eq!((process.comm(), process.exe()), (String::new(), String::new()));
    child.wait().unwrap();
    assert!(!process.is_running());
    assert!(matches!(Process::open(child.id()), Err(ProcessError::NotFound(_))));
}

#[test]
fn invalid_pids_are_not_found() {
    for pid in [0, u32::MAX, i32::MAX as u32, 1 << 31] {
        assert!(matches!(Process::open(pid), Err(ProcessError::NotFound(p)) if p == pid), "{pid}");
    }
}

#[test]
fn a_thread_is_recognized() {
    let (send, receive) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let tid = std::fs::read_link("/proc/thread-self").unwrap();
        send.send(tid.file_name().unwrap().to_string_lossy().parse().unwrap()).unwrap();
        let _ = ended.recv();
    });
    let tid: u32 = receive.recv().unwrap();
    let error = Process::open(tid).unwrap_err();
    assert!(
        matches!(error, ProcessError::Thread(t, p) if t == tid && p == std::process::id()),
        "{error}"
    );
    drop(end);
    thread.join().unwrap();
}

#[test]
fn a_kernel_thread_is_recognized() {
    let stat = fs::read_to_string("/proc/2/stat").unwrap_or_default();
    if !stat.contains("(kthreadd)") {
        return eprintln!("NOT RUN: no kernel thread is visible here");
    }
    assert!(matches!(Process::open(2), Err(ProcessError::KernelThread(2))));
}

#[test]
fn processes_of_other_users_need_root() {
    let owner = |pid: u32| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{pid}")).map(|status| status.uid()).unwrap_or(0)
    };
    let result = Process::open(1);
    if owner(1) == owner(std::process::id()) {
        return eprintln!("NOT RUN: process 1 is not another user's");
    }
    let error = result.unwrap_err().to_string();
    assert!(error.contains("permission denied (run as root"), "{error}");
}

#[test]
fn a_name_with_parentheses_is_parsed() {
    let stat = "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
    let facts = Facts::parse(stat, "Name:\ta\nTgid:\t7\nPid:\t7\nUid:\t9\t0\t0\t0\n").unwrap();
    assert_eq!((facts.state, facts.start_ticks, facts.thread_group), (b'S', 4711, 7));
    assert!(!facts.kernel_thread);
    assert!(Facts::parse("7 (a", "Tgid:\t7\nUid:\t9\n").is_none());
    assert!(Facts::parse(stat, "Name:\ta\n").is_none());
}

#[test]
fn the_start_time_is_that_of_the_kernel() {
    let child = sleeper();
    let process = Process::open(child.id()).unwrap();
    let stat = procfs::process::Process::new(child.id() as i32).unwrap().stat().unwrap();
    assert_eq!(process.start_ticks, stat.starttime);
    end(child);
}

/// `pause()` in 32-bit code: `mov eax, 29; int 0x80; jmp $-7`.
const PAUSE_32: [u8; 9] = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];

#[test]
fn a_32_bit_process_is_recognized() {
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
    let size = 84 + PAUSE_32.len() as u32;
    for word in [1, 0x0804_8054, 52, 0, 0, 0x0020_0034, 0x0000_0001, 0] {
        elf.extend(u32::to_le_bytes(word));
    }
    for word in [1, 0, 0x0804_8000, 0x0804_8000, size, size, 5, 0x1000] {
        elf.extend(u32::to_le_bytes(word));
    }
    elf.extend(PAUSE_32);
    let directory = tempfile::TempDir::new().unwrap();
    let (written, path) = (directory.path().join("written"), directory.path().join("pause32"));
    fs::write(&written, elf).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&written, executable).unwrap();
    // A child forked meanwhile may hold our file open for writing. A copy by `cp` can be started
    // all the same.
    assert!(Command::new("cp").arg(&written).arg(&path).status().unwrap().success());
    let child = match Command::new(&path).spawn() {
        Ok(child) => child,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC), "{error}");
            return eprintln!("NOT RUN: this kernel starts no 32-bit program");
        }
    };
    let error = Process::open(child.id()).unwrap_err();
    assert!(matches!(error, ProcessError::ThirtyTwoBit(_)), "{error}");
    end(child);
}
