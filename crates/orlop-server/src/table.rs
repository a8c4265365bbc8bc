//! Tables: what kubectl shows of a kind. How they are written is in `orlop_api::table`.

use orlop_api::{table, time::Time};
use serde_json::Value;

pub use orlop_api::table::{Column, age};

/// The columns of a kind and how to fill them.
pub trait Columns: Send + Sync {
    /// Name, type, format, description and priority of each column.
    fn definitions(&self) -> Vec<Column>;

    /// The cells of one object, in that order.
    fn cells(&self, object: &Value, now: Time) -> Vec<Value>;

    /// Whether cells are made of nothing but what clients write: never of managers, of which many objects are full,
    /// nor of the version that an object is of, or served in.
    fn show_content_only(&self) -> bool {
        false
    }
}

/// Name and creation time: what a kind without columns of its own shows.
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
