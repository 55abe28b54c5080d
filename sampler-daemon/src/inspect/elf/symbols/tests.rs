use super::*;
use std::io::Write;

const NAMES: Wanted<'static> =
    Wanted { prefix: "", names: &["malloc", "free", "cfree"], unique_names: &["malloc"] };

fn symbol(name: u32, info: u8, section: u16, svma: u64) -> Vec<u8> {
    let mut bytes = name.to_le_bytes().to_vec();
    bytes.extend([info, 0]);
    bytes.extend(section.to_le_bytes());
    bytes.extend(svma.to_le_bytes());
    bytes.extend(16u64.to_le_bytes());
    bytes
}

/// A file of strings and symbols, and the table that describes it.
fn table(strings: &[u8], symbols: &[Vec<u8>]) -> (File, Table) {
    let symbols = symbols.concat();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(strings).unwrap();
    file.write_all(&symbols).unwrap();
    let strings = Range { offset: 0, size: strings.len() as u64 };
    let symbols = Range { offset: strings.size, size: symbols.len() as u64 };
    (file, Table { symbols, strings, versions: None })
}

#[test]
fn names_that_share_their_tail_are_found() {
    let strings = b"\0xmalloc\0cfree\0malloc\0mallocx\0free";
    let (file, table) = table(strings, &[]);
    let mut places: Vec<_> = table.places(&file, &NAMES).unwrap().names.into_iter().collect();
    places.sort();
    // The last `free` has no final zero, and is no string.
    assert_eq!(places, [(2, "malloc"), (9, "cfree"), (10, "free"), (15, "malloc")]);
}

#[test]
fn names_across_the_end_of_a_chunk_are_found() {
    for end in (CHUNK_BYTES as usize - 8)..(CHUNK_BYTES as usize + 8) {
        let mut strings = vec![b'x'; 2 * CHUNK_BYTES as usize + 100];
        strings[end - 6..=end].copy_from_slice(b"malloc\0");
        let (file, table) = table(&strings, &[]);
        let places: Vec<_> = table.places(&file, &NAMES).unwrap().names.into_iter().collect();
        assert_eq!(places, [(end as u32 - 6, "malloc")]);
    }
}

#[test]
fn symbols_in_every_chunk_are_found() {
    let chunk = (CHUNK_BYTES / SYMBOL_BYTES) as usize;
    let mut symbols = vec![symbol(0, 0x12, 1, 0); 3 * chunk - 5];
    let last = symbols.len() - 1;
    for index in [0, chunk - 1, chunk, 2 * chunk, last] {
        symbols[index] = symbol(1, 0x12, 1, index as u64);
    }
    let (file, table) = table(b"\0malloc\0", &symbols);
    let svmas: Vec<_> = table
        .functions(&file, &NAMES)
        .unwrap()
        .functions
        .iter()
        .map(|symbol| symbol.svma as usize)
        .collect();
    assert_eq!(svmas, [0, chunk - 1, chunk, 2 * chunk, last]);
}

#[test]
fn only_defined_functions_count() {
    let symbols = [
        symbol(1, 0x12, 0, 1), // not defined here
        symbol(1, 0x11, 1, 2), // an object
        symbol(1, 0x1a, 1, 3), // chooses an implementation
        symbol(2, 0x12, 1, 4), // `alloc`
        symbol(1, 0x22, 1, 5), // weak
        symbol(1, 0x02, 1, 6), // local
    ];
    let (file, table) = table(b"\0malloc\0", &symbols);
    let found = table.functions(&file, &NAMES).unwrap().functions;
    let seen: Vec<_> = found.iter().map(|symbol| (symbol.svma, symbol.is_local)).collect();
    assert_eq!(seen, [(5, false), (6, true)]);
}

#[test]
fn a_table_full_of_the_same_name_is_cut() {
    let (file, table) = table(b"\0free\0", &vec![symbol(1, 0x12, 1, 7); 3 * MAX_FOUND_SYMBOLS]);
    assert_eq!(table.functions(&file, &NAMES).unwrap().functions.len(), MAX_FOUND_SYMBOLS);
}

#[test]
fn names_are_found_behind_a_prefix() {
    let strings = b"\0je_malloc\0x_je_free\0free\0a+b_malloc\0y_malloc\0_malloc\0";
    let (file, table) = table(strings, &[symbol(1, 0x02, 1, 1), symbol(13, 0x02, 1, 2)]);
    let found = table.functions(&file, &NAMES).unwrap();
    let prefixes: Vec<_> = found.prefixes.iter().map(String::as_str).collect();
    assert_eq!(prefixes, ["_", "je_", "y_"]);
    assert!(found.functions.is_empty());
    let behind = table.functions(&file, &Wanted { prefix: "je_", ..NAMES }).unwrap();
    let seen: Vec<_> = behind.functions.iter().map(|of| (of.name, of.svma)).collect();
    assert_eq!(seen, [("malloc", 1), ("free", 2)]);
}

#[test]
fn prefixes_are_few_and_short() {
    let mut strings = vec![0];
    for number in 0..3 * PREFIXES {
        strings.extend(format!("p{number}_malloc\0").into_bytes());
    }
    let (file, many) = table(&strings, &[]);
    assert_eq!(many.places(&file, &NAMES).unwrap().prefixes.len(), PREFIXES);
    let long = format!("\0{}malloc\0", "x".repeat(PREFIX_BYTES + 1));
    let (file, long) = table(long.as_bytes(), &[]);
    assert!(long.places(&file, &NAMES).unwrap().prefixes.is_empty());
}
