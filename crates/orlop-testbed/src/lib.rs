//! What tests and benchmarks stand on: throw-away PostgreSQL clusters, programs from Debian, and packages of
//! Python and Node.js.
//!
//! ```no_run
//! let cluster = orlop_testbed::Cluster::start()?;
//! let database = cluster.create_database()?;
//! println!("{}", cluster.url(&database));
//! # Ok::<(), String>(())
//! ```
//!
//! A cluster lives in a temporary folder, listens on a unix socket in it and on a free loopback port, and
//! is gone with the process that started it, however that process ends. It is a real one: `fsync` is on
//! unless asked otherwise, and the role that tests connect as is an ordinary one that owns its databases
//! and nothing else.
//!
//! Only the standard library is used, and errors are sentences for the person who runs the tests.

mod certificates;
mod cluster;
pub mod debian;
pub mod http2;
mod install;
pub mod node;
pub mod python;
mod shell;
mod tools;

pub use cluster::{Cluster, Options};
pub use install::{find, find_or_install};
