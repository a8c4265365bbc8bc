//! Kinds of the core group.

mod component_status;
pub(crate) mod config_map;
pub(crate) mod endpoints;
pub(crate) mod event;
mod limit_range;
mod namespace;
mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
mod pod_template;
pub(crate) mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;
pub(crate) mod workload;

use crate::BuiltinKind;

pub use service::families::{IpFamily, complete_ip_families};

pub(crate) const KINDS: &[BuiltinKind] = &[
    BuiltinKind::new("", "bindings"),
    component_status::KIND,
    config_map::KIND,
    endpoints::KIND,
    event::KIND,
    limit_range::KIND,
    namespace::KIND,
    node::KIND,
    persistent_volume::KIND,
    persistent_volume_claim::KIND,
    pod::KIND,
    pod_template::KIND,
    replication_controller::KIND,
    resource_quota::KIND,
    secret::KIND,
    service::KIND,
    service_account::KIND,
];
