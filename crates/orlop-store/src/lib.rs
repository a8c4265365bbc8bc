//! One revisioned, watched, indexed key space on embedded SQLite or on PostgreSQL.
//!
//! The contract: one gap-free sequence of 64-bit revisions, in which commit order, revision order and event order are
//! the same. A transaction has one revision, however many keys it changes. An acknowledged write is durable.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use orlop_store::{Config, Endpoint, KeyRange, Put, Read, Store, Txn, Watch};
//!
//! let store = Store::open(Config::new(Endpoint::Memory)).await?;
//! let created = store.txn(Txn::create(Put::new("/pods/a", "hello"))).await?;
//! assert!(created.succeeded);
//!
//! let pods = store.read(Read::new(KeyRange::prefix("/pods/"))).await?;
//! assert_eq!(pods.kvs[0].value, "hello");
//!
//! let mut watch = store.watch(Watch::new(KeyRange::prefix("/pods/")).after(pods.revision)).await?;
//! store.txn(Txn::remove("/pods/a", pods.kvs[0].revision)).await?;
//! let batch = watch.next().await?;
//! assert!(batch.events().next().unwrap().event.deleted);
//! # Ok::<(), orlop_store::Error>(()) }).unwrap();
//! ```
//!
//! This crate knows nothing of Kubernetes or of etcd; callers never see SQL.

mod config;
mod encoding;
mod engine;
mod error;
mod evaluate;
mod event;
mod housekeeping;
mod index_floor;
mod indexing;
mod lease_renewals;
mod metrics;
mod page_counts;
mod postgres;
pub mod private_files;
mod range;
mod request;
mod sqlite;
mod store;
mod terms;
mod transform;
mod transforming_engine;
mod watch;
mod writer;

pub use config::{Config, Durability, Endpoint, Limits};
pub use encoding::{EncodedPage, RowEncoder};
pub use engine::Size;
pub use error::{Error, Result};
pub use event::{Commit, Event, Previous};
pub use metrics::Metrics;
pub use range::KeyRange;
pub use request::{
    Compare, Comparison, Delete, KeyValue, Lease, Op, OpResult, Put, Read, ReadResult, Select, Target, Txn,
    TxnResult,
};
pub use store::{Pages, Store};
pub use terms::{Filter, Requirement, Terms};
pub use transform::{Decoded, Transformer};
pub use watch::{Watch, WatchBatch, WatchEvent, Watcher};

/// A point in the store's history. A new store is at revision 1; its first write makes revision 2.
pub type Revision = i64;

/// Identifies a lease; 0 means none.
pub type LeaseId = i64;
