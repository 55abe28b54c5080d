use super::*;

/// free of glibc 2.36.
const FREE: &[u8] = &[
    0x48, 0x85, 0xff, 0x0f, 0x84, 0xaf, 0x00, 0x00, 0x00, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48,
    0x8b, 0x1d, 0x4e, 0xf4, 0x14, 0x00, 0x64, 0x8b, 0x2b, 0x90, 0x90, 0x90, 0x90, 0x90,
];

#[test]
fn free_is_hooked_at_its_entry_behind_its_rex_prefix_and_behind_its_null_check() {
    let function = Function {
        entry: 0x7f00_0000_0000,
        bytes: FREE,
        is_whole: true,
        arguments: 1,
        is_free: true,
    };
    let offsets: Vec<u64> =
        places(&function).iter().map(|place| place.patch - function.entry).collect();
    assert_eq!(offsets[..4], [0, 1, 3, 9]);
}
