//! Built-in kinds: one declaration each, in one file, by API group.
//!
//! A declaration ([`BuiltinKind`]) states a kind's strategy flags, name rule, selectable fields, update scopes
//! and printer columns, and names its [`Strategy`]: the hooks for defaulting, preparation, validation and
//! warnings. The server builds its registry from [`builtin_kinds`]; to add a kind, add its file and a line in
//! its group's list.
//!
//! Invariants:
//! - no I/O and no clock: strategies get user and time in a [`RequestContext`];
//! - objects are [`serde_json::Value`]s that passed their schema; absent fields read as Go's zero values;
//! - field errors have Kubernetes' paths, reasons and texts.

mod conversion;
mod declaration;
mod strategy;
pub mod table;
mod update_scope;

pub mod accessors;
mod defaulting;
mod equality;
mod printer;
pub mod quantities;
mod validation;

mod admissionregistration;
pub mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
pub mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;

pub use admissionregistration::virtual_resources::VIRTUAL_RESOURCES;
pub use conversion::{BuiltinConverter, Conversion};
pub use core::{IpFamily, complete_ip_families};
pub use declaration::{BuiltinKind, StrategyFlags};
pub use strategy::{DefaultStrategy, RequestContext, Strategy};
pub use update_scope::{ResetFields, UpdateScope, UpdateScopes};
pub use validation::{cidr::IpRange, is_pod_loopback};

/// Declarations by API group.
const GROUPS: &[&[BuiltinKind]] = &[
    core::KINDS,
    admissionregistration::KINDS,
    apiextensions::KINDS,
    apiregistration::KINDS,
    apps::KINDS,
    authentication::KINDS,
    authorization::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    certificates::KINDS,
    coordination::KINDS,
    discovery::KINDS,
    events::KINDS,
    flowcontrol::KINDS,
    networking::KINDS,
    node::KINDS,
    policy::KINDS,
    rbac::KINDS,
    resource::KINDS,
    scheduling::KINDS,
    storage::KINDS,
    storagemigration::KINDS,
];

/// Returns every built-in kind's declaration.
pub fn builtin_kinds() -> impl Iterator<Item = &'static BuiltinKind> {
    GROUPS.iter().copied().flatten()
}

/// Returns the declaration of a group's resource.
pub fn builtin_kind(group: &str, resource: &str) -> Option<&'static BuiltinKind> {
    builtin_kinds().find(|kind| kind.group == group && kind.resource == resource)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use orlop_api::schema::builtin;

    use super::*;

    /// The generated table and the declarations name the same resources, each once.
    #[test]
    fn every_resource_of_the_table_has_exactly_one_declaration() {
        let declared: Vec<_> = builtin_kinds().map(|kind| (kind.group, kind.resource)).collect();
        let unique: BTreeSet<_> = declared.iter().copied().collect();
        assert_eq!(declared.len(), unique.len(), "a kind is declared twice");
        let listed: BTreeSet<_> =
            builtin::resources().iter().map(|resource| (resource.group, resource.plural)).collect();
        assert_eq!(unique, listed);
    }

    #[test]
    fn update_scopes_name_subresources_of_the_table() {
        for kind in builtin_kinds() {
            let resources = builtin::resources()
                .into_iter()
                .filter(|resource| (resource.group, resource.plural) == (kind.group, kind.resource));
            for resource in resources {
                for (endpoint, _) in kind.update_scopes {
                    let exists =
                        resource.subresources.iter().any(|subresource| subresource.name == *endpoint);
                    assert!(endpoint.is_empty() || exists, "{} has no {endpoint}", kind.resource);
                }
            }
        }
    }

    #[test]
    fn conversions_name_versions_of_the_table() {
        for kind in builtin_kinds() {
            let Some(conversion) = kind.conversion else { continue };
            assert!(kind.converter(conversion.version).is_some(), "{}", kind.resource);
            assert!(kind.converter("v0").is_none());
        }
    }
}
