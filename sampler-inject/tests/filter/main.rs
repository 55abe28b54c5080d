//! Compares the verdicts of [`sampler_inject::filter`] on seccomp programs with what the kernel
//! does.

#![allow(unsafe_code, reason = "forks, and makes system calls of its own")]

mod kernel;

use kernel::{Answer, address_of_call, ask};
use libc::{
    BPF_A, BPF_ABS, BPF_ALU, BPF_IMM, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM,
    BPF_MISC, BPF_RET, BPF_ST, BPF_STX, BPF_TAX, BPF_TXA, BPF_W, BPF_X, sock_filter,
};
use proptest::prelude::*;
use sampler_inject::filter::{Call, Error, Verdict, evaluate};

const GETPID: u64 = libc::SYS_getpid as u64;

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// What the kernel does if our verdict is right.
fn expected(verdict: Result<Verdict, Error>) -> impl Fn(Answer) -> bool {
    move |answer| match verdict {
        Err(_) => answer == Answer::NotInstalled,
        Ok(Verdict::Allow) => matches!(answer, Answer::Returned(pid) if pid > 0),
        Ok(Verdict::Refuse { action }) => match action & libc::SECCOMP_RET_ACTION_FULL {
            libc::SECCOMP_RET_ERRNO => {
                answer == Answer::Returned(-i64::from((action & libc::SECCOMP_RET_DATA).min(4095)))
            }
            // Nobody traces the child and nobody listens.
            libc::SECCOMP_RET_TRACE | libc::SECCOMP_RET_USER_NOTIF => {
                answer == Answer::Returned(-i64::from(libc::ENOSYS))
            }
            _ => answer == Answer::Killed(libc::SIGSYS),
        },
    }
}

/// A filter that runs `body` for `getpid` only, so that the child can make other calls to report.
/// The filter returns an error number: 12 bits, from bit `shift` on, of what `body` leaves in A.
fn around(body: &[sock_filter], shift: u32) -> Vec<sock_filter> {
    let mut program = vec![
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, GETPID as u32),
        instruction(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    program.extend_from_slice(body);
    program.extend([
        instruction(BPF_ALU | libc::BPF_RSH | BPF_K, 0, 0, shift),
        instruction(BPF_ALU | libc::BPF_AND | BPF_K, 0, 0, 0xfff),
        instruction(BPF_ALU | libc::BPF_OR | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO),
        instruction(BPF_RET | BPF_A, 0, 0, 0),
    ]);
    program
}

const OPERATIONS: [u32; 8] = [
    libc::BPF_ADD,
    libc::BPF_SUB,
    libc::BPF_MUL,
    libc::BPF_DIV,
    libc::BPF_AND,
    libc::BPF_OR,
    libc::BPF_XOR,
    libc::BPF_NEG,
];
const SHIFTS: [u32; 2] = [libc::BPF_LSH, libc::BPF_RSH];
const COMPARISONS: [u32; 4] = [libc::BPF_JEQ, libc::BPF_JGT, libc::BPF_JGE, libc::BPF_JSET];

fn constant() -> impl Strategy<Value = u32> {
    prop_oneof![0..40_u32, any::<u32>(), Just(u32::MAX), Just(0x8000_0000)]
}

/// Instructions that the kernel accepts anywhere in a filter. Jumps may lead out of the filter, and
/// memory may be read before it is written: such filters are refused.
fn known() -> impl Strategy<Value = sock_filter> {
    let plain = prop::sample::select(vec![
        BPF_LD | BPF_IMM,
        BPF_LDX | BPF_W | BPF_IMM,
        BPF_LD | BPF_W | BPF_LEN,
        BPF_LDX | BPF_W | BPF_LEN,
        BPF_MISC | BPF_TAX,
        BPF_MISC | BPF_TXA,
    ]);
    let memory = prop::sample::select(vec![BPF_LD | BPF_MEM, BPF_LDX | BPF_MEM, BPF_ST, BPF_STX]);
    let by = prop::sample::select(vec![BPF_K, BPF_X]);
    let action = prop::sample::select(vec![
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_ERRNO | 13,
        libc::SECCOMP_RET_ERRNO | 0xffff,
        libc::SECCOMP_RET_TRACE | 1,
        libc::SECCOMP_RET_TRAP,
        libc::SECCOMP_RET_KILL_PROCESS,
        0x1234_5678,
    ]);
    prop_oneof![
        4 => (plain, constant()).prop_map(|(code, k)| instruction(code, 0, 0, k)),
        4 => (0..16_u32).prop_map(|word| instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, word * 4)),
        3 => (memory, 0..3_u32).prop_map(|(code, k)| instruction(code, 0, 0, k)),
        6 => (prop::sample::select(OPERATIONS.to_vec()), by.clone(), constant()).prop_map(
            |(operation, by, k)| instruction(BPF_ALU | operation | by, 0, 0, k.max(1))
        ),
        3 => (prop::sample::select(SHIFTS.to_vec()), by.clone(), 0..32_u32)
            .prop_map(|(operation, by, k)| instruction(BPF_ALU | operation | by, 0, 0, k)),
        3 => (prop::sample::select(COMPARISONS.to_vec()), by, constant(), 0..4_u8, 0..4_u8)
            .prop_map(|(of, by, k, jt, jf)| instruction(BPF_JMP | of | by, jt, jf, k)),
        1 => (0..4_u32).prop_map(|k| instruction(BPF_JMP | libc::BPF_JA, 0, 0, k)),
        1 => action.prop_map(|k| instruction(BPF_RET | BPF_K, 0, 0, k)),
    ]
}

