//! Columns of a table, and a Parquet file of them.

use super::schema::{SCHEMA_KEY, SCHEMA_VERSION, TABLE_KEY, Table};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The error of the Parquet library for a table that it refuses.
#[derive(Debug, thiserror::Error)]
#[error("encode a Parquet file: {0}")]
pub struct EncodeError(#[from] ParquetError);

/// The values of a column.
pub(super) enum Column {
    Long(Vec<i64>),
    /// `None` is no value.
    OptionalLong(Vec<Option<i64>>),
    Int(Vec<i32>),
    Double(Vec<f64>),
    Float(Vec<f32>),
    Text(Vec<ByteArray>),
    /// Texts of a list, by row.
    Texts(Vec<Vec<ByteArray>>),
}

/// A text as a value.
pub(super) fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

impl Column {
    /// Whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Column::Long(values) => values.is_empty(),
            Column::OptionalLong(values) => values.is_empty(),
            Column::Int(values) => values.is_empty(),
            Column::Double(values) => values.is_empty(),
            Column::Float(values) => values.is_empty(),
            Column::Text(values) => values.is_empty(),
            Column::Texts(values) => values.is_empty(),
        }
    }

    fn write(self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let refused = || ParquetError::General("the schema has another type".into());
        match (self, writer) {
            (Column::Long(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(&values, None, None)?
            }
            (Column::OptionalLong(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                let levels: Vec<i16> = values.iter().map(|of| i16::from(of.is_some())).collect();
                let values: Vec<i64> = values.into_iter().flatten().collect();
                writer.write_batch(&values, Some(&levels), None)?
            }
            (Column::Int(values), ColumnWriter::Int32ColumnWriter(writer)) => {
                writer.write_batch(&values, None, None)?
            }
            (Column::Double(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(&values, None, None)?
            }
            (Column::Float(values), ColumnWriter::FloatColumnWriter(writer)) => {
                writer.write_batch(&values, None, None)?
            }
            (Column::Text(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                writer.write_batch(&values, None, None)?
            }
            (Column::Texts(rows), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
                for row in rows {
                    // In Parquet an empty list has one definition level, and no value.
                    let count = row.len().max(1);
                    defined.extend(std::iter::repeat_n(i16::from(!row.is_empty()), count));
                    repeated.extend((0..count).map(|at| i16::from(at > 0)));
                    values.extend(row);
                }
                writer.write_batch(&values, Some(&defined), Some(&repeated))?
            }
            _ => return Err(refused()),
        };
        Ok(())
    }
}

/// Returns the Parquet file of a table. The columns are in the order of the schema.
pub(super) fn file(table: Table, columns: Vec<Column>) -> Result<Vec<u8>, EncodeError> {
    let schema = Arc::new(parse_message_type(&table.schema())?);
    let keys = [
        (SCHEMA_KEY, SCHEMA_VERSION.to_string()),
        (TABLE_KEY, table.name().to_owned()),
        ("sampler.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let keys = keys.map(|(key, value)| KeyValue::new(key.to_owned(), value)).to_vec();
    let properties = WriterProperties::builder()
        // Files of a window are small. The minimum and maximum of each page would be a third of a
        // file.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("sampler ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(keys))
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        let mut writer = group
            .next_column()?
            .ok_or_else(|| ParquetError::General(format!("{} has fewer columns", table.name())))?;
        column.write(writer.untyped())?;
        writer.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}
