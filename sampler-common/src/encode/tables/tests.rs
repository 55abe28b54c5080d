//! Files are read back by the Parquet library's own reader of rows, and by ours.

use super::*;
use crate::encode::push::{CodeFile, Draw, Frame, ServiceTotals, Stack, merged};
use crate::estimate::RowMoments;
use crate::profile::Line;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

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
    let files = files(&[push(Kind::Alloc), push(Kind::Live)], &WrittenRows::default()).unwrap();
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
    let files = files(&[push(Kind::Alloc)], &WrittenRows::default()).unwrap();
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
    let files = files(&[push], &WrittenRows::default()).unwrap();
    let tables: Vec<Table> = files.files.iter().map(|file| file.table).collect();
    assert_eq!(tables, [Table::Coverage]);
    let coverage = rows(&files, Table::Coverage);
    assert_eq!(longs(&coverage, "drawn"), [0, 0]);
    assert_eq!(value(&coverage[0], "exact_bytes"), Field::Long(1000));
}

#[test]
fn dictionary_rows_are_written_once() {
    let mut known = WrittenRows::default();
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
fn a_frame_whose_names_are_left_to_others_has_its_place() {
    let mut push = push(Kind::Alloc);
    push.files[0].path = "/usr/bin/x y".into();
    push.frames.iter_mut().filter(|frame| frame.code.is_some()).for_each(|of| of.lines.clear());
    let files = files(&[push], &WrittenRows::default()).unwrap();
    let symbols = rows(&files, Table::Symbols);
    let names: Vec<Field> = symbols.iter().map(|row| value(row, "function")).collect();
    let expected = ["x y+0x7", "x y+0xffffffffffffffff", "[jit]", "[no stack]"];
    assert_eq!(names, expected.map(|of| Field::Str(of.into())));
    assert_eq!(longs(&symbols, "quality"), [0, 0, 0, 1]);
}

/// The contents of a table's file.
fn bytes(files: &Files, table: Table) -> Vec<u8> {
    files.files.iter().find(|file| file.table == table).unwrap().bytes.clone()
}

/// The files of a push with these code files, and these addresses and names in them.
fn dictionaries(code: &[(String, String)], places: &[(usize, u64, Vec<Line>)]) -> (Push, Files) {
    let file = |(path, build_id): &(String, String)| CodeFile {
        path: path.clone(),
        build_id: build_id.clone(),
        htlhash: "ab".into(),
    };
    let code: Vec<CodeFile> = code.iter().map(file).collect();
    let frame = |(file, address, lines): &(usize, u64, Vec<Line>)| Frame {
        code: Some(((file % code.len()) as u32, *address)),
        lines: lines.clone(),
    };
    let frames: Vec<Frame> = places.iter().map(frame).collect();
    let all: Vec<u32> = (0..frames.len() as u32).collect();
    let stacks = merged([row(0, &all, 16.0, 0.5)]);
    let push = Push { files: code, frames, stacks, ..push(Kind::Alloc) };
    let files = files(std::slice::from_ref(&push), &WrittenRows::default()).unwrap();
    (push, files)
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let line = ("[a-z+é]{1,5}", "[a-z./]{0,5}", any::<u16>());
    let line = line.prop_map(|(function, file, line)| Line { function, file, line: line.into() });
    prop::collection::vec(line, 0..3)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        code in prop::collection::vec(("[a-z/é]{0,9}", "[0-9a-f]{0,4}"), 1..4),
        places in prop::collection::vec((0..9_usize, any::<u64>(), lines()), 0..40),
        names in prop::collection::vec((any::<i64>(), lines()), 0..40),
    ) {
        let (push, files) = dictionaries(&code, &places);
        let id = |file: &CodeFile| identity::file_id(file).to_owned();
        let read = frames(bytes(&files, Table::Frames)).unwrap();
        // Without frames there is the one for rows that have no stack.
        let read = read.into_iter().filter(|row| !row.build_id.is_empty());
        let read: BTreeSet<(i64, String, u64)> =
            read.map(|row| (row.frame_id, row.build_id, row.address)).collect();
        let expected: BTreeSet<(i64, String, u64)> = push.frames.iter().map(|frame| {
            let (file, address) = frame.code.unwrap();
            (identity::frame_id(frame, &push.files), id(&push.files[file as usize]), address)
        }).collect();
        prop_assert_eq!(read, expected);
        let read = mappings(bytes(&files, Table::Mappings)).unwrap();
        let read: BTreeSet<[String; 3]> =
            read.into_iter().map(|row| [row.build_id, row.htlhash, row.path]).collect();
        let expected: BTreeSet<[String; 3]> = push.files.iter()
            .map(|file| [id(file), file.htlhash.clone(), file.path.clone()]).collect();
        prop_assert_eq!(read, expected);
        // Names that came later.
        let given = names.iter().map(|(id, lines)| (*id, &lines[..]));
        let read = qualities(symbols(given).unwrap().bytes).unwrap();
        let expected = names.iter().flat_map(|(id, lines)| {
            lines.iter().map(|_| (*id, identity::quality(lines)))
        });
        prop_assert_eq!(read, expected.collect::<Vec<_>>());
    }

    /// Reading a damaged file ends, with rows or an error.
    #[test]
    fn a_damaged_file_harms_nothing(at in any::<prop::sample::Index>(), byte in any::<u8>(), end in any::<prop::sample::Index>()) {
        let place = (0, 7, vec![line("f")]);
        let (_, files) = dictionaries(&[("/x".into(), "01".into())], &[place]);
        for table in [Table::Frames, Table::Mappings, Table::Symbols] {
            let mut damaged = bytes(&files, table);
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let cut = damaged[..end.index(damaged.len())].to_vec();
            for bytes in [damaged, cut.clone()] {
                let _ = frames(bytes.clone());
                let _ = mappings(bytes.clone());
                let _ = qualities(bytes);
            }
            prop_assert!(frames(cut).is_err());
        }
    }
}

