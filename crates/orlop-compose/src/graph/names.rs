//! Names that authors choose: kinds, ids, iterators.

use std::collections::BTreeSet;

use crate::definition::DefinitionSpec;

/// Words of kro that cannot name a node or an iterator, beside those of CEL.
const RESERVED: &[&str] = &[
    "apiVersion",
    "context",
    "dependency",
    "dependencies",
    "each",
    "externalRef",
    "externalReference",
    "externalRefs",
    "externalReferences",
    "graph",
    "instance",
    "item",
    "items",
    "kind",
    "kro",
    "metadata",
    "object",
    "resource",
    "resourcegraphdefinition",
    "resourceGraphDefinition",
    "resources",
    "root",
    "runtime",
    "schema",
    "self",
    "serviceAccountName",
    "spec",
    "status",
    "this",
    "variables",
    "vars",
    "version",
];

fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word) || orlop_cel::is_reserved(word)
}

/// Checks the names of a definition.
pub(super) fn check(spec: &DefinitionSpec, dimensions_max: usize) -> Result<(), String> {
    let kind = &spec.schema.kind;
    if !is_upper_camel(kind) {
        return Err(format!(
            "naming convention violation: kind '{kind}' is not a valid KRO kind name: must be UpperCamelCase"
        ));
    }
    let mut ids = BTreeSet::new();
    for resource in &spec.resources {
        let id = &resource.id;
        if is_reserved(id) {
            return Err(format!("naming convention violation: id {id} is a reserved keyword in KRO"));
        }
        if !is_lower_camel(id) {
            return Err(format!(
                "naming convention violation: id {id} is not a valid KRO resource id: must be lower camelCase"
            ));
        }
        if !ids.insert(id.as_str()) {
            return Err(format!("found duplicate resource IDs {id}"));
        }
    }
    for resource in &spec.resources {
        let id = &resource.id;
        if resource.for_each.len() > dimensions_max {
            let count = resource.for_each.len();
            return Err(format!(
                "resource \"{id}\": forEach cannot have more than {dimensions_max} dimensions, got {count}"
            ));
        }
        let mut iterators = BTreeSet::new();
        for dimension in &resource.for_each {
            if dimension.len() != 1 {
                return Err(format!("resource \"{id}\": forEach dimensions must have exactly one entry"));
            }
            for name in dimension.keys() {
                let place = format!("resource \"{id}\": forEach iterator name \"{name}\"");
                if is_reserved(name) {
                    return Err(format!("{place} is a reserved keyword"));
                }
                if !is_lower_camel(name) {
                    return Err(format!("{place} is not valid: must be lowerCamelCase"));
                }
                if ids.contains(name.as_str()) {
                    return Err(format!("{place} conflicts with resource ID"));
                }
                if !iterators.insert(name.as_str()) {
                    return Err(format!("resource \"{id}\": duplicate forEach iterator name \"{name}\""));
                }
            }
        }
    }
    Ok(())
}

fn is_upper_camel(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_lower_camel(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}
