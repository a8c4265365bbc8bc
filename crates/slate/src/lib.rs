//! A document database: BSON documents in collections, secondary indexes, transactions.
//!
//! ```
//! use bson::doc;
//! use slate::{Engine, Filter, Query};
//!
//! let engine = Engine::in_memory();
//! engine.create_collection("accounts")?;
//! engine.insert("accounts", &doc! { "_id": 1, "status": "active" })?;
//! let query = Query::new(Filter::parse(&doc! { "status": "active" })?);
//! assert_eq!(engine.count("accounts", &query)?, 1);
//! # Ok::<(), slate::Error>(())
//! ```
//!
//! Layers, each knowing only those below: `engine`, `distinct`, `validate` (callers' operations) · `modify`, `query`,
//! `lookup` (writes and reads) · `scan`, `sorted` (candidates and their order) · `plan` (choice of indexes) ·
//! `transaction`, `commit` (documents with their indexes; group commit) · `catalog`, `index` · `filter`, `update`, `sort`, `projection` (pure) · `key`, `path`, `raw`, `deadline` (pure) ·
//! `store` (ordered key-value stores).

mod aggregate;
mod build;
mod catalog;
mod commit;
mod deadline;
mod distinct;
pub mod document;
mod engine;
mod error;
mod expiry;
pub mod filter;
mod index;
pub mod key;
mod lookup;
mod modify;
mod path;
mod plan;
mod projection;
mod query;
mod raw;
mod scan;
mod sort;
mod sorted;
pub mod store;
mod transaction;
pub mod update;
mod validate;

pub use aggregate::{Pipeline, Stage};
pub use build::IndexStatus;
pub use catalog::{Build, Catalog, Collection, ID_INDEX, Index, IndexField, IndexSpec};
pub use commit::PendingWrite;
pub use engine::Engine;
pub use error::{Error, Result};
pub use filter::Filter;
pub(crate) use filter::as_integer as filter_integer;
pub use lookup::PreparedLookup;
pub use modify::{Inserted, Modified, Updated};
pub use path::Path;
pub use projection::Projection;
pub use query::Query;
pub use scan::Examined;
pub use sort::Sort;
pub use transaction::Transaction;
pub use update::Update;
pub use validate::Validation;
