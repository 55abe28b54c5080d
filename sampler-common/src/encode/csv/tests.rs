use super::super::fixture;
use super::*;
use crate::profile::Kind;
use std::collections::HashMap;

fn written(profile: &Profile) -> String {
    String::from_utf8(fixture::encoded(&Csv, profile)).unwrap()
}

/// A reader of RFC 4180, with its quotes.
fn read(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (vec![], vec![], String::new(), false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => cell.extend(rest.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !quoted => {
                assert_eq!(rest.next(), Some('\n'));
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    assert!(row.is_empty() && cell.is_empty() && !quoted, "no end of line");
    rows
}

/// The rows as maps by column name.
fn table(text: &str) -> Vec<HashMap<String, String>> {
    let mut rows = read(text);
    let header = rows.remove(0);
    assert!(rows.iter().all(|row| row.len() == header.len()), "{rows:?}");
    rows.into_iter().map(|row| header.iter().cloned().zip(row).collect()).collect()
}

#[test]
fn golden() {
    fixture::golden("alloc.csv", written(&fixture::profile(Kind::Alloc)));
}

#[test]
fn every_estimate_is_written_with_its_interval() {
    let profile = fixture::profile(Kind::Live);
    let rows = table(&written(&profile));
    let stacks: Vec<_> = rows.iter().filter(|row| row["row"] == "stack").collect();
    assert_eq!(stacks.len(), profile.stacks.len());
    for (row, stack) in stacks.iter().zip(&profile.stacks) {
        let quantities = &stack.quantities;
        for (name, of) in [
            ("alloc_space", quantities.alloc_space),
            ("alloc_objects", quantities.alloc_objects),
            ("inuse_space", quantities.inuse_space),
            ("inuse_objects", quantities.inuse_objects),
        ] {
            let number = |end: &str| row[&format!("{name}{end}")].parse::<f64>().unwrap();
            assert_eq!(number(""), of.estimate.value);
            assert_eq!(number("_low"), of.estimate.low);
            assert_eq!(number("_high"), of.estimate.high);
            assert_eq!(number("_samples"), of.estimate.samples as f64);
        }
        assert_eq!(row["pid"], stack.pid.to_string());
        let frames: Vec<_> = profile.frames(stack).map(|line| &line.function).cloned().collect();
        assert_eq!(row["stack"], frames.join(";"));
    }
    let kinds: Vec<_> = rows.iter().map(|row| row["row"].as_str()).take(6).collect();
    assert_eq!(kinds, ["total", "exact", "lost", "lost", "cost", "note"]);
}

#[test]
fn a_stride_has_no_upper_end() {
    let rows = table(&written(&fixture::stride()));
    let total = &rows[0];
    assert_eq!((&*total["alloc_space_high"], &*total["alloc_space_method"]), ("", "stride"));
    assert!(total["alloc_space_low"].parse::<f64>().is_ok());
}

#[test]
fn hostile_names_stay_in_their_cell_and_form_no_formula() {
    let mut profile = fixture::hostile();
    profile.locations[2].lines[0].function = "=cmd|' /C calc'!A0".into();
    profile.locations[3].lines[0].function = " \t@SUM(1,2)\"\r\n".into();
    profile.notes = vec!["-1+1,\"".into()];
    let text = written(&profile);
    let rows = table(&text);
    assert_eq!(text.lines().count(), rows.len() + 1, "one line for each row");
    for row in &rows {
        assert!(!row["stack"].trim_start().starts_with(['=', '+', '-', '@']), "{:?}", row["stack"]);
    }
    let of = |start: &str| rows.iter().filter(|row| row["stack"].starts_with(start)).count();
    assert_eq!((of("'=cmd"), of("'  @SUM"), of("'-1+1,\"")), (1, 1, 1), "{text}");
}

#[test]
fn an_empty_profile_has_rows_of_totals_only() {
    let rows = table(&written(&fixture::empty()));
    assert!(rows.iter().all(|row| row["row"] != "stack"));
    assert_eq!(rows[0]["alloc_space"], "0");
}
