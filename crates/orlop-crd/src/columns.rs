//! Printer columns: the cells of `kubectl get`.

use orlop_api::go_text;
use orlop_api::json_path::JsonPath;
use orlop_api::object_meta;
use orlop_api::schema::unstructured::text;
use orlop_api::table::{Column, cell};
use orlop_api::time::Time;
use serde_json::{Value, json};

/// Printer columns of a version: the name, then the declared ones, or the age if none are declared.
#[derive(Clone, Debug)]
pub struct Columns {
    columns: Vec<Column>,
    /// JSONPaths of the cells after the name.
    paths: Vec<JsonPath>,
    content_only: bool,
}

impl Columns {
    /// Reads `additionalPrinterColumns`. A column whose path does not parse is left out.
    pub fn of(declared: &Value) -> Self {
        let age = json!([{
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "CreationTimestamp is a timestamp representing the server time when this object was created. \
                It is not guaranteed to be set in happens-before order across separate operations. \
                Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\n\
                Populated by the system. Read-only. Null for lists. More info: \
                https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        }]);
        let declared = declared.as_array().filter(|columns| !columns.is_empty()).or(age.as_array());
        let name = "Name must be unique within a namespace. Is required when creating resources, although some \
            resources may allow a client to request the generation of an appropriate name automatically. Name is \
            primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: \
            https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
        let mut result = Self {
            columns: vec![Column::new("Name", "string", name)],
            paths: Vec::new(),
            content_only: true,
        };
        for column in declared.into_iter().flatten() {
            let written = text(column, "jsonPath");
            let Ok(path) = JsonPath::column(written) else { continue };
            let described = text(column, "description");
            let description = if described.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {written}")
            } else {
                described.to_owned()
            };
            let priority = column.get("priority").and_then(Value::as_i64).unwrap_or_default();
            result.paths.push(path);
            result.content_only &= leads_to_content(written);
            result.columns.push(Column {
                name: text(column, "name").to_owned(),
                kind: text(column, "type").to_owned(),
                format: text(column, "format").to_owned(),
                description,
                priority,
            });
        }
        result
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns whether cells depend only on fields that clients write, not on managedFields or resourceVersion.
    pub fn show_content_only(&self) -> bool {
        self.content_only
    }

    /// Returns an object's cells, one per column; null if the path matches nothing or another type.
    pub fn cells(&self, object: &Value, now: Time) -> Vec<Value> {
        let name = object_meta::text(object_meta::of(object), "name");
        let declared = self.columns.iter().skip(1).zip(&self.paths);
        let cells = declared.map(|(column, path)| match path.find(object).first() {
            None => Value::Null,
            Some(found) if column.kind == "string" => printed(found).into(),
            Some(found) => cell(found, &column.kind, now),
        });
        std::iter::once(name.into()).chain(cells).collect()
    }
}

/// Returns whether a path reads only fields that clients write.
fn leads_to_content(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut parts = path.strip_prefix('.').unwrap_or_default().split('.');
    let first = parts.next().unwrap_or_default();
    // A filter reads below its own segment, unless it starts at the root.
    let first = first.split('[').next().unwrap_or_default();
    if path.contains('$') || !plain(first) {
        return false;
    }
    match first {
        "apiVersion" | "kind" => false,
        "metadata" => {
            let second = parts.next().unwrap_or_default();
            let second = second.split('[').next().unwrap_or_default();
            plain(second) && !matches!(second, "managedFields" | "resourceVersion")
        }
        _ => true,
    }
}

/// Formats a value for a column of type string.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Array(_) | Value::Object(_) => go_text::json(value),
        scalar => go_text::display(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_columns_with_invalid_paths_are_left_out() {
        let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
        let columns = Columns::of(&json!([
            column("First", ".spec.list[].a"),
            column("Broken", ".spec.list[x].a"),
            column("Last", ".spec.b"),
        ]));
        let names: Vec<_> = columns.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["Name", "First", "Last"]);
        let object = json!({"metadata": {"name": "n"}, "spec": {"list": [{"a": "x"}, {"a": "y"}], "b": "z"}});
        assert_eq!(columns.cells(&object, Time::from_unix(0)), [json!("n"), json!("x"), json!("z")]);
    }

    #[test]
    fn content_only_excludes_managed_fields_and_resource_version() {
        for (path, expected) in [
            (".spec.replicas", true),
            (".status.conditions[?(@.type==\"Ready\")].status", true),
            (".metadata.creationTimestamp", true),
            (".metadata.labels['a.b/c']", true),
            (".metadata.managedFields[0].manager", false),
            (".metadata.resourceVersion", false),
            (".metadata", false),
            (".metadata['managedFields']", false),
            (".metadata.*", false),
            ("..manager", false),
            (".*", false),
            ("['metadata'].managedFields", false),
            (".apiVersion", false),
            (".spec[?(@.a==$.metadata.managedFields)]", false),
        ] {
            let columns = Columns::of(&json!([{"name": "A", "type": "string", "jsonPath": path}]));
            assert!(columns.columns().len() < 2 || columns.show_content_only() == expected, "{path}");
        }
        assert!(Columns::of(&json!([])).show_content_only());
    }
}
