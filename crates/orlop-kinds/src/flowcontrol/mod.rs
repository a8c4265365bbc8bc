//! Kinds of `flowcontrol.apiserver.k8s.io`.

pub mod bootstrap;
mod flow_schema;
mod priority_level_configuration;

use crate::BuiltinKind;

/// API group.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(crate) const KINDS: &[BuiltinKind] = &[flow_schema::KIND, priority_level_configuration::KIND];
