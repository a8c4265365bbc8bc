//! Sorting in memory, where no index has the order.

use std::collections::BinaryHeap;

use bson::raw::RawDocument;

use crate::error::{Error, Result};

/// Most bytes that a sort holds.
const SORT_BYTES_MAX: usize = 128 << 20;

/// A document waiting to be returned in order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    key: Vec<u8>,
    /// Ties keep the order of arrival.
    sequence: usize,
    pub(crate) id: Box<[u8]>,
    pub(crate) document: Box<[u8]>,
}

/// Rows in order; only the first `rows_max`, if there is a limit.
pub(crate) struct Sorted {
    rows_max: Option<usize>,
    rows: BinaryHeap<Row>,
    sequence: usize,
    bytes: usize,
}

impl Sorted {
    pub(crate) fn new(rows_max: Option<usize>) -> Self {
        Self { rows_max, rows: BinaryHeap::new(), sequence: 0, bytes: 0 }
    }

    pub(crate) fn push(&mut self, key: Vec<u8>, id: &[u8], document: &RawDocument) -> Result<()> {
        self.sequence += 1;
        let full = self.rows_max.is_some_and(|rows_max| self.rows.len() >= rows_max);
        if full && self.rows.peek().is_none_or(|last| key >= last.key) {
            return Ok(());
        }
        let row = Row { key, sequence: self.sequence, id: id.into(), document: document.as_bytes().into() };
        self.bytes += row.key.len() + row.document.len();
        self.rows.push(row);
        if full && let Some(dropped) = self.rows.pop() {
            self.bytes -= dropped.key.len() + dropped.document.len();
        }
        if self.bytes > SORT_BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "sort exceeded its memory limit of {SORT_BYTES_MAX} bytes; add an index or a limit"
            )));
        }
        Ok(())
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows.into_sorted_vec()
    }
}
