use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_DIV, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT,
    BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MEM, BPF_MISC, BPF_MUL,
    BPF_NEG, BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB, BPF_TAX, BPF_TXA, BPF_W, BPF_X,
    BPF_XOR, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS,
    SECCOMP_RET_KILL_THREAD, SECCOMP_RET_LOG, SECCOMP_RET_TRAP,
};

use super::*;

const CALL: Call = Call {
    nr: 0xffff_ffff_0000_0009,
    args: [0x1_0000_0002, 3, 4, 5, 6, 0x7_0000_0008],
    ip: 0x7f12_3456_7890,
};

fn jump(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn plain(code: u32, k: u32) -> sock_filter {
    jump(code, 0, 0, k)
}

/// Value of A after `body`.
fn a_after(body: &[sock_filter]) -> u32 {
    let mut program = body.to_vec();
    program.push(plain(BPF_RET | BPF_A, 0));
    check::check(&program).unwrap();
    run::run(&program, &run::Data::new(&CALL))
}

fn error(program: &[sock_filter]) -> Error {
    evaluate(program, &CALL).unwrap_err()
}

/// Result of `A = a; X = x; A = A <operation> X`. The operation with a constant must give the same
/// result.
fn computed(operation: u32, a: u32, x: u32) -> u32 {
    let load = [plain(BPF_LD | BPF_IMM, a), plain(BPF_LDX | BPF_W | BPF_IMM, x)];
    let by_x = [&load[..], &[plain(BPF_ALU | operation | BPF_X, 0)]].concat();
    let by_constant = [&load[..], &[plain(BPF_ALU | operation | BPF_K, x)]].concat();
    let result = a_after(&by_x);
    assert_eq!(a_after(&by_constant), result);
    result
}

#[test]
fn loads_read_words_of_the_seccomp_data() {
    let at = |offset| a_after(&[plain(BPF_LD | BPF_W | BPF_ABS, offset)]);
    assert_eq!([at(0), at(4)], [9, 0xc000_003e]);
    assert_eq!([at(8), at(12)], [0x3456_7890, 0x7f12]);
    assert_eq!([at(16), at(20), at(24), at(56), at(60)], [2, 1, 3, 8, 7]);
    assert_eq!(a_after(&[plain(BPF_LD | BPF_W | BPF_LEN, 0)]), 64);
    assert_eq!(a_after(&[plain(BPF_LD | BPF_IMM, 77)]), 77);
}

#[test]
fn both_registers_are_zero_at_first() {
    assert_eq!(a_after(&[plain(BPF_ALU | BPF_ADD | BPF_K, 5)]), 5);
    assert_eq!(a_after(&[plain(BPF_LD | BPF_IMM, 7), plain(BPF_MISC | BPF_TXA, 0)]), 0);
}

#[test]
fn the_index_register_is_loaded_and_moved() {
    let length = [plain(BPF_LDX | BPF_W | BPF_LEN, 0), plain(BPF_MISC | BPF_TXA, 0)];
    assert_eq!(a_after(&length), 64);
    let moved = [
        plain(BPF_LD | BPF_IMM, 5),
        plain(BPF_MISC | BPF_TAX, 0),
        plain(BPF_ALU | BPF_ADD | BPF_X, 0),
    ];
    assert_eq!(a_after(&moved), 10);
}

#[test]
fn memory_keeps_words_of_both_registers() {
    let body = [
        plain(BPF_LD | BPF_IMM, 5),
        plain(BPF_ST, 15),
        plain(BPF_LDX | BPF_W | BPF_IMM, 6),
        plain(BPF_STX, 0),
        plain(BPF_LD | BPF_MEM, 0),
        plain(BPF_LDX | BPF_MEM, 15),
        plain(BPF_ALU | BPF_MUL | BPF_X, 0),
    ];
    assert_eq!(a_after(&body), 30);
}

#[test]
fn arithmetic_has_32_bits_and_no_sign() {
    assert_eq!(computed(BPF_ADD, u32::MAX, 2), 1);
    assert_eq!(computed(BPF_SUB, 1, 2), u32::MAX);
    assert_eq!(computed(BPF_MUL, 0x8000_0001, 2), 2);
    assert_eq!(computed(BPF_DIV, 0x8000_0000, 3), 0x2aaa_aaaa);
    assert_eq!(computed(BPF_AND, 0b1100, 0b1010), 0b1000);
    assert_eq!(computed(BPF_OR, 0b1100, 0b1010), 0b1110);
    assert_eq!(computed(BPF_XOR, 0b1100, 0b1010), 0b0110);
    assert_eq!(computed(BPF_LSH, 3, 31), 0x8000_0000);
    assert_eq!(computed(BPF_RSH, 0x8000_0000, 31), 1);
    assert_eq!(a_after(&[plain(BPF_LD | BPF_IMM, 1), plain(BPF_ALU | BPF_NEG, 0)]), u32::MAX);
}

#[test]
fn a_division_by_zero_ends_the_program_with_zero() {
    let body = [plain(BPF_LD | BPF_IMM, 5), plain(BPF_ALU | BPF_DIV | BPF_X, 0)];
    let after = [plain(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)];
    let program = [&body[..], &after].concat();
    let action = SECCOMP_RET_KILL_THREAD;
    assert_eq!(evaluate(&program, &CALL), Ok(Verdict::Refuse { action }));
}

#[test]
fn jumps_skip_their_number_of_instructions() {
    let taken = |comparison, a, k| {
        let body = [
            plain(BPF_LD | BPF_IMM, a),
            jump(BPF_JMP | comparison | BPF_K, 1, 0, k),
            plain(BPF_RET | BPF_K, 0),
            plain(BPF_LD | BPF_IMM, 1),
        ];
        a_after(&body) == 1
    };
    assert_eq!([taken(BPF_JEQ, 5, 5), taken(BPF_JEQ, 5, 6)], [true, false]);
    assert_eq!([taken(BPF_JGT, u32::MAX, 5), taken(BPF_JGT, 5, 5)], [true, false]);
    assert_eq!([taken(BPF_JGE, 5, 5), taken(BPF_JGE, 4, 5)], [true, false]);
    assert_eq!([taken(BPF_JSET, 6, 2), taken(BPF_JSET, 4, 2)], [true, false]);
    let always = [jump(BPF_JMP | BPF_JA, 0, 0, 1), plain(BPF_RET | BPF_K, 9)];
    assert_eq!(a_after(&always), 0);
}

#[test]
fn only_executed_calls_are_allowed() {
    let verdict = |k| evaluate(&[plain(BPF_RET | BPF_K, k)], &CALL).unwrap();
    assert_eq!(verdict(SECCOMP_RET_ALLOW | 0xffff), Verdict::Allow);
    assert_eq!(verdict(SECCOMP_RET_LOG), Verdict::Allow);
    for action in [
        SECCOMP_RET_ERRNO | 13,
        SECCOMP_RET_TRAP,
        libc::SECCOMP_RET_TRACE,
        libc::SECCOMP_RET_USER_NOTIF,
        SECCOMP_RET_KILL_THREAD,
        SECCOMP_RET_KILL_PROCESS,
        0x1234_0000,
    ] {
        assert_eq!(verdict(action), Verdict::Refuse { action });
    }
}

#[test]
fn the_most_severe_verdict_of_several_programs_counts() {
    let program = |k| vec![plain(BPF_RET | BPF_K, k)];
    let verdict = |actions: &[u32]| {
        let programs: Vec<_> = actions.iter().map(|action| program(*action)).collect();
        evaluate_all(programs.iter().map(Vec::as_slice), &CALL).unwrap()
    };
    assert_eq!(verdict(&[]), Verdict::Allow);
    assert_eq!(verdict(&[SECCOMP_RET_ALLOW, SECCOMP_RET_LOG]), Verdict::Allow);
    let killed = Verdict::Refuse { action: SECCOMP_RET_KILL_PROCESS };
    let order = [SECCOMP_RET_ERRNO | 1, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD];
    assert_eq!(verdict(&order), killed);
    let trapped = Verdict::Refuse { action: SECCOMP_RET_TRAP };
    assert_eq!(verdict(&[SECCOMP_RET_ERRNO | 1, SECCOMP_RET_TRAP]), trapped);
}

#[test]
fn programs_that_the_kernel_does_not_install_have_no_verdict() {
    let end = plain(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    assert_eq!(error(&[]), Error::Length { instructions: 0 });
    assert_eq!(error(&vec![end; 4097]), Error::Length { instructions: 4097 });
    assert_eq!(error(&[plain(BPF_LD | BPF_IMM, 0)]), Error::End);
    assert_eq!(error(&[plain(BPF_LD | 0x28, 0), end]), Error::Code { index: 0, code: 0x28 });
    assert_eq!(error(&[end, plain(0xffff, 0)]), Error::Code { index: 1, code: 0xffff });
    for (code, k) in [
        (BPF_LD | BPF_W | BPF_ABS, 64),
        (BPF_LD | BPF_W | BPF_ABS, 2),
        (BPF_ALU | BPF_DIV | BPF_K, 0),
        (BPF_ALU | BPF_LSH | BPF_K, 32),
        (BPF_ALU | BPF_RSH | BPF_K, 32),
        (BPF_ST, 16),
        (BPF_LD | BPF_MEM, 16),
    ] {
        assert_eq!(error(&[plain(code, k), end]), Error::Constant { index: 0, k });
    }
    assert_eq!(error(&[plain(BPF_JMP | BPF_JA, 1), end]), Error::Jump { index: 0 });
    assert_eq!(error(&[plain(BPF_JMP | BPF_JA, u32::MAX), end]), Error::Jump { index: 0 });
    assert_eq!(error(&[jump(BPF_JMP | BPF_JEQ, 0, 1, 0), end]), Error::Jump { index: 0 });
}

#[test]
fn memory_not_written_on_every_path_is_refused() {
    let program = |skipped| {
        [
            jump(BPF_JMP | BPF_JEQ, skipped, 0, 0),
            plain(BPF_ST, 3),
            plain(BPF_LD | BPF_MEM, 3),
            plain(BPF_RET | BPF_A, 0),
        ]
    };
    assert!(evaluate(&program(0), &CALL).is_ok());
    assert_eq!(error(&program(1)), Error::Unwritten { index: 2 });
}
