//! References of OpenAPI documents: `{"$ref": "#/definitions/NAME"}`.

use std::collections::BTreeSet;

use serde_json::Value;

/// Prefix of references to definitions of version 2.
pub(super) const DEFINITIONS: &str = "#/definitions/";

/// Prefix of references to shared parameters of version 2.
pub(super) const PARAMETERS: &str = "#/parameters/";

/// Collects the names of all definitions or parameters, by prefix, that a value refers to.
pub(super) fn collect(value: &Value, prefix: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(reference) if field == "$ref" => {
                        names.extend(reference.strip_prefix(prefix).map(str::to_owned));
                    }
                    value => collect(value, prefix, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, prefix, names)),
        _ => {}
    }
}

/// Rewrites all references to definitions.
pub(super) fn rewrite(value: &mut Value, to: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(reference) if field == "$ref" => {
                        if let Some(other) = reference.strip_prefix(DEFINITIONS).and_then(to) {
                            *reference = other;
                        }
                    }
                    value => rewrite(value, to),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, to)),
        _ => {}
    }
}
