//! Admission of a cluster: the objects that plugins read, which follow the store, and the kinds they are of. The chain and its plugins are in
//! `orlop-admission`.

pub(crate) mod interfaces;
pub(crate) mod listers;
pub(crate) mod webhook_clients;

pub use orlop_admission::{
    Admission, AdmissionRequest, Operation, Phase, Reinvocation, Resources, chain, configuration,
    plugins::{ConfigurationError, Settings},
};
