use super::*;

const CALL: Call = Call { nr: 9, args: [0; 6], ip: 0x7f00_0000_1000 };

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[test]
fn a_program_that_returns_a_constant_says_that() {
    let program = |k| [instruction(libc::BPF_RET, 0, 0, k)];
    assert_eq!(evaluate(&program(libc::SECCOMP_RET_ALLOW), &CALL), Ok(Verdict::Allow));
    let action = libc::SECCOMP_RET_ERRNO | 13;
    assert_eq!(evaluate(&program(action), &CALL), Ok(Verdict::Refuse { action }));
}
