use super::*;

fn found(code: &[u8]) -> bool {
    {
        let number_of = |target| (target == 0x40_2000).then_some(MREMAP);
        Search { number_of: &number_of, parts_read: 0 }.of(code, 0x40_1000).is_some()
    }
}

/// `mov edx, protection; mov r10d, flags; mov eax, number; syscall`
fn system_call(number: u8, protection: u8, flags: u32) -> Vec<u8> {
    let [a, b, c, d] = flags.to_le_bytes();
    let protection = [0xba, protection, 0, 0, 0];
    [&protection[..], &[0x41, 0xba, a, b, c, d], &[0xb8, number, 0, 0, 0, 0x0f, 0x05]].concat()
}

#[test]
fn memory_over_code_that_becomes_executable_is_found() {
    let executable = system_call(10, 5, 0);
    for flags in [0x32, 0x8032, 0x4_0032, 0x72, 0x10_0022] {
        let map = system_call(9, 3, flags);
        assert!(found(&[&map[..], &executable].concat()), "{flags:#x}");
        // Two requests far from each other are unrelated.
        assert!(!found(&[&map[..], &[0x90; 5000], &executable].concat()));
        assert!(!found(&map));
    }
    assert!(found(&system_call(9, 7, 0x32)));
    assert!(found(&[system_call(25, 0, 3), executable.clone()].concat()));
    // A reservation, memory anywhere, a file, a mapping that grows.
    for (number, protection, flags) in [(9, 0, 0x32), (9, 3, 0x22), (9, 3, 0x12), (25, 0, 1)] {
        let other = system_call(number, protection, flags);
        assert!(!found(&[other, executable.clone()].concat()), "{number} {protection} {flags:#x}");
    }
}

#[test]
fn mapping_calls_are_recognized_by_their_arguments() {
    let executable = system_call(10, 5, 0);
    // mov edx, 3; mov ecx, 0x32; mov r8d, -1; call
    let map = [
        0xba, 3, 0, 0, 0, 0xb9, 0x32, 0, 0, 0, 0x41, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xe8, 0, 1, 0, 0,
    ];
    assert!(found(&[&map[..], &executable].concat()));
    // As `syscall(9, …)`: mov edi, 9; mov ecx, 3; mov r8d, 0x32; call; and mov edi, 10; mov ecx, 5;
    // call
    let by_number = [
        0xbf, 9, 0, 0, 0, 0xb9, 3, 0, 0, 0, 0x41, 0xb8, 0x32, 0, 0, 0, 0xe8, 0, 1, 0, 0, 0xbf, 10,
        0, 0, 0, 0xb9, 5, 0, 0, 0, 0xe8, 0, 1, 0, 0,
    ];
    assert!(found(&by_number));
    // mov ecx, 3; call 0x402000
    let mut remap = vec![0xb9, 3, 0, 0, 0, 0xe8];
    remap.extend((0x1000u32 - 10).to_le_bytes());
    assert!(found(&[&remap[..], &executable].concat()));
    remap[6] += 1;
    assert!(!found(&[&remap[..], &executable].concat()), "another function");
}

#[test]
fn constants_are_followed_through_the_stack() {
    // mov qword [rbp-8], 0x32; mov r10, [rbp-8]; push 3; pop rdx; mov eax, 9; syscall
    let map = [
        0x48, 0xc7, 0x45, 0xf8, 0x32, 0, 0, 0, 0x4c, 0x8b, 0x55, 0xf8, 0x6a, 3, 0x5a, 0xb8, 9, 0,
        0, 0, 0x0f, 0x05,
    ];
    assert!(found(&[&map[..], &system_call(10, 5, 0)].concat()));
    // Another value in between: mov qword [rbp-8], rax
    let mut other = map.to_vec();
    other.splice(8..8, [0x48, 0x89, 0x45, 0xf8]);
    assert!(!found(&[other, system_call(10, 5, 0)].concat()));
}

#[test]
fn a_file_that_takes_too_long_is_left_alone() {
    let mut search = Search { number_of: &|_| None, parts_read: MAX_PARTS_READ };
    assert_eq!(search.of(&[0x90; 100], 0), None);
    // push 0x32
    assert_eq!(search.of(&[0x90, 0x6a, 0x32], 0), Some(1));
}
