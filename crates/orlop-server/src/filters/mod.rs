//! What every request passes on its way: a file a filter. Their order is in `chain.rs`.

pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod deadline;
pub(crate) mod flow_control;
pub(crate) mod impersonation;
pub(crate) mod intake;
pub(crate) mod panic_guard;
