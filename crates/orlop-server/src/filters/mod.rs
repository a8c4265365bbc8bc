//! Filters of requests: a file each. `chain.rs` has their order.

pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod deadline;
pub(crate) mod flow_control;
pub(crate) mod hygiene;
pub(crate) mod impersonation;
pub(crate) mod intake;
pub(crate) mod panic_guard;
pub(crate) mod trace;
