//! Tables to a ClickHouse server: one `INSERT … FORMAT Parquet` for each table of a window.
//!
//! A window is sent when all its tables are; [`Table::Coverage`] comes last. A request that may have
//! arrived is repeated with the same `insert_deduplication_token`, so that the server takes its
//! rows once. `docs/fleet/clickhouse_tables.sql` makes the tables.
//!
//! Reference: the HTTP interface of ClickHouse; `exceptionCodeToHTTPStatus` of its sources, for
//! the statuses.

use super::outbox::Attempt;
use super::sender::{Sink, Transport};
use super::stamp::{Host, Stamp};
use super::window::{Dictionaries, Window};
use hyper::body::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_common::encode::tables::{EncodeError, Files, Table, WrittenRows};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The way to a database.
pub(super) struct ClickHouse {
    transport: Transport,
    database: String,
    host: Host,
    dictionaries: Dictionaries,
    /// The window whose last attempt failed.
    unsent: Option<Unsent>,
}

/// A window of which the server does not have all tables.
struct Unsent {
    window: Arc<Window>,
    /// The id by which the server recognizes a request that arrives twice.
    token: String,
    /// The tables that are still to be sent.
    files: VecDeque<(Table, Bytes)>,
    /// Bytes of all tables.
    bytes: u64,
    /// Rows of dictionaries in the tables.
    new: WrittenRows,
}

impl ClickHouse {
    pub(super) fn new(transport: Transport, database: String) -> ClickHouse {
        let host = Host::of_this_machine();
        ClickHouse {
            transport,
            database,
            host,
            dictionaries: Dictionaries::default(),
            unsent: None,
        }
    }

    fn encode(&mut self, window: &Arc<Window>) -> Result<Unsent, EncodeError> {
        let stamp = Stamp::new(window.start_unix_ns());
        let Files { files, new } = self.dictionaries.encode(window, &stamp.day())?;
        let bytes = files.iter().map(|file| file.bytes.len() as u64).sum();
        let files = files.into_iter().map(|file| (file.table, Bytes::from(file.bytes))).collect();
        let token = stamp.window(&self.host);
        Ok(Unsent { window: Arc::clone(window), token, files, bytes, new })
    }
}

impl Sink<Window> for ClickHouse {
    async fn attempt(&mut self, window: &Arc<Window>) -> (Attempt, Option<Duration>) {
        let unsent = self.unsent.take().filter(|of| Arc::ptr_eq(&of.window, window));
        let mut unsent = match unsent.map_or_else(|| self.encode(window), Ok) {
            Ok(unsent) => unsent,
            Err(error) => return (Attempt::Refused(error.to_string()), None),
        };
        while let Some((table, bytes)) = unsent.files.front() {
            let target = target(&self.database, *table, &unsent.token);
            let named = |why: String| format!("table {}: {why}", table.name());
            match self.transport.post(&target, bytes.clone()).await {
                (Attempt::Failed(why), requested_delay) => {
                    let attempt = Attempt::Failed(named(why));
                    self.unsent = Some(unsent);
                    return (attempt, requested_delay);
                }
                (Attempt::Refused(why), requested_delay) => {
                    return (Attempt::Refused(named(why)), requested_delay);
                }
                (Attempt::Sent(_) | Attempt::Written(_), _) => {}
            }
            unsent.files.pop_front();
        }
        self.dictionaries.add(&unsent.new);
        (Attempt::Written(unsent.bytes), None)
    }
}

/// Path and query of an insertion. A server that collects insertions before it writes them does not
/// recognize repeated ones in every table: `async_insert` is off.
fn target(database: &str, table: Table, token: &str) -> String {
    let insert = format!("INSERT INTO {} FORMAT Parquet", table.name());
    let [database, insert, token] =
        [database, &insert, token].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
    format!(
        "/?database={database}&query={insert}&insert_deduplication_token={token}&async_insert=0"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insertion_names_database_table_and_window() {
        let target = target("fleet", Table::Alloc, "h-20251129T130034.567891Z");
        let query = "database=fleet&query=INSERT%20INTO%20alloc%20FORMAT%20Parquet";
        assert!(target.starts_with(&format!("/?{query}&insert_deduplication_token=h%2D2025")));
    }
}
