//! Tables (`meta.k8s.io` Table) for `kubectl get`.

use crate::duration;
use crate::object_meta;
use crate::time::Time;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// Zero is always shown; others only in wide output.
    pub priority: i64,
}

impl Column {
    pub fn new(name: &str, kind: &str, description: &str) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: format.to_owned(),
            description: description.to_owned(),
            priority: 0,
        }
    }

    /// Creates a string column of priority 0.
    pub fn text(name: &str) -> Self {
        Self::new(name, "string", "")
    }

    /// Creates the name column.
    pub fn name() -> Self {
        Self::new("Name", "string", "")
    }

    /// Shows the column only in wide output.
    #[must_use]
    pub fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    fn to_value(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format, "description": self.description, "priority": self.priority})
    }
}

/// Object included in a table row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A table row: cells and the included object.
#[derive(Debug, Serialize)]
pub struct Row<'a> {
    cells: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Carried<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Carried<'a> {
    Object(&'a Value),
    Metadata(PartialObjectMetadata<'a>),
}

impl<'a> Row<'a> {
    /// Creates the row of an object. `version` is that of `meta.k8s.io`.
    pub fn of(cells: Vec<Value>, object: &'a Value, include: IncludeObject, version: &'a str) -> Self {
        let object = match include {
            IncludeObject::None => None,
            IncludeObject::Metadata => Some(Carried::Metadata(PartialObjectMetadata::of(object, version))),
            IncludeObject::Object => Some(Carried::Object(object)),
        };
        Self { cells, object }
    }
}

/// PartialObjectMetadata that borrows from an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialObjectMetadata<'a> {
    api_version: &'a str,
    kind: &'static str,
    metadata: &'a Map<String, Value>,
}

impl<'a> PartialObjectMetadata<'a> {
    /// Returns the metadata of an object in a version of `meta.k8s.io`.
    pub fn of(object: &'a Value, version: &'a str) -> Self {
        Self { api_version: version, kind: "PartialObjectMetadata", metadata: object_meta::of(object) }
    }
}

/// Builds a table. Watches send columns with the first event only: pass `None` later.
pub fn table(columns: Option<&[Column]>, rows: &[Row<'_>], list_metadata: Value, version: &str) -> Value {
    let columns = definitions(columns.unwrap_or_default());
    json!({"kind": "Table", "apiVersion": version, "metadata": list_metadata, "columnDefinitions": columns, "rows": rows})
}

/// Returns the column definitions of a table.
pub fn definitions(columns: &[Column]) -> Vec<Value> {
    columns.iter().map(Column::to_value).collect()
}

/// Returns the default columns.
pub fn default_columns() -> Vec<Column> {
    vec![
        Column::new("Name", "string", "Name must be unique within a namespace."),
        Column::new(
            "Created At",
            "date",
            "CreationTimestamp is a timestamp representing the server time when this object was created.",
        ),
    ]
}

pub fn default_cells(object: &Value) -> Vec<Value> {
    let meta = object_meta::of(object);
    let created = object_meta::text(meta, "creationTimestamp");
    let created = if created.is_empty() { "<unknown>" } else { created };
    vec![object_meta::text(meta, "name").into(), created.into()]
}

/// Returns the `Age` column's cell.
pub fn age(object: &Value, now: Time) -> Value {
    let created = Time::parse(object_meta::text(object_meta::of(object), "creationTimestamp"));
    duration::age(created, now).into()
}

/// Formats a custom resource column's cell; null if the value has another type.
pub fn cell(value: &Value, kind: &str, now: Time) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => (number.as_f64().unwrap_or_default() as i64).into(),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
            value.clone()
        }
        ("date", Value::String(text)) if text.is_empty() => duration::age(None, now).into(),
        ("date", Value::String(text)) => match Time::parse(text) {
            Some(time) => duration::human(now.seconds_since(time)).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// Returns the PartialObjectMetadata of an object.
pub fn partial_object_metadata(object: &Value, version: &str) -> Value {
    json!(PartialObjectMetadata::of(object, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "meta.k8s.io/v1";

    #[test]
    fn rows_include_the_requested_object() {
        let object = json!({"kind": "K", "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        let now = Time::parse("2026-01-01T00:02:03Z").unwrap();
        assert_eq!(age(&object, now), "2m3s");
        assert_eq!(default_cells(&object), [json!("n"), json!("2026-01-01T00:00:00Z")]);
        let row = |include| json!(Row::of(vec![], &object, include, V1));
        assert_eq!(row(IncludeObject::None), json!({"cells": []}));
        assert_eq!(row(IncludeObject::Metadata)["object"], partial_object_metadata(&object, V1));
        assert_eq!(row(IncludeObject::Metadata)["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(row(IncludeObject::Object)["object"], object);
        assert_eq!(IncludeObject::parse("Nonsense"), None);
        let table = table(Some(&default_columns()), &[], json!({"resourceVersion": "5"}), V1);
        assert_eq!(table["columnDefinitions"][0]["format"], "name");
        assert_eq!(table["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn cells_of_other_types_are_null() {
        let now = Time::parse("2026-01-01T00:00:10Z").unwrap();
        for (value, kind, expected) in [
            (json!(3), "integer", json!(3)),
            (json!(3.7), "integer", json!(3)),
            (json!("x"), "integer", json!(null)),
            (json!(true), "boolean", json!(true)),
            (json!("2026-01-01T00:00:00Z"), "date", json!("10s")),
            (json!("soon"), "date", json!("<invalid>")),
            (json!("s"), "string", json!("s")),
        ] {
            assert_eq!(cell(&value, kind, now), expected);
        }
    }
}