/// A file of `frames` with two rows, as an engine may write it. The second row has this address.
fn of_engine(keys: &[(&str, &str)], repetition: &str, address: Option<i64>) -> Vec<u8> {
    let schema = format!(
        "message x {{ {repetition} int64 address; {repetition} binary more (STRING);
         {repetition} binary build_id (STRING); {repetition} int64 frame_id; }}"
    );
    let key = |(key, value): &(&str, &str)| {
        parquet::file::metadata::KeyValue::new(key.to_string(), value.to_string())
    };
    let keys = keys.iter().map(key).collect();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(keys)).build();
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = |count: usize| (0..2).map(|at| i16::from(at < count)).collect::<Vec<i16>>();
    let mut longs = [vec![5, 6], [Some(7), address].into_iter().flatten().collect()];
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(column) => {
                // The address comes first.
                let values = std::mem::take(&mut longs[1]);
                longs.swap(0, 1);
                column.write_batch(&values, Some(&levels(values.len())), None).unwrap();
            }
            ColumnWriter::ByteArrayColumnWriter(column) => {
                let values = ["01", "é"].map(ByteArray::from);
                column.write_batch(&values, Some(&levels(2)), None).unwrap();
            }
            _ => unreachable!(),
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn files_that_engines_have_joined_are_read() {
    for repetition in ["optional", "required"] {
        let rows = frames(of_engine(&[], repetition, Some(-1))).unwrap();
        let row = |frame_id, build_id: &str, address| FrameRow {
            frame_id,
            build_id: build_id.into(),
            address,
        };
        assert_eq!(rows, [row(5, "01", 7), row(6, "é", u64::MAX)]);
    }
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: Vec<u8>| frames(bytes).unwrap_err().to_string();
    assert!(refused(b"no Parquet".to_vec()).contains("no Parquet file"));
    let schema = refused(of_engine(&[("sampler.schema", "2")], "optional", Some(1)));
    assert!(schema.contains("schema \"2\""), "{schema}");
    let table = refused(of_engine(&[("sampler.table", "stacks")], "optional", Some(1)));
    assert!(table.contains("\"stacks\""), "{table}");
    let missing = refused(of_engine(&[], "optional", None));
    assert!(missing.contains("\"address\" has a row without"), "{missing}");
    let (_, files) = dictionaries(&[("/x".into(), "01".into())], &[]);
    let other = refused(bytes(&files, Table::Stacks));
    assert!(other.contains("\"stacks\""), "{other}");
    let column = mappings(of_engine(&[], "optional", Some(1))).unwrap_err().to_string();
    assert!(column.contains("no column \"htlhash\""), "{column}");
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
