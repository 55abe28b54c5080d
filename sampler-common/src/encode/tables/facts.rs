//! The tables of moments, and the table of what they cover.

use super::Push;
use super::column::{Column, EncodeError, file, text};
use super::schema::Table;
use crate::encode::push::Attributes;
use crate::estimate::{Moments, RowMoments};
use crate::profile::Kind;
use parquet::data_type::ByteArray;
use std::collections::BTreeMap;

const MICROSECOND_NS: u64 = 1000;

/// Attributes that have columns of their own.
const NAMED: [&str; 7] = [
    "host.name",
    "service.name",
    "container.id",
    "container.name",
    "process.executable.path",
    "process.executable.name",
    "process.executable.build_id.gnu",
];

/// The columns host, service, container, executable and build id of a service.
fn identity(service: &Attributes) -> [ByteArray; 5] {
    let value = |key: &str| service.iter().find(|(of, _)| of == key).map(|(_, value)| value);
    let of =
        |keys: &[&str]| text(keys.iter().find_map(|key| value(key)).map_or("", String::as_str));
    [
        of(&["host.name"]),
        of(&["service.name"]),
        of(&["container.id", "container.name"]),
        of(&["process.executable.path", "process.executable.name"]),
        of(&["process.executable.build_id.gnu"]),
    ]
}

/// The columns of services, for rows of services.
fn identities<'a>(services: impl Iterator<Item = &'a Attributes>) -> [Column; 5] {
    let mut columns: [Vec<ByteArray>; 5] = Default::default();
    for service in services {
        columns.iter_mut().zip(identity(service)).for_each(|(column, of)| column.push(of));
    }
    columns.map(Column::Text)
}

fn microseconds(unix_ns: u64) -> i64 {
    (unix_ns / MICROSECOND_NS).cast_signed()
}

/// The moments of a table's kind: bytes and objects.
fn of_kind(moments: &RowMoments, table: Table) -> [&Moments; 2] {
    match table {
        Table::Live => [&moments.inuse_space, &moments.inuse_objects],
        _ => [&moments.alloc_space, &moments.alloc_objects],
    }
}

/// The largest w²(1−π), from the largest w(1−π) and its π.
fn top2(of: &Moments) -> f32 {
    if of.largest > 0.0 {
        (of.largest * of.largest / (1.0 - of.largest_inclusion)) as f32
    } else {
        0.0
    }
}

/// Returns the file of [`Table::Alloc`] or [`Table::Live`]. `ids` are the ids of the push's stacks.
/// Each service and id has one row.
pub(super) fn facts(push: &Push, ids: &[i64], table: Table) -> Result<Vec<u8>, EncodeError> {
    let mut rows: BTreeMap<(u32, i64), RowMoments> = BTreeMap::new();
    for (stack, id) in push.stacks.iter().zip(ids) {
        rows.entry((stack.service, *id)).or_default().add(&stack.moments);
    }
    let count = rows.len();
    let each = || rows.values().map(|of| of_kind(of, table));
    let [host, service, container, executable, build_id] =
        identities(rows.keys().map(|(service, _)| &push.services[*service as usize]));
    let columns = vec![
        Column::Long(vec![microseconds(push.start_unix_ns); count]),
        Column::Long(vec![push.duration_ns.cast_signed(); count]),
        host,
        service,
        container,
        executable,
        build_id,
        Column::Long(rows.keys().map(|(_, id)| *id).collect()),
        Column::Long(each().map(|[bytes, _]| bytes.samples.cast_signed()).collect()),
        // Integers have one sum, in whatever order an engine adds them.
        Column::Long(each().map(|[bytes, _]| bytes.sum.round() as i64).collect()),
        Column::Double(each().map(|[bytes, _]| bytes.variance).collect()),
        Column::Long(each().map(|[bytes, _]| bytes.own.round() as i64).collect()),
        Column::Float(each().map(|[bytes, _]| bytes.largest as f32).collect()),
        Column::Float(each().map(|[bytes, _]| top2(bytes)).collect()),
        // Rounding would bias the weights of large blocks, which are hardly above 1.
        Column::Double(each().map(|[_, objects]| objects.sum).collect()),
        Column::Double(each().map(|[_, objects]| objects.variance).collect()),
        Column::Float(each().map(|[_, objects]| objects.largest as f32).collect()),
        Column::Float(each().map(|[_, objects]| top2(objects)).collect()),
    ];
    file(table, columns)
}

/// Returns the file of [`Table::Coverage`]: a row for each push and service, with or without
/// samples.
pub(super) fn coverage(pushes: &[Push]) -> Result<Vec<u8>, EncodeError> {
    let each = || {
        let rows = |push: &'_ Push| push.services.len();
        pushes.iter().flat_map(move |push| (0..rows(push)).map(move |at| (push, at)))
    };
    let kind = |push: &Push| text(if push.kind == Kind::Alloc { "alloc" } else { "live" });
    let [host, service, container, executable, build_id] =
        identities(each().map(|(push, at)| &push.services[at]));
    let exact = |of: fn((u64, u64)) -> u64| {
        let total =
            |(push, at): (&Push, usize)| Some(of(push.totals.get(at)?.exact?).cast_signed());
        Column::OptionalLong(each().map(total).collect())
    };
    let processes = |(push, at): (&Push, usize)| {
        push.totals.get(at).map_or(0, |of| i32::try_from(of.processes).unwrap_or(i32::MAX))
    };
    let labels = |of: fn(&(String, String)) -> &str| {
        let of_service = |(push, at): (&Push, usize)| {
            let labels = push.services[at].iter().filter(|(key, _)| !NAMED.contains(&key.as_str()));
            labels.map(|label| text(of(label))).collect()
        };
        Column::Texts(each().map(of_service).collect())
    };
    let columns = vec![
        Column::Text(each().map(|(push, _)| kind(push)).collect()),
        Column::Long(each().map(|(push, _)| microseconds(push.start_unix_ns)).collect()),
        Column::Long(each().map(|(push, _)| push.duration_ns.cast_signed()).collect()),
        host,
        service,
        container,
        executable,
        build_id,
        Column::Double(each().map(|(push, _)| push.draw.inclusion).collect()),
        Column::Int(each().map(|(push, _)| push.draw.day).collect()),
        Column::Int(each().map(|(push, _)| i32::from(push.draw.is_drawn)).collect()),
        Column::Int(each().map(processes).collect()),
        exact(|(bytes, _)| bytes),
        exact(|(_, objects)| objects),
        Column::Long(each().map(|(push, _)| push.interval_bytes.cast_signed()).collect()),
        labels(|(key, _)| key),
        labels(|(_, value)| value),
    ];
    file(Table::Coverage, columns)
}
