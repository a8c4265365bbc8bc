//! Validation options of creates and updates.

use super::conversion::{ConversionOptions, conversion_options_after};
use super::spec::{Spec, open_api};
use super::walk::{any, visit};
use orlop_api::field_error::FieldPath;
use orlop_api::schema::structural::{
    ValidationBudget, ValidationOptions, conversion_error, has_non_atomic_set_items,
    has_unidentifiable_items, has_unknown_types, validate_defaults, validate_structural_schema,
};
use orlop_api::schema::unstructured::{list, text};
use serde_json::Value;
use std::collections::HashSet;

pub(super) const SELECTABLE_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) require_schema: bool,
    pub(super) require_structural: bool,
    pub(super) require_pruned_defaults: bool,
    pub(super) validation: ValidationOptions,
    pub(super) conversion: ConversionOptions,
    /// Expressions of the stored definition, which may use any library.
    pub(super) stored_rules: HashSet<String>,
    pub(super) stored_messages: HashSet<String>,
    /// Versions with an unchanged schema, whose rule cost is not checked again.
    pub(super) unchanged: HashSet<String>,
    /// Versions that already have too many selectable fields; the empty name means all versions.
    pub(super) too_many_selectable: HashSet<String>,
}

impl Options {
    pub(super) fn create() -> Self {
        Self {
            require_schema: true,
            require_structural: true,
            require_pruned_defaults: true,
            validation: ValidationOptions::default(),
            conversion: ConversionOptions { review_versions: false, ca_bundle: true },
            stored_rules: HashSet::new(),
            stored_messages: HashSet::new(),
            unchanged: HashSet::new(),
            too_many_selectable: HashSet::new(),
        }
    }

    pub(super) fn update(new: &Spec<'_>, old: &Spec<'_>, established: bool) -> Self {
        let has = |is: fn(&Value) -> bool| old.schemas().any(|schema| any(schema, is));
        let (mut stored_rules, mut stored_messages) = (HashSet::new(), HashSet::new());
        for schema in old.schemas() {
            visit(schema, &mut |node| {
                for rule in list(node, "x-kubernetes-validations") {
                    stored_rules.insert(text(rule, "rule").to_owned());
                    stored_messages.insert(text(rule, "messageExpression").to_owned());
                }
            });
        }
        let shared = open_api(old.validation).is_some();
        Self {
            require_schema: shared || old.versions.iter().all(|version| open_api(version.schema).is_some()),
            require_structural: !old.schemas().any(is_non_structural),
            require_pruned_defaults: !old.schemas().any(has_unpruned_defaults),
            validation: ValidationOptions {
                require_valid_property_type: !has(has_unknown_types),
                require_atomic_set_type: !has(has_non_atomic_set_items),
                require_map_list_keys: !has(has_unidentifiable_items),
            },
            conversion: conversion_options_after(
                old.source.get("conversion").unwrap_or(&Value::Null),
                established,
            ),
            stored_rules,
            stored_messages,
            unchanged: unchanged(new, old),
            too_many_selectable: too_many_selectable(new, old),
        }
    }

    /// Adds the requirements of a spec: pruning, defaults and extensions need structural schemas.
    pub(super) fn with_requirements_of(&self, spec: &Spec<'_>) -> Self {
        let mut options = self.clone();
        let extended = |node: &Value| {
            let set = |key: &str| {
                node.get(key).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
            };
            node.get("default").is_some_and(|default| !default.is_null())
                || node.get("x-kubernetes-preserve-unknown-fields").is_some_and(|value| !value.is_null())
                || set("x-kubernetes-embedded-resource")
                || set("x-kubernetes-int-or-string")
                || set("x-kubernetes-list-type")
                || ["x-kubernetes-list-map-keys", "x-kubernetes-validations"]
                    .iter()
                    .any(|key| !list(node, key).is_empty())
        };
        options.require_structural |=
            !spec.preserves_unknown_fields() || spec.schemas().any(|schema| any(schema, extended));
        options
    }
}

fn is_non_structural(schema: &Value) -> bool {
    conversion_error(schema).is_some()
        || !validate_structural_schema(schema, &FieldPath::nil(), &mut ValidationBudget::default()).is_empty()
}

fn has_unpruned_defaults(schema: &Value) -> bool {
    let found = || validate_defaults(schema, &FieldPath::nil(), true, &mut |_| Vec::new());
    !is_non_structural(schema) && found().iter().any(|error| error.detail == "must not have unknown fields")
}

fn unchanged(new: &Spec<'_>, old: &Spec<'_>) -> HashSet<String> {
    let same = |name: &str| old.schema_of(name).is_some_and(|old| new.schema_of(name) == Some(old));
    new.versions.iter().filter(|version| same(version.name)).map(|version| version.name.to_owned()).collect()
}

fn too_many_selectable(new: &Spec<'_>, old: &Spec<'_>) -> HashSet<String> {
    let many = |fields: &Value| fields.as_array().is_some_and(|fields| fields.len() > SELECTABLE_MAX);
    let mut names = HashSet::new();
    if many(old.selectable) && new.selectable == old.selectable {
        names.insert(String::new());
    }
    for version in &new.versions {
        let before = old.versions.iter().find(|before| before.name == version.name);
        if before.is_some_and(|before| many(before.selectable) && before.selectable == version.selectable) {
            names.insert(version.name.to_owned());
        }
    }
    names
}
