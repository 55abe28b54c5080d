//! Reads the dictionaries of frames, files and names back, as [`super::files`] writes them, or as an
//! engine has joined them.
//!
//! Columns are found by their names, and others are ignored: later versions of a schema may have
//! more. The files may be anybody's. A file that is damaged is refused, and no number in it decides
//! how much memory is reserved.

use super::schema::{SCHEMA_KEY, SCHEMA_VERSION, TABLE_KEY, Table};
use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use std::panic::{self, AssertUnwindSafe};

/// Values that are decoded at a time.
const BATCH: usize = 8192;
/// Most rows of a file. A few bytes can stand for billions of equal rows.
const MAX_ROWS: usize = 1 << 26;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no Parquet file, or damaged, or compressed in a way that is not supported.
    #[error("it is damaged, or no Parquet file that samplerd writes: {0}")]
    Damaged(#[from] ParquetError),
    /// It has another version of the schema.
    #[error(
        "it has schema {0:?} (this program reads {SCHEMA_VERSION}: take the sampler of the version that wrote it)"
    )]
    Schema(String),
    /// It is a part of another table.
    #[error("it is a part of the table {0:?} (move it there)")]
    Table(String),
    /// It lacks a column.
    #[error("it has no column {0:?} of the right type (let samplerd write it anew)")]
    Column(&'static str),
    /// It has more rows than any file of samplerd.
    #[error("it has more than {MAX_ROWS} rows (divide it)")]
    Large,
    /// A column lacks a value, or has text that is no UTF-8.
    #[error("column {0:?} has a row without a valid value (let samplerd write it anew)")]
    Value(&'static str),
}

/// A row of [`Table::Frames`] with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// The key of the frame.
    pub frame_id: i64,
    /// The id of the frame's file: its GNU build id, or its `htlhash` if it has none. Empty for
    /// code without a file.
    pub build_id: String,
    /// The address as the file states it.
    pub address: u64,
}

/// A row of [`Table::Mappings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingRow {
    /// The id of the file: its GNU build id, or its `htlhash` if it has none.
    pub build_id: String,
    /// OpenTelemetry's `htlhash` of the file, empty if unknown.
    pub htlhash: String,
    /// Path of the file in a process.
    pub path: String,
}

/// Returns the rows of a file of [`Table::Frames`].
///
/// # Errors
/// If the file cannot be read, or is of another table or schema.
pub fn frames(bytes: Vec<u8>) -> Result<Vec<FrameRow>, ReadError> {
    let (ids, files, addresses) = Reader::read(Table::Frames, bytes, |reader| {
        Ok((reader.longs("frame_id")?, reader.texts("build_id")?, reader.longs("address")?))
    })?;
    let rows = ids.into_iter().zip(files).zip(addresses);
    let row = |((frame_id, build_id), address): ((i64, String), i64)| FrameRow {
        frame_id,
        build_id,
        address: address.cast_unsigned(),
    };
    Ok(rows.map(row).collect())
}

/// Returns the rows of a file of [`Table::Mappings`].
///
/// # Errors
/// If the file cannot be read, or is of another table or schema.
pub fn mappings(bytes: Vec<u8>) -> Result<Vec<MappingRow>, ReadError> {
    let (ids, hashes, paths) = Reader::read(Table::Mappings, bytes, |reader| {
        Ok((reader.texts("build_id")?, reader.texts("htlhash")?, reader.texts("path")?))
    })?;
    let rows = ids.into_iter().zip(hashes).zip(paths);
    let row = |((build_id, htlhash), path)| MappingRow { build_id, htlhash, path };
    Ok(rows.map(row).collect())
}

/// Returns the frame and the quality of each row of a file of [`Table::Symbols`].
///
/// # Errors
/// If the file cannot be read, or is of another table or schema.
pub fn qualities(bytes: Vec<u8>) -> Result<Vec<(i64, i32)>, ReadError> {
    let (ids, qualities) = Reader::read(Table::Symbols, bytes, |reader| {
        Ok((reader.longs("frame_id")?, reader.ints("quality")?))
    })?;
    Ok(ids.into_iter().zip(qualities).collect())
}

