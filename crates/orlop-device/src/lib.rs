//! The device API: a node's hardware, served over gRPC to everything on the node that needs to know.
//!
//! A request's path reads top to bottom:
//!
//! ```text
//! server::accept      unix socket or TCP (+ TLS); who is calling
//! server::observe     counts the call for metrics and channelz
//! service             finds the verb by method name; authorizes; audits writes
//! verbs::*            what the call means, once for all kinds, over JSON objects
//! kinds::*            what is special about a kind: its names, its .proto, its validation
//! orlop_store         one revisioned key space
//! ```
//!
//! Invariants: nothing above `kinds` names a kind; nothing but `wire` knows protobuf field numbers; objects
//! are stored as `orlop serve` stores them, so both can serve one database.

pub mod agent;
mod codec;
mod conditions;
mod definition;
mod encoded;
mod error;
pub mod kinds;
mod list_body;
mod object;
mod resource;
mod selector;
pub mod server;
mod service;
mod shape;
mod verbs;
mod versions;
mod wire;

pub use definition::definition;
pub use error::Error;
pub use kinds::Kind;
pub use server::{Config, Server};
