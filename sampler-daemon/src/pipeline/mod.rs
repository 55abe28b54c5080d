//! From ring records to rows.
