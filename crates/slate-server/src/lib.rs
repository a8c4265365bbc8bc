//! The Slate server: port 9600, metrics and health over HTTP, and maintenance.
//!
//! `net` accepts connections and limits them, `connection` their bytes; `native` speaks Slate's protocol, `mongo` MongoDB's; both run
//! requests on the engine through `context`. `config` and `server` put it together.

pub mod config;
mod connection;
mod context;
mod cursors;
mod http;
mod maintenance;
mod metrics;
mod mongo;
mod native;
mod net;
mod scram;
mod server;

pub use server::{Error, Server};
