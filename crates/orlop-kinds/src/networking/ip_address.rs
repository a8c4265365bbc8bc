//! IPAddress: an allocated address.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::{self, NameRule},
};
use serde_json::Value;

use crate::{
    BuiltinKind,
    accessors::{map, present, text},
    printer::{ColumnDefinition, PrinterColumns, name},
    strategy::Strategy,
    validation::{self, ip},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::Own,
    columns: &COLUMNS,
    strategy: &IpAddress,
    ..BuiltinKind::new("networking.k8s.io", "ipaddresses")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("ParentRef")],
    cells: |object, _| {
        let parent = present(object, "/spec/parentRef").map_or_else(
            || "<none>".to_owned(),
            |parent| {
                let (group, resource) = (text(parent, "/group"), text(parent, "/resource"));
                let kind = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
                let parts = [
                    kind.to_lowercase(),
                    text(parent, "/namespace").to_owned(),
                    text(parent, "/name").to_owned(),
                ];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            },
        );
        vec![name(object), parent.into()]
    },
};

pub(crate) struct IpAddress;

impl Strategy for IpAddress {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let metadata = FieldPath::root("metadata");
        let mut errors = Vec::new();
        for field in ["generateName", "name"] {
            let given = text(object, &format!("/metadata/{field}"));
            if !given.is_empty() {
                errors.extend(ip::validate_canonical_ip(given, &metadata.child(field)));
            }
        }
        errors.extend(validate_parent_ref(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let none = Value::Null;
        let spec = |of: &Value| of.get("spec").cloned().unwrap_or(none.clone());
        validation::validate_immutable(&spec(object), &spec(old), "parentRef", &FieldPath::root("spec"))
            .into_iter()
            .collect()
    }
}

/// Validates parentRef.
fn validate_parent_ref(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("parentRef");
    if present(object, "/spec/parentRef").is_none() {
        return vec![FieldError::required(&path, "")];
    }
    let mut errors = Vec::new();
    let given = map(object, "/spec/parentRef");
    let of = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
    if !of("group").is_empty() {
        errors.extend(validation::validate_dns_subdomain(of("group"), &path.child("group")));
    }
    for field in ["resource", "name", "namespace"] {
        match of(field) {
            "" if field == "namespace" => {}
            "" => errors.push(FieldError::required(&path.child(field), "")),
            given => errors.extend(validation::invalid_for_each(
                &path.child(field),
                given,
                names::path_segment(given),
            )),
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_the_parent() {
        let address = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}});
        assert_eq!(row(&COLUMNS, &address), ["10.0.0.1", "services/default/kubernetes"]);
    }
}
