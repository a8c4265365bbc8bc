//! Fixtures of tests and benchmarks: throw-away PostgreSQL clusters, small disks, programs from Debian, packages of
//! Python and Node.js.
//!
//! ```no_run
//! let cluster = orlop_testbed::Cluster::start()?;
//! let database = cluster.create_database()?;
//! println!("{}", cluster.url(&database));
//! # Ok::<(), String>(())
//! ```
//!
//! A cluster lives in a temporary directory, listens on a unix socket in it and on a free loopback port, and is
//! removed with the process that started it, however that process ends. `fsync` is on unless the options say
//! otherwise, and tests connect as an ordinary role that owns its databases and nothing else.
//!
//! Only the standard library is used. Errors are strings for whoever runs the tests.

mod certificates;
mod cluster;
pub mod debian;
mod disk;
pub mod http2;
mod install;
pub mod node;
pub mod not_run;
pub mod python;
mod shell;
mod tools;

pub use cluster::{Cluster, Options};
pub use disk::Disk;
pub use install::{find, find_or_install, find_or_install_libclang};