/// An open file of a table.
struct Reader(SerializedFileReader<Bytes>);

impl Reader {
    /// Reads columns of a file. The library panics on some damaged files.
    fn read<T>(
        table: Table,
        bytes: Vec<u8>,
        columns: impl FnOnce(&Reader) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let read = || columns(&Reader::open(table, bytes)?);
        panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
            Err(ParquetError::General("a part of it makes no sense".into()).into())
        })
    }

    fn open(table: Table, bytes: Vec<u8>) -> Result<Reader, ReadError> {
        let reader = SerializedFileReader::new(Bytes::from(bytes))?;
        let keys = reader.metadata().file_metadata().key_value_metadata();
        // A file that an engine has written has none.
        for key in keys.into_iter().flatten() {
            let value = key.value.clone().unwrap_or_default();
            if key.key == SCHEMA_KEY && value != SCHEMA_VERSION.to_string() {
                return Err(ReadError::Schema(value));
            }
            if key.key == TABLE_KEY && value != table.name() {
                return Err(ReadError::Table(value));
            }
        }
        Ok(Reader(reader))
    }

    fn longs(&self, name: &'static str) -> Result<Vec<i64>, ReadError> {
        self.column(name, |column, to| match column {
            ColumnReader::Int64ColumnReader(column) => values(name, column, to),
            _ => Err(ReadError::Column(name)),
        })
    }

    fn ints(&self, name: &'static str) -> Result<Vec<i32>, ReadError> {
        self.column(name, |column, to| match column {
            ColumnReader::Int32ColumnReader(column) => values(name, column, to),
            _ => Err(ReadError::Column(name)),
        })
    }

    fn texts(&self, name: &'static str) -> Result<Vec<String>, ReadError> {
        let bytes: Vec<ByteArray> = self.column(name, |column, to| match column {
            ColumnReader::ByteArrayColumnReader(column) => values(name, column, to),
            _ => Err(ReadError::Column(name)),
        })?;
        let text = |of: ByteArray| String::from_utf8(of.data().to_vec()).ok();
        bytes.into_iter().map(|of| text(of).ok_or(ReadError::Value(name))).collect()
    }

    /// The values of a column in all row groups. `read` adds those of one, and returns their
    /// number.
    fn column<T>(
        &self,
        name: &'static str,
        read: impl Fn(ColumnReader, &mut Vec<T>) -> Result<usize, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let schema = self.0.metadata().file_metadata().schema_descr();
        let at = schema.columns().iter().position(|column| column.path().parts() == [name]);
        let at = at.filter(|at| schema.column(*at).max_rep_level() == 0);
        let at = at.ok_or(ReadError::Column(name))?;
        let mut to = Vec::new();
        for number in 0..self.0.num_row_groups() {
            let group = self.0.get_row_group(number)?;
            let rows = read(group.get_column_reader(at)?, &mut to)?;
            // Columns are put together by row.
            if i64::try_from(rows).ok() != Some(group.metadata().num_rows()) {
                return Err(ReadError::Value(name));
            }
        }
        Ok(to)
    }
}

/// Adds the values of a column. Returns their number.
fn values<T: DataType>(
    name: &'static str,
    mut column: ColumnReaderImpl<T>,
    to: &mut Vec<T::T>,
) -> Result<usize, ReadError> {
    let mut rows = 0;
    loop {
        // The library wants levels of a column that may lack values.
        let mut levels = Vec::new();
        let (records, values, _) = column.read_records(BATCH, Some(&mut levels), None, to)?;
        if records != values {
            return Err(ReadError::Value(name));
        }
        if records == 0 {
            return Ok(rows);
        }
        if to.len() > MAX_ROWS {
            return Err(ReadError::Large);
        }
        rows += records;
    }
}
