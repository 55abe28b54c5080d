//! Files are read back by the Parquet library's own reader.

use super::*;
use crate::encode::push::{CodeFile, Draw, Frame, ServiceTotals, Stack, merged};
use crate::estimate::RowMoments;
use crate::profile::Line;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

fn line(function: &str) -> Line {
    Line { function: function.into(), ..Line::default() }
}

fn row(service: u32, frames: &[u32], size: f64, inclusion: f64) -> Stack {
    let mut moments = RowMoments::default();
    moments.alloc_space.add_sample(size, inclusion);
    moments.alloc_objects.add_sample(1.0, inclusion);
    moments.inuse_space.add_sample(size / 2.0, inclusion);
    Stack { service, frames: frames.to_vec(), moments }
}

fn push(kind: Kind) -> Push {
    let service = |name: &str, label: &[(&str, &str)]| {
        let own = [("service.name", name), ("host.name", "h"), ("container.name", "c")];
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        own.iter().chain(label).map(owned).collect()
    };
    let address = |address| Frame { code: Some((0, address)), lines: vec![line("f")] };
    let name = |function| Frame { code: None, lines: vec![line(function)] };
    Push {
        kind,
        start_unix_ns: 1_764_421_234_567_891_234,
        duration_ns: if kind == Kind::Alloc { 60_000_000_000 } else { 0 },
        interval_bytes: 512,
        draw: Draw { inclusion: 0.5, day: 20_421, is_drawn: true },
        services: vec![service("a", &[("env", "x"), ("zone", "y")]), service("b", &[])],
        totals: vec![
            ServiceTotals { processes: 2, exact: Some((1000, 10)) },
            ServiceTotals { processes: 1, exact: None },
        ],
        files: vec![CodeFile { path: "/x".into(), build_id: "01".into(), htlhash: "02".into() }],
        frames: vec![address(7), address(u64::MAX), name("[jit 41]+0x7f"), name("[jit 9]+0x8")],
        stacks: merged([
            row(0, &[0, 1], 100.0, 0.25),
            row(0, &[0, 2], 16.0, 0.5),
            row(0, &[0, 3], 16.0, 0.5),
            row(0, &[], 8.0, 1.0),
        ]),
    }
}

