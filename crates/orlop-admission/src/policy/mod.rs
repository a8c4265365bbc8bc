//! Admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//!
//! A policy says what is checked or changed, in CEL; a binding says for which requests and with which parameters. A write
//! passes through these modules, each of which imports only those above it:
//!
//! ```text
//! definition     what policies and bindings say, read once
//! expression     compiled expressions, and their evaluation within the policy's budget
//! source         policies with their bindings, compiled once, from the snapshots of the listers
//! request        one request: the variables of expressions, the objects in the versions that policies see
//! params         the parameters that a binding refers to
//! dispatch       the invocations of a request: policy, binding and parameter
//! validating     decisions, and what bindings make of them
//! mutating       apply configurations and JSON patches
//! ```
//!
//! Nothing here waits but for parameters and authorization checks. Expressions cannot run for long: each has a cost limit,
//! and so has a policy.

mod definition;
mod dispatch;
mod expression;
mod metrics;
pub mod mutating;
mod params;
mod request;
mod source;
pub mod validating;

pub use metrics::PolicyMetrics;

/// Invocations after which a request lets others of its thread be served.
const INVOCATIONS_PER_TURN: usize = 8;
