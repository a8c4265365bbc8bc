//! Typed clients and watches of a Kubernetes API that share one untyped one.
//!
//! [`Api`] is kube's `Api`, [`watch_kind`] its `watcher`. Requests, lists and watches are of JSON
//! values, and compiled once; a kind adds one decoder, from a value. With kube's own every kind has its requests, its
//! watch, and a decoder for each way that JSON arrives, which made up a fifth of the program (decision 0091).

mod api;
mod raw;
mod watch;

pub use api::Api;
pub use watch::watch_kind;