fn rows(files: &Files, table: Table) -> Vec<Row> {
    let file = files.files.iter().find(|file| file.table == table);
    let Some(file) = file else { return Vec::new() };
    let reader = SerializedFileReader::new(bytes::Bytes::from(file.bytes.clone())).unwrap();
    let keys = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    assert!(keys.iter().any(|of| of.key == "sampler.schema" && of.value == Some("1".into())));
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn value(row: &Row, name: &str) -> Field {
    row.get_column_iter().find(|(of, _)| *of == name).map(|(_, field)| field.clone()).unwrap()
}

fn longs(rows: &[Row], name: &str) -> Vec<i64> {
    let long = |row| match value(row, name) {
        Field::Long(value) | Field::TimestampMicros(value) => value,
        Field::Int(value) => value.into(),
        field => panic!("{field}"),
    };
    rows.iter().map(long).collect()
}

#[test]
fn moments_are_read_back_as_they_were() {
    let files = files(&[push(Kind::Alloc), push(Kind::Live)], &Known::default()).unwrap();
    let alloc = rows(&files, Table::Alloc);
    // The two places without a name are one stack.
    assert_eq!(alloc.len(), 3);
    assert_eq!(longs(&alloc, "ts"), [1_764_421_234_567_891; 3]);
    let of = |name| longs(&alloc, name).iter().sum::<i64>();
    assert_eq!(["samples", "bytes", "bytes_own"].map(of), [4, 400 + 64 + 8, 100 + 32 + 8]);
    let quarter = alloc.iter().find(|row| value(row, "bytes") == Field::Long(400)).unwrap();
    assert_eq!(value(quarter, "bytes_var"), Field::Double(400.0 * 400.0 * 0.75));
    assert_eq!(value(quarter, "bytes_top"), Field::Float(300.0));
    assert_eq!(value(quarter, "bytes_top2"), Field::Float(400.0 * 400.0 * 0.75));
    assert_eq!(value(quarter, "objects"), Field::Double(4.0));
    let live = rows(&files, Table::Live);
    assert_eq!(longs(&live, "bytes").iter().sum::<i64>(), 200 + 32 + 4);
    assert_eq!(longs(&live, "window_ns"), [0; 3]);
}

#[test]
fn services_without_samples_are_covered() {
    let files = files(&[push(Kind::Alloc)], &Known::default()).unwrap();
    assert_eq!(files.files.last().map(|of| of.table), Some(Table::Coverage));
    let coverage = rows(&files, Table::Coverage);
    assert_eq!(longs(&coverage, "processes"), [2, 1]);
    assert_eq!((longs(&coverage, "day"), longs(&coverage, "drawn")), (vec![20_421; 2], vec![1; 2]));
    assert_eq!(value(&coverage[0], "inclusion"), Field::Double(0.5));
    let exact: Vec<Field> = coverage.iter().map(|row| value(row, "exact_bytes")).collect();
    assert_eq!(exact, [Field::Long(1000), Field::Null]);
    let labels: Vec<String> = coverage.iter().map(|of| value(of, "labels").to_string()).collect();
    assert_eq!(labels, [r#"{"env" -> "x", "zone" -> "y"}"#, "{}"]);
}

#[test]
fn a_host_that_was_not_drawn_has_a_coverage_only() {
    let draw = Draw { inclusion: 0.5, day: 20_421, is_drawn: false };
    let push = Push { draw, stacks: Vec::new(), frames: Vec::new(), ..push(Kind::Alloc) };
    let files = files(&[push], &Known::default()).unwrap();
    let tables: Vec<Table> = files.files.iter().map(|file| file.table).collect();
    assert_eq!(tables, [Table::Coverage]);
    let coverage = rows(&files, Table::Coverage);
    assert_eq!(longs(&coverage, "drawn"), [0, 0]);
    assert_eq!(value(&coverage[0], "exact_bytes"), Field::Long(1000));
}

#[test]
fn dictionary_rows_are_written_once() {
    let mut known = Known::default();
    let first = files(&[push(Kind::Alloc), push(Kind::Live)], &known).unwrap();
    let stacks = rows(&first, Table::Stacks);
    assert_eq!(longs(&stacks, "depth").iter().filter(|depth| **depth == 0).count(), 3);
    assert_eq!(rows(&first, Table::Mappings).len(), 1);
    // Two places, one name without an address, and one for rows without a stack.
    assert_eq!(longs(&rows(&first, Table::Frames), "address"), [7, -1, 0, 0]);
    let symbols = rows(&first, Table::Symbols);
    let names: Vec<Field> = symbols.iter().map(|row| value(row, "function")).collect();
    assert_eq!(names, ["f", "f", "[jit]", "[no stack]"].map(|of| Field::Str(of.into())));
    known.add(&first.new);
    let second = files(&[push(Kind::Alloc)], &known).unwrap();
    let tables: Vec<Table> = second.files.iter().map(|file| file.table).collect();
    assert_eq!(tables, [Table::Alloc, Table::Coverage]);
    let ids = |files| longs(&rows(files, Table::Alloc), "stack_id");
    assert_eq!(ids(&first), ids(&second));
    // A better name of a place that is known.
    let mut renamed = push(Kind::Alloc);
    renamed.frames[0].lines[0].file = "f.c".into();
    let third = files(&[renamed], &known).unwrap();
    assert_eq!(longs(&rows(&third, Table::Symbols), "quality"), [2]);
    assert_eq!(rows(&third, Table::Stacks).len(), 0);
}

#[test]
fn every_column_is_described() {
    let page = include_str!("../../../../docs/fleet/tables.md");
    for table in Table::ALL {
        assert!(page.contains(&format!("`{}`", table.name())), "{}", table.name());
        let schema = parquet::schema::parser::parse_message_type(&table.schema()).unwrap();
        for field in schema.get_fields() {
            assert!(page.contains(&format!("`{}`", field.name())), "{}", field.name());
        }
    }
}
