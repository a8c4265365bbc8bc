//! The device API from the outside: its messages, a connection, and a cache that follows the server.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use orlop_device_client::{Cache, Connect, Gpus};
//!
//! let channel = Connect::to("unix:///run/orlop/device.sock").open()?;
//! let gpus = Cache::start(Gpus::new(channel));
//! gpus.synced().await;
//! for gpu in gpus.list() {
//!     println!("{:?}", gpu.spec);
//! }
//! # Ok(()) }
//! ```
//!
//! This crate knows nothing of the server's storage; it needs a socket and nothing else.

pub mod api;
mod cache;
mod connect;
mod gpus;

pub use cache::{Cache, Change, Key, Source, WatchEvent};
pub use connect::{Connect, ConnectError, Connection};
pub use gpus::Gpus;
/// How calls fail.
pub use tonic::{Code, Status};
