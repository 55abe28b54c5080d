//! The dictionary tables of stacks, frames, files and names. A row is left out if an earlier file
//! of this host has it.

use super::column::{Column, EncodeError, file, text};
use super::identity::{WrittenRows, file_id, frame_id, function, hashed, lines_hash, quality};
use super::schema::Table;
use super::{File, Push};
use crate::encode::NO_STACK;
use crate::encode::push::{CodeFile, Frame};
use crate::profile::Line;
use parquet::data_type::ByteArray;

/// New rows, by column.
pub(super) struct Dictionary<'a> {
    known: &'a WrittenRows,
    new: WrittenRows,
    mappings: [Vec<ByteArray>; 3],
    frames: (Vec<i64>, Vec<ByteArray>, Vec<i64>),
    symbols: Symbols,
    stacks: (Vec<i64>, Vec<i32>, Vec<i64>),
}

/// Rows of [`Table::Symbols`].
#[derive(Default)]
struct Symbols {
    frame_id: Vec<i64>,
    /// Quality, number of the inlined function, and line.
    numbers: [Vec<i32>; 3],
    function: Vec<ByteArray>,
    file: Vec<ByteArray>,
}

impl Symbols {
    /// Adds the names of a frame.
    fn add(&mut self, id: i64, lines: &[Line]) {
        let quality = quality(lines);
        for (inlined, line) in lines.iter().enumerate() {
            self.frame_id.push(id);
            let number = i32::try_from(line.line).unwrap_or_default();
            let numbers = [quality, inlined as i32, number];
            self.numbers.iter_mut().zip(numbers).for_each(|(column, of)| column.push(of));
            self.function.push(text(&function(line)));
            self.file.push(text(&line.file));
        }
    }

    fn columns(self) -> Vec<Column> {
        let [quality, inlined, line] = self.numbers;
        vec![
            Column::Long(self.frame_id),
            Column::Int(quality),
            Column::Int(inlined),
            Column::Text(self.function),
            Column::Text(self.file),
            Column::Int(line),
        ]
    }
}

/// Returns the file of names that were looked up after the frames were written, by frame.
///
/// # Errors
/// If the Parquet library refuses a column, which no input should cause.
pub fn symbols<'a>(
    names: impl IntoIterator<Item = (i64, &'a [Line])>,
) -> Result<File, EncodeError> {
    let mut symbols = Symbols::default();
    names.into_iter().for_each(|(id, lines)| symbols.add(id, lines));
    let table = Table::Symbols;
    Ok(File { table, bytes: file(table, symbols.columns())? })
}

impl<'a> Dictionary<'a> {
    pub(super) fn new(known: &'a WrittenRows) -> Dictionary<'a> {
        Dictionary {
            known,
            new: WrittenRows::default(),
            mappings: Default::default(),
            frames: Default::default(),
            symbols: Symbols::default(),
            stacks: Default::default(),
        }
    }

    /// Adds what a push refers to. Returns the id of each of its rows' stacks.
    pub(super) fn add(&mut self, push: &Push) -> Vec<i64> {
        let frames = push.frames.iter().map(|frame| (frame_id(frame, &push.files), frame));
        let frames: Vec<(i64, &Frame)> = frames.collect();
        push.files.iter().for_each(|file| self.add_mapping(file));
        for (id, frame) in &frames {
            self.add_frame(*id, frame, &push.files);
            self.add_symbols(*id, frame, &push.files);
        }
        let stacks = push.stacks.iter().map(|stack| {
            let ids = stack.frames.iter().map(|frame| frames[*frame as usize].0);
            match stack.frames.is_empty() {
                true => self.add_no_stack(),
                false => self.add_stack(&ids.collect::<Vec<i64>>()),
            }
        });
        stacks.collect()
    }

    /// Adds a stack of one frame for rows that have none: every row of moments has a stack, so that
    /// no statement loses a row.
    fn add_no_stack(&mut self) -> i64 {
        let line = Line { function: NO_STACK.to_owned(), ..Line::default() };
        let frame = Frame { code: None, lines: vec![line] };
        let id = frame_id(&frame, &[]);
        self.add_frame(id, &frame, &[]);
        self.add_symbols(id, &frame, &[]);
        self.add_stack(&[id])
    }

    /// Whether a row is new.
    fn is_new(&mut self, row: i64) -> bool {
        !self.known.has(row) && self.new.insert(row)
    }

    fn add_mapping(&mut self, file: &CodeFile) {
        let texts = [file_id(file), &file.htlhash, &file.path];
        let row = hashed([b"mapping".as_slice()].into_iter().chain(texts.map(str::as_bytes)));
        if self.is_new(row) {
            self.mappings.iter_mut().zip(texts).for_each(|(column, of)| column.push(text(of)));
        }
    }

    fn add_frame(&mut self, id: i64, frame: &Frame, files: &[CodeFile]) {
        if self.is_new(hashed([b"frame".as_slice(), &id.to_le_bytes()])) {
            let (file, address) = frame.code.map_or(("", 0), |(file, address)| {
                (file_id(&files[file as usize]), address.cast_signed())
            });
            self.frames.0.push(id);
            self.frames.1.push(text(file));
            self.frames.2.push(address);
        }
    }

    /// Adds the names of a frame. A frame whose names are left to others gets its place instead, so
    /// that no statement loses the frame.
    fn add_symbols(&mut self, id: i64, frame: &Frame, files: &[CodeFile]) {
        let place;
        let lines = match frame.code {
            Some((file, address)) if frame.lines.is_empty() => {
                place = [Line::place(&files[file as usize].path, address)];
                &place[..]
            }
            _ => &frame.lines,
        };
        if self.is_new(lines_hash(&id.to_le_bytes(), lines)) {
            self.symbols.add(id, lines);
        }
    }

    fn add_stack(&mut self, frames: &[i64]) -> i64 {
        let bytes: Vec<[u8; 8]> = frames.iter().map(|id| id.to_le_bytes()).collect();
        let id = hashed([b"stack".as_slice(), bytes.as_flattened()]);
        if self.is_new(id) {
            self.stacks.0.extend(frames.iter().map(|_| id));
            self.stacks.1.extend((0..).take(frames.len()));
            self.stacks.2.extend(frames);
        }
        id
    }

    /// Returns the files of all tables with new rows, and the new rows. If nothing is known yet, the
    /// tables without rows have a file too: an engine needs one to know the columns.
    pub(super) fn files(self) -> Result<(Vec<File>, WrittenRows), EncodeError> {
        let tables = [
            (Table::Mappings, self.mappings.map(Column::Text).into()),
            (
                Table::Frames,
                vec![
                    Column::Long(self.frames.0),
                    Column::Text(self.frames.1),
                    Column::Long(self.frames.2),
                ],
            ),
            (Table::Symbols, self.symbols.columns()),
            (
                Table::Stacks,
                vec![
                    Column::Long(self.stacks.0),
                    Column::Int(self.stacks.1),
                    Column::Long(self.stacks.2),
                ],
            ),
        ];
        let mut files = Vec::new();
        for (table, columns) in tables {
            let is_first = self.known.is_empty();
            if is_first || columns.first().is_some_and(|first| !first.is_empty()) {
                files.push(File { table, bytes: file(table, columns)? });
            }
        }
        Ok((files, self.new))
    }
}
