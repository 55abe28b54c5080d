//! The table of source lines of a code object, in the three formats of CPython.
//!
//! 3.11 and newer (`co_linetable`), plainly: the table is a run of entries. Each entry covers 1 to
//! 8 code units, and has the difference between its line and the line of the previous entry. An
//! entry begins with a byte `1 CCCC LLL`: a kind, and the number of units less one. Reference:
//! `Objects/locations.md` of CPython 3.11 (`InternalDocs/code_objects.md` of newer versions).

/// The entry has no line.
const NO_LINE: u8 = 15;
/// A difference, then the last line and both columns as varints.
const LONG: u8 = 14;
/// A difference only.
const NO_COLUMNS: u8 = 13;
/// The first of three kinds whose number gives the difference (0 to 2), with two bytes of columns.
const ONE_LINE: u8 = 10;

/// A line of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The line of this number.
    Line(u32),
    /// The compiler generated the instruction without a line.
    NoLine,
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The format of 3.11 and newer.
    Locations,
    /// The format of 3.10 (PEP 626): pairs of a number of bytes of code and a line difference.
    /// −128: the bytes have no line.
    Pairs,
    /// The format of 3.9 and older (`co_lnotab`): pairs of the number of bytes of code before the
    /// next line, and the line difference.
    Increments,
}

impl Table {
    /// The line of a code unit, which is two bytes; `None` if the table does not cover the unit or
    /// is malformed.
    pub(super) fn line(self, table: &[u8], first_line: u32, unit: u64) -> Option<Location> {
        match self {
            Table::Locations => line(table, first_line, unit),
            Table::Pairs => line_by_pairs(table, first_line, unit.checked_mul(2)?),
            Table::Increments => line_by_increments(table, first_line, unit.checked_mul(2)?),
        }
    }
}

fn line_by_pairs(table: &[u8], first_line: u32, byte: u64) -> Option<Location> {
    const NONE: i8 = -128;
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    for pair in table.as_chunks::<2>().0 {
        let delta = pair[1].cast_signed();
        end += u64::from(pair[0]);
        line += if delta == NONE { 0 } else { i64::from(delta) };
        if byte < end {
            return match delta {
                NONE => Some(Location::NoLine),
                _ => u32::try_from(line).ok().map(Location::Line),
            };
        }
    }
    None
}

fn line_by_increments(table: &[u8], first_line: u32, byte: u64) -> Option<Location> {
    let (mut line, mut at) = (i64::from(first_line), 0u64);
    for pair in table.as_chunks::<2>().0 {
        at += u64::from(pair[0]);
        if at > byte {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    u32::try_from(line).ok().map(Location::Line)
}

/// The line of a code unit in the format of 3.11 and newer.
fn line(table: &[u8], first_line: u32, unit: u64) -> Option<Location> {
    let mut bytes = table.iter().copied();
    let (mut line, mut covered) = (i64::from(first_line), 0u64);
    loop {
        let head = bytes.next().filter(|head| head & 0x80 != 0)?;
        let kind = head >> 3 & 0xf;
        let skipped = match kind {
            NO_LINE => 0,
            LONG | NO_COLUMNS => {
                line = line.checked_add(signed(varint(&mut bytes)?))?;
                if kind == LONG { 3 } else { 0 }
            }
            ONE_LINE..NO_COLUMNS => {
                line = line.checked_add(i64::from(kind - ONE_LINE))?;
                2
            }
            // No difference, and one byte of columns.
            _ => 1,
        };
        for _ in 0..skipped {
            match kind {
                LONG => drop(varint(&mut bytes)?),
                _ => drop(bytes.next()?),
            }
        }
        covered += u64::from(head & 7) + 1;
        if unit < covered {
            return match kind {
                NO_LINE => Some(Location::NoLine),
                _ => u32::try_from(line).ok().map(Location::Line),
            };
        }
    }
}

/// Reads a number with six bits in each byte, the lowest first. Bit 6 of a byte tells that another
/// byte follows.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..36).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            return Some(value);
        }
    }
    None
}

