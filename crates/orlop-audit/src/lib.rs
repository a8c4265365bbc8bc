//! Audit of API requests, in Kubernetes' shape (`audit.k8s.io/v1`).
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! stage       levels and stages
//! policy      the policy file, and the level of a request
//! event       an event, encoded straight into bytes
//! context     what the handlers of a request add to its event
//! metrics     counters, named as in Kubernetes
//! backend     the log file with rotation, the webhook with batches
//! auditor     policy and backends together
//! ```
//!
//! Nothing here knows the store or the endpoints. Every queue is bounded; an event that does not fit is dropped and
//! counted. No request waits longer than [`auditor::WAIT_MAX`] for a backend.

pub mod auditor;
pub mod backend;
pub mod context;
pub mod event;
mod metrics;
pub mod policy;
mod stage;

pub use auditor::Auditor;
pub use context::Context;
pub use event::Event;
pub use metrics::Metrics;
pub use policy::Policy;
pub use stage::{Level, Stage, StageSet};
