//! Kinds of `flowcontrol.apiserver.k8s.io`.

mod flow_schema;
mod priority_level_configuration;

use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] = &[flow_schema::KIND, priority_level_configuration::KIND];