/// Decodes a signed number, whose lowest bit is the sign.
fn signed(value: u64) -> i64 {
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn push_varint(table: &mut Vec<u8>, mut value: u64) {
        while value >= 0x40 {
            table.push(0x40 | (value & 0x3f) as u8);
            value >>= 6;
        }
        table.push(value as u8);
    }

    fn push_signed(table: &mut Vec<u8>, value: i64) {
        push_varint(table, value.unsigned_abs() << 1 | u64::from(value < 0));
    }

    /// Appends one entry: its number of units, and the difference of its line, `None` for no line.
    fn push_entry(table: &mut Vec<u8>, units: u8, delta: Option<i64>, long: bool) {
        let mut head = |kind: u8| table.push(0x80 | kind << 3 | (units - 1));
        match delta {
            None => head(NO_LINE),
            Some(delta) if long => {
                head(LONG);
                push_signed(table, delta);
                (0..3).for_each(|of| push_varint(table, 70 * of));
            }
            Some(0) => {
                head(units);
                table.push(0x12);
            }
            Some(delta @ 1..=2) => {
                head(ONE_LINE + delta as u8);
                table.extend([0x80, 0xff]);
            }
            Some(delta) => {
                head(NO_COLUMNS);
                push_signed(table, delta);
            }
        }
    }

    proptest! {
        #[test]
        fn encoded_line_tables_are_read_back(
            first_line in 1_000_000_u32..2_000_000,
            entries in prop::collection::vec((1_u8..=8, prop::option::of(-9000_i64..9000), any::<bool>()), 1..60),
        ) {
            let (mut table, mut expected) = (Vec::new(), Vec::new());
            let mut line = i64::from(first_line);
            for (units, delta, long) in entries {
                push_entry(&mut table, units, delta, long);
                line += delta.unwrap_or(0);
                let location = delta.map_or(Location::NoLine, |_| Location::Line(line as u32));
                expected.extend((0..units).map(|_| location));
            }
            for (unit, location) in (0..).zip(&expected) {
                prop_assert_eq!(super::line(&table, first_line, unit), Some(*location));
            }
            prop_assert_eq!(super::line(&table, first_line, expected.len() as u64), None);
        }

        #[test]
        fn any_line_table_is_read_to_an_end(table: Vec<u8>, first_line: u32, unit: u64) {
            for kind in [Table::Locations, Table::Pairs, Table::Increments] {
                let _ = kind.line(&table, first_line, unit);
            }
        }
    }

    #[test]
    fn tables_of_older_versions_are_read() {
        let lines =
            |of: Table, table: &[u8], units: [u64; 5]| units.map(|unit| of.line(table, 10, unit));
        let line = |line| Some(Location::Line(line));
        // Two units of line 11, one unit without a line, two units of line 9.
        let pairs = [4, 1, 2, 0x80, 4, 0xfe];
        let expected = [line(11), Some(Location::NoLine), line(9), line(9), None];
        assert_eq!(lines(Table::Pairs, &pairs, [1, 2, 3, 4, 5]), expected);
        // Two units of line 10, two units of line 300 (in two steps), and line 299 for all further
        // units.
        let increments = [4, 127, 0, 127, 0, 36, 4, 0xff];
        let expected = [line(10), line(300), line(300), line(299), line(299)];
        assert_eq!(lines(Table::Increments, &increments, [1, 2, 3, 4, 900]), expected);
    }

    /// Prints table, first line and the lines of all units of every code object of some modules.
    const DUMP: &str = r"
import argparse, decimal, inspect, json.decoder, sys, types, typing
if sys.version_info < (3, 11): sys.exit(3)
def dump(code):
    lines = [-1 if position[0] is None else position[0] for position in code.co_positions()]
    print(code.co_linetable.hex(), code.co_firstlineno, *lines)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType): dump(constant)
for module in argparse, inspect, json.decoder, typing:
    with open(module.__file__, encoding='utf-8') as source: text = source.read()
    dump(compile(text, module.__file__, 'exec'))
";

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// The oracle is CPython itself.
    #[test]
    fn lines_equal_those_of_cpython() {
        let dumped = Command::new("python3").args(["-I", "-c", DUMP]).output();
        let dumped = match dumped {
            Ok(dumped) if dumped.status.code() != Some(3) => dumped,
            _ => return eprintln!("NOT TESTED: there is no python3 of version 3.11 or newer"),
        };
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        let mut units = 0;
        for text in String::from_utf8(dumped.stdout).unwrap().lines() {
            let mut words = text.split(' ');
            let table = bytes(words.next().unwrap());
            let first_line = words.next().unwrap().parse().unwrap();
            for (unit, expected) in (0..).zip(words) {
                let location = line(&table, first_line, unit);
                let expected = match expected.parse() {
                    Ok(line) => Location::Line(line),
                    Err(_) => Location::NoLine,
                };
                assert_eq!(location, Some(expected), "unit {unit} of {text}");
                units += 1;
            }
        }
        assert!(units > 50_000, "only {units}");
    }
}
