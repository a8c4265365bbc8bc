//! The operator: reconciles `Server` and `Collection` into Deployments, Services and database state.
//!
//! `api` has the two kinds, `server` and `collection` their reconcilers, `run` the controllers around them,
//! `leader` the election among operators, `manifests` what an administrator applies. The operator only
//! speaks the Kubernetes API and Slate's protocol, so it runs on any Kubernetes.

pub mod api;
mod collection;
mod conditions;
mod context;
mod leader;
pub mod manifests;
mod run;
mod server;

pub use context::{Addresses, Error, Options};
pub use run::run;
