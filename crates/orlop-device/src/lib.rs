//! The device API: a node's hardware over gRPC, and the agent that reports it.
//!
//! A request's path reads top to bottom:
//!
//! ```text
//! orlop_net           unix socket or TCP (+ TLS)
//! server::connection  identifies the caller
//! server::observe     counts the call for metrics and channelz
//! service             finds the verb by method name, authorizes and audits writes
//! verbs::*            the verbs, implemented once for all kinds over JSON objects
//! kinds::*            a kind: its names, .proto and validation
//! orlop_store         one revisioned key space
//! ```
//!
//! Invariants: nothing above `kinds` names a kind; only `wire` knows protobuf field numbers; objects are stored as
//! `orlop serve` stores them, so both can serve one database.

pub mod agent;
mod authorization;
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
