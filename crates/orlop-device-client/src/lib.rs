//! Client of the device API: messages, connection, and a cache (informer).
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
//! This crate does not depend on the server or its storage.

pub mod api;
mod cache;
mod connect;
mod gpus;

pub use cache::{Cache, Change, Key, Source, WatchEvent};
pub use connect::{Connect, ConnectError, Connection};
pub use gpus::Gpus;
/// Errors of calls.
pub use tonic::{Code, Status};
