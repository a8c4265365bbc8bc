//! Tables: how a kind's objects print in `kubectl get`. Their encoding is in `orlop_api::table`.

use orlop_api::{table, time::Time};
use serde_json::Value;

pub use orlop_api::table::{Column, age};

/// Printer columns of a kind.
pub trait Columns: Send + Sync {
    /// Returns the column definitions.
    fn definitions(&self) -> Vec<Column>;

    /// Returns the cells of one object, in the order of the definitions.
    fn cells(&self, object: &Value, now: Time) -> Vec<Value>;

    /// Returns whether cells depend on nothing but what clients write: neither on managedFields, which are
    /// large and expensive to decode, nor on the version in which the object is stored or served.
    fn show_content_only(&self) -> bool {
        false
    }
}

/// Columns of a kind that declares none: name and creation time.
pub static DEFAULT_COLUMNS: NameAndCreation = NameAndCreation;

/// Name and creation time.
#[derive(Clone, Copy, Debug)]
pub struct NameAndCreation;

impl Columns for NameAndCreation {
    fn definitions(&self) -> Vec<Column> {
        table::default_columns()
    }

    fn cells(&self, object: &Value, _now: Time) -> Vec<Value> {
        table::default_cells(object)
    }

    fn show_content_only(&self) -> bool {
        true
    }
}
