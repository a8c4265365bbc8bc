//! A Kubernetes API server on the store.
//!
//! A request's path reads top to bottom: [`serve`] takes it off the wire, [`chain`] passes it through the
//! filters in order, `routes` finds its kind, [`verbs`] does what it asks, and the kind's hooks and the
//! store do the rest. A kind is data plus a few hooks ([`registry`]); built-in kinds, custom resources and
//! kinds of a library's user share every verb.
//!
//! Nothing here touches SQL, and nothing here is global: a [`cluster::Cluster`] is a value.

pub mod admission;
mod allocation;
pub mod body;
pub mod bootstrap;
pub mod chain;
mod changes;
pub mod cluster;
mod compression;
mod conversions;
mod corked;
mod custom;
mod dependents;
mod discovery;
mod events;
mod filters;
pub mod generated_name;
pub mod health;
mod in_place;
pub mod issuer;
mod kinds;
pub mod kubeconfig;
mod metrics;
pub mod negotiation;
mod openapi;
pub mod pki;
pub mod query;
pub mod registry;
pub mod remote;
pub mod request_info;
mod resource_version;
mod reviews;
mod routes;
mod selection;
pub mod serve;
pub mod stored;
mod subresources;
pub mod table;
mod tokens;
pub mod verbs;
mod version;
mod webhook;
mod websocket;

pub use filters::authentication::User;
pub use tokens::{BadLine, Tokens};
