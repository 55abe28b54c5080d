//! Entry for the fuzzer: queries of URLs.

use super::query::Query;

/// Reads the part of a URL after the `?`.
pub fn query(text: &str) {
    let _ = Query::parse(text);
}
