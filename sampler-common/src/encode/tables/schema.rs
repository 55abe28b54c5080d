//! The tables and their columns. `docs/fleet/tables.md` says what each column means.

/// Version of the tables, in the metadata of every file under the key `sampler.schema`. A reader of
/// version 1 can read any file of version 1: columns are added, never changed.
pub const SCHEMA_VERSION: u32 = 1;

/// The key of the version in a file's metadata.
pub(super) const SCHEMA_KEY: &str = "sampler.schema";
/// The key of the table's name in a file's metadata.
pub(super) const TABLE_KEY: &str = "sampler.table";

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Files that contain code.
    Mappings,
    /// Places in files.
    Frames,
    /// Names of frames.
    Symbols,
    /// Frames of stacks.
    Stacks,
    /// What was allocated in a window.
    Alloc,
    /// What is held at a moment.
    Live,
    /// What the windows cover.
    Coverage,
}

/// Columns of a window and its service.
const WINDOW: &str = "
    required int64 ts (TIMESTAMP(MICROS, true));
    required int64 window_ns;
    required binary host (STRING);
    required binary service (STRING);
    required binary container (STRING);
    required binary executable (STRING);
    required binary build_id (STRING);
";
/// Further columns of [`Table::Alloc`] and [`Table::Live`].
const FACTS: &str = "
    required int64 stack_id;
    required int64 samples;
    required int64 bytes;
    required double bytes_var;
    required int64 bytes_own;
    required float bytes_top;
    required float bytes_top2;
    required double objects;
    required double objects_var;
    required float objects_top;
    required float objects_top2;
";
const KIND: &str = "
    required binary kind (STRING);
";
const COVERAGE: &str = "
    required double inclusion;
    required int32 day;
    required int32 drawn;
    required int32 processes;
    optional int64 exact_bytes;
    optional int64 exact_objects;
    required int64 interval_bytes;
    required group labels (MAP) {
        repeated group key_value {
            required binary key (STRING);
            required binary value (STRING);
        }
    }
";
const STACKS: &str = "
    required int64 stack_id;
    required int32 depth;
    required int64 frame_id;
";
const FRAMES: &str = "
    required int64 frame_id;
    required binary build_id (STRING);
    required int64 address;
";
const MAPPINGS: &str = "
    required binary build_id (STRING);
    required binary htlhash (STRING);
    required binary path (STRING);
";
const SYMBOLS: &str = "
    required int64 frame_id;
    required int32 quality;
    required int32 inlined;
    required binary function (STRING);
    required binary file (STRING);
    required int32 line;
";

impl Table {
    /// Every table, in the order in which they should be written.
    pub const ALL: [Table; 7] = [
        Table::Mappings,
        Table::Frames,
        Table::Symbols,
        Table::Stacks,
        Table::Alloc,
        Table::Live,
        Table::Coverage,
    ];

    /// The name of the table, and of its folder.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Mappings => "mappings",
            Table::Frames => "frames",
            Table::Symbols => "symbols",
            Table::Stacks => "stacks",
            Table::Alloc => "alloc",
            Table::Live => "live",
            Table::Coverage => "coverage",
        }
    }

    /// Whether the rows of the table are said once a day, and not once a window.
    pub const fn is_dictionary(self) -> bool {
        matches!(self, Table::Mappings | Table::Frames | Table::Symbols | Table::Stacks)
    }

    /// The table in the text form of Parquet's schemas.
    pub(super) fn schema(self) -> String {
        let columns = match self {
            Table::Mappings => &[MAPPINGS][..],
            Table::Frames => &[FRAMES],
            Table::Symbols => &[SYMBOLS],
            Table::Stacks => &[STACKS],
            Table::Alloc | Table::Live => &[WINDOW, FACTS],
            Table::Coverage => &[KIND, WINDOW, COVERAGE],
        };
        format!("message {} {{{}}}", self.name(), columns.concat())
    }
}
