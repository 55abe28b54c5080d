use super::*;
use std::io::Write;

const NAMES: &[&str] = &["malloc", "free", "cfree"];

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
    let mut places: Vec<_> = table.places(&file, NAMES).unwrap().into_iter().collect();
    places.sort();
    // The last `free` has no end and is no string.
    assert_eq!(places, [(2, "malloc"), (9, "cfree"), (10, "free"), (15, "malloc")]);
}

#[test]
fn names_across_the_end_of_a_chunk_are_found() {
    for end in (CHUNK_BYTES as usize - 8)..(CHUNK_BYTES as usize + 8) {
        let mut strings = vec![b'x'; 2 * CHUNK_BYTES as usize + 100];
        strings[end - 6..=end].copy_from_slice(b"malloc\0");
        let (file, table) = table(&strings, &[]);
        let places: Vec<_> = table.places(&file, NAMES).unwrap().into_iter().collect();
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
    let svmas: Vec<_> =
        table.functions(&file, NAMES).unwrap().iter().map(|symbol| symbol.svma as usize).collect();
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
    let found = table.functions(&file, NAMES).unwrap();
    let seen: Vec<_> = found.iter().map(|symbol| (symbol.svma, symbol.is_local)).collect();
    assert_eq!(seen, [(5, false), (6, true)]);
}

#[test]
fn a_table_full_of_the_same_name_is_cut() {
    let (file, table) = table(b"\0free\0", &vec![symbol(1, 0x12, 1, 7); 3 * FOUND]);
    assert_eq!(table.functions(&file, NAMES).unwrap().len(), FOUND);
}