/// Any instruction. The kernel accepts few of them.
fn any_instruction() -> impl Strategy<Value = sock_filter> {
    (0..0x100_u32, any::<u8>(), any::<u8>(), constant())
        .prop_map(|(code, jt, jf, k)| instruction(code, jt, jf, k))
}

fn arguments() -> impl Strategy<Value = [u64; 6]> {
    any::<[u64; 6]>()
}

/// Our verdict and the kernel's, for a call with these arguments.
fn compare(program: &[sock_filter], args: [u64; 6]) -> Result<Verdict, Error> {
    let call = Call { nr: GETPID, args, ip: address_of_call() };
    let verdict = evaluate(program, &call);
    let answer = ask(program, &call);
    assert!(expected(verdict)(answer), "{verdict:?}, but the kernel: {answer:?}");
    verdict
}

proptest! {
    #[test]
    fn verdicts_are_those_of_the_kernel(
        body in prop::collection::vec(known(), 1..24),
        shift in prop::sample::select(vec![0, 12, 20]),
        args in arguments(),
    ) {
        let _ = compare(&around(&body, shift), args);
    }

    #[test]
    fn filters_refused_by_the_kernel_are_refused(
        body in prop::collection::vec(known(), 0..4),
        odd in any_instruction(),
        args in arguments(),
    ) {
        let mut body = body;
        body.push(odd);
        let _ = compare(&around(&body, 0), args);
    }
}

/// Tests each of the 256 codes with four constants, one code in a filter.
#[test]
fn every_filter_is_accepted_or_refused_as_by_the_kernel() {
    let mut taken = 0;
    for code in 0..0x100 {
        for k in [0, 1, 16, 64] {
            let body = [
                instruction(BPF_ST, 0, 0, 0),
                instruction(BPF_ST, 0, 0, 1),
                instruction(BPF_LDX | BPF_W | BPF_IMM, 0, 0, 7),
                instruction(code, 1, 0, k),
            ];
            taken += usize::from(compare(&around(&body, 0), [3; 6]).is_ok());
        }
    }
    assert!((60..200).contains(&taken), "{taken}");
}

/// Codes are 16 bits wide, and the kernel checks all 16 bits.
#[test]
fn codes_of_more_than_eight_bits_are_refused() {
    for code in [0x106, 0x8006, 0x100] {
        assert!(compare(&around(&[instruction(code, 0, 0, 1)], 0), [0; 6]).is_err());
    }
}

#[test]
fn a_program_of_4096_instructions_is_the_longest() {
    let mut body = vec![instruction(BPF_ALU | libc::BPF_ADD | BPF_K, 0, 0, 1); 4096 - 7];
    let longest = compare(&around(&body, 0), [0; 6]);
    let sum = (GETPID as u32 + 4089) & 0xfff;
    assert_eq!(longest, Ok(Verdict::Refuse { action: libc::SECCOMP_RET_ERRNO | sum }));
    body.push(body[0]);
    assert_eq!(compare(&around(&body, 0), [0; 6]), Err(Error::Length { instructions: 4097 }));
    assert_eq!(compare(&[], [0; 6]), Err(Error::Length { instructions: 0 }));
}

/// Both halves of every field of `struct seccomp_data`, the instruction pointer too.
#[test]
fn every_word_of_the_data_is_that_of_the_kernel() {
    for word in 0..16 {
        for shift in [0, 12, 20] {
            let body = [instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, word * 4)];
            let args = std::array::from_fn(|number| {
                0x1234_5678_9abc_def0_u64.rotate_left(number as u32 * 7)
            });
            assert!(compare(&around(&body, shift), args).is_ok());
        }
    }
}

/// Tests values at the ends of 32 bits, with the other operand in X. The kernel refuses a shift by
/// 32 or more only if the distance is a constant.
#[test]
fn arithmetic_and_comparisons_agree_with_the_kernel() {
    let operations = OPERATIONS.iter().chain(&SHIFTS).map(|operation| BPF_ALU | operation);
    let comparisons = COMPARISONS.iter().map(|comparison| BPF_JMP | comparison);
    let codes: Vec<u32> = operations.chain(comparisons).collect();
    for code in codes {
        for a in [0, 1, 32, 0x8000_0000, u32::MAX] {
            for x in [0, 1, 31, 32, 33, 0x8000_0000, u32::MAX] {
                let body = [
                    instruction(BPF_LD | BPF_IMM, 0, 0, a),
                    instruction(BPF_LDX | BPF_W | BPF_IMM, 0, 0, x),
                    // Arithmetic has no jumps: both of its fields are ignored.
                    instruction(code | BPF_X, 1, 0, 0),
                    instruction(BPF_ALU | libc::BPF_ADD | BPF_K, 0, 0, 0x10_0100),
                ];
                for shift in [0, 12, 20] {
                    // Negation has one operand.
                    let is_binary = code != BPF_ALU | libc::BPF_NEG;
                    assert_eq!(compare(&around(&body, shift), [0; 6]).is_ok(), is_binary);
                }
            }
        }
    }
}
