//! AWS from Kubernetes: controllers of ACK's kinds and of the Bridge's, against any Kubernetes API.
//!
//! A kind is one file in `kinds`: its fields in a short notation, its calls, and what the notation cannot express about its
//! comparison. Everything else is done once: the protocols and the signature (`client`), references, adoption, tags,
//! conditions, retries (`reconcile`). Kinds of the Bridge take several steps of several services (`bridge`).
//!
//! Modules from the bottom up: `fields`, `client`, `policy`; `kind`, `kinds`; `cluster`, `conditions`, `settings`;
//! `references`, `accounts`; `objects`; `reconcile`, `bridge`, `field_export`, `crds`; `controller`.

mod accounts;
mod bridge;
mod client;
mod cluster;
mod concurrency;
mod conditions;
mod controller;
mod crds;
mod field_export;
mod fields;
mod iam_policy;
mod kind;
mod kinds;
mod objects;
mod policy;
mod query;
mod rbac;
mod reconcile;
mod references;
mod settings;

pub use conditions::is_synced;
pub use controller::{NAME, Observer, run};
pub use crds::definitions;
pub use iam_policy::{iam_action, iam_policy};
pub use rbac::{Egress, network_policy, rbac};
pub use settings::{Gates, Settings};
