//! Dropping what a schema does not know, and saying what that was.

use super::{Additional, Schema};
use serde_json::Value;

/// Whether the value is a whole resource, whose apiVersion, kind and metadata are known without being declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Resource,
    Plain,
}

/// Removes unknown fields; returns their paths, sorted: `spec.x`, `spec.list[0].y`.
pub fn prune(value: &mut Value, schema: &Schema, root: Root) -> Vec<String> {
    let mut walk = Walk { unknown: Vec::new(), path: String::new() };
    walk.prune(value, Some(schema), schema.embedded_resource || root == Root::Resource);
    walk.unknown.sort();
    walk.unknown
}

/// The paths that [`prune`] would remove. Built-in kinds report these under `fieldValidation`.
pub fn unknown_fields(value: &Value, schema: &Schema, root: Root) -> Vec<String> {
    // Pruning is cheap beside decoding, and there is one walk to get right instead of two.
    prune(&mut value.clone(), schema, root)
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

struct Walk {
    unknown: Vec<String>,
    path: String,
}

impl Walk {
    fn within<T>(&mut self, step: std::fmt::Arguments<'_>, work: impl FnOnce(&mut Self) -> T) -> T {
        use std::fmt::Write;
        let length = self.path.len();
        let _ = self.path.write_fmt(step);
        let result = work(self);
        self.path.truncate(length);
        result
    }

    fn within_key<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        if self.path.is_empty() {
            self.within(format_args!("{key}"), work)
        } else {
            self.within(format_args!(".{key}"), work)
        }
    }

    fn record(&mut self, key: &str) {
        let path = self.within_key(key, |walk| walk.path.clone());
        self.unknown.push(path);
    }

    fn prune(&mut self, value: &mut Value, schema: Option<&Schema>, embedded: bool) {
        if let Some(schema) = schema.filter(|schema| schema.preserve_unknown) {
            return self.keep(value, schema, embedded);
        }
        match value {
            Value::Object(map) => {
                let Some(schema) = schema else {
                    for key in std::mem::take(map).keys() {
                        self.record(key);
                    }
                    return;
                };
                map.retain(|key, item| {
                    if embedded && is_meta(key) {
                        return true;
                    }
                    let (inner, known) = match (schema.field(key), &schema.additional) {
                        (Some(field), _) => (Some(field.schema()), true),
                        (None, Additional::Of(schema)) => (Some(schema.get()), true),
                        // Specified, but without a schema for what is inside.
                        (None, Additional::Anything | Additional::Forbidden) => (None, true),
                        (None, Additional::Unspecified) => (None, false),
                    };
                    if known {
                        let embedded = inner.is_some_and(|schema| schema.embedded_resource);
                        self.within_key(key, |walk| walk.prune(item, inner, embedded));
                    } else if !is_meta(key) || !self.path.is_empty() {
                        self.record(key);
                    }
                    known
                });
            }
            Value::Array(items) => {
                let inner = schema.and_then(Schema::items);
                let embedded = inner.is_some_and(|schema| schema.embedded_resource);
                for (index, item) in items.iter_mut().enumerate() {
                    self.within(format_args!("[{index}]"), |walk| walk.prune(item, inner, embedded));
                }
            }
            _ => {}
        }
    }

    /// Under preserve-unknown nothing goes, except inside what is specified.
    fn keep(&mut self, value: &mut Value, schema: &Schema, embedded: bool) {
        match value {
            Value::Object(map) => {
                for (key, item) in map.iter_mut().filter(|(key, _)| !(embedded && is_meta(key))) {
                    let inner = match (schema.field(key), &schema.additional) {
                        (Some(field), _) => Some(field.schema()),
                        (None, Additional::Of(schema)) => Some(schema.get()),
                        _ => continue,
                    };
                    let embedded = inner.is_some_and(|schema| schema.embedded_resource);
                    self.within_key(key, |walk| walk.prune(item, inner, embedded));
                }
            }
            Value::Array(items) => {
                let Some(inner) = schema.items() else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    self.within(format_args!("[{index}]"), |walk| {
                        walk.keep(item, inner, inner.embedded_resource);
                    });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{builtin, from_openapi};
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = from_openapi(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"strict": {"type": "object", "properties": {}}}},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
        }}}}));
        let mut value = json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "anything": 1},
            "top": 1,
            "spec": {
                "known": "k", "unknown": {"x": 1},
                "list": [{"a": 1, "b": 2}],
                "map": {"k": {"b": "x", "c": "y"}},
                "free": {"any": {"thing": 1}, "strict": {"gone": 1}},
                "embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "m"}, "spec": {"q": 1}, "gone": 1}
            }
        });
        let unknown = prune(&mut value, &schema, Root::Resource);
        assert_eq!(
            unknown,
            [
                "spec.embedded.gone",
                "spec.free.strict.gone",
                "spec.list[0].b",
                "spec.map.k.c",
                "spec.unknown",
                "top"
            ]
        );
        assert_eq!(value["spec"]["free"], json!({"any": {"thing": 1}, "strict": {}}));
        assert_eq!(value["metadata"], json!({"name": "n", "anything": 1}));
        assert_eq!(prune(&mut value, &schema, Root::Resource), Vec::<String>::new());
    }

    #[test]
    fn built_in_kinds_report_unknown_fields_everywhere() {
        let schema = builtin::type_of("apps", "v1", "Deployment").unwrap().schema();
        let value = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "extra": 1, "labels": {"any": "x"}},
            "spec": {"replica": 1, "template": {"spec": {"containers": [{"name": "c", "imagee": "x", "env": [{"name": "a", "valueFrom": {"nope": {}}}]}]}}}});
        assert_eq!(
            unknown_fields(&value, schema, Root::Plain),
            [
                "metadata.extra",
                "spec.replica",
                "spec.template.spec.containers[0].env[0].valueFrom.nope",
                "spec.template.spec.containers[0].imagee"
            ]
        );
    }
}
