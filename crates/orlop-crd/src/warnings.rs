//! Warnings about definitions and objects that do not fail a request.

use orlop_api::field_error::FieldPath;
use orlop_api::go_text::quote;
use orlop_api::names;
use orlop_api::object_meta::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use orlop_api::schema::is_enforced_format;
use orlop_api::schema::unstructured::{strings, text};
use serde_json::Value;
use std::collections::BTreeSet;

use crate::validate::spec::Spec;
use crate::validate::walk::visit;

/// Returns warnings about a definition; on updates, only those that `old` did not have.
pub fn warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let new = found(definition);
    let old = old.map(found).unwrap_or_default();
    let formats = new.formats.iter().filter(|format| !old.formats.contains(format));
    let formats = formats.map(|format| format!("unrecognized format {}", quote(format)));
    let sets = new.sets.iter().filter(|kind| !old.sets.contains(*kind)).map(|kind| {
        format!("x-kubernetes-list-type: set for items of type {} is not supported by server-side apply or CEL validation rules", quote(kind))
    });
    formats.chain(sets).collect()
}

#[derive(Default)]
struct Found {
    formats: Vec<String>,
    sets: BTreeSet<String>,
}

fn found(definition: &Value) -> Found {
    let spec = Spec::of(definition);
    let mut found = Found::default();
    for schema in spec.schemas() {
        visit(schema, &mut |node| {
            let (format, kind) = (text(node, "format"), text(node, "type"));
            if !format.is_empty() && !is_enforced_format(format, kind) {
                found.formats.push(format.to_owned());
            }
            let items = node.get("items").map(|items| text(items, "type")).unwrap_or_default();
            if text(node, "x-kubernetes-list-type") == "set" && matches!(items, "object" | "array") {
                found.sets.insert(items.to_owned());
            }
        });
    }
    found
}

/// Returns warnings about an object: finalizers that are not qualified names.
pub fn object_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let finalizers = |object: &Value| -> BTreeSet<String> {
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        strings(metadata, "finalizers").map(str::to_owned).collect()
    };
    let before = old.map(finalizers).unwrap_or_default();
    let path = FieldPath::root("metadata").child("finalizers");
    let mut warnings = Vec::new();
    for name in finalizers(object).difference(&before) {
        let mut warn = |why: &str| warnings.push(format!("{path}: {}: {why}", quote(name)));
        names::qualified_name(name).iter().for_each(|why| warn(why));
        if name.contains('/')
            || [FINALIZER_ORPHAN, FINALIZER_FOREGROUND, "kubernetes"].contains(&name.as_str())
        {
            continue;
        }
        warn(if name.contains('.') {
            "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
        } else {
            "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        });
    }
    warnings
}
