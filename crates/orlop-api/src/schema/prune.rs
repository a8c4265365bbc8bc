//! Pruning of unknown fields.

use super::{AdditionalProperties, Schema};
use serde_json::Value;

/// Kind of the pruned value. A resource's apiVersion, kind and metadata are known without being declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Resource,
    Plain,
}

/// Removes unknown fields and returns their paths, sorted: `spec.x`, `spec.list[0].y`.
pub fn prune(value: &mut Value, schema: &Schema, root: Root) -> Vec<String> {
    let unknown = unknown_fields(value, schema, root);
    // Most objects have none and are not copied.
    if !unknown.is_empty() {
        remove(value, Context::root(schema, root));
    }
    unknown
}

/// Returns the paths that [`prune`] would remove, sorted. Built-in kinds report these under `fieldValidation`.
pub fn unknown_fields(value: &Value, schema: &Schema, root: Root) -> Vec<String> {
    let mut unknown = Unknown { paths: Vec::new(), path: String::new() };
    unknown.walk(value, Context::root(schema, root));
    unknown.paths.sort();
    unknown.paths
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// Pruning context of a value.
#[derive(Clone, Copy)]
struct Context<'s> {
    schema: Option<&'s Schema>,
    /// apiVersion, kind and metadata are known here.
    embedded: bool,
    /// Unknown fields are preserved here.
    preserves: bool,
}

/// Pruning decision for a field.
enum Pruning<'s> {
    Remove,
    /// Preserve the whole value.
    Preserve,
    Descend(Context<'s>),
}

impl<'s> Context<'s> {
    fn root(schema: &'s Schema, root: Root) -> Self {
        let context = Self::of(Some(schema));
        Self { embedded: context.embedded || root == Root::Resource, ..context }
    }

    fn of(schema: Option<&'s Schema>) -> Self {
        let flag = |flag: fn(&Schema) -> bool| schema.is_some_and(flag);
        Self {
            schema,
            embedded: flag(|schema| schema.embedded_resource),
            preserves: flag(|schema| schema.preserve_unknown),
        }
    }

    fn field(self, key: &str) -> Pruning<'s> {
        let Some(schema) = self.schema else { return Pruning::Remove };
        if self.embedded && is_meta(key) {
            return Pruning::Preserve;
        }
        match (schema.field(key), &schema.additional_properties) {
            (Some(field), _) => Pruning::Descend(Self::of(Some(field.schema()))),
            (None, AdditionalProperties::Of(inner)) => Pruning::Descend(Self::of(Some(inner.get()))),
            (None, _) if self.preserves => Pruning::Preserve,
            // Specified, but without a schema for values.
            (None, AdditionalProperties::Anything | AdditionalProperties::Forbidden) => {
                Pruning::Descend(Self::of(None))
            }
            (None, AdditionalProperties::Unspecified) => Pruning::Remove,
        }
    }

    /// Returns the pruning context of list items; `None` where items are preserved.
    fn items(self) -> Option<Self> {
        let items = self.schema.and_then(Schema::items);
        if self.preserves {
            // A list that preserves unknown fields preserves those of its items.
            return items.map(|items| Self { preserves: true, ..Self::of(Some(items)) });
        }
        Some(Self::of(items))
    }
}

fn remove(value: &mut Value, context: Context<'_>) {
    match value {
        Value::Object(map) => map.retain(|key, item| match context.field(key) {
            Pruning::Remove => false,
            Pruning::Preserve => true,
            Pruning::Descend(context) => {
                remove(item, context);
                true
            }
        }),
        Value::Array(items) => {
            if let Some(context) = context.items() {
                items.iter_mut().for_each(|item| remove(item, context));
            }
        }
        _ => {}
    }
}

struct Unknown {
    paths: Vec<String>,
    path: String,
}

impl Unknown {
    fn walk(&mut self, value: &Value, context: Context<'_>) {
        let length = self.path.len();
        match value {
            Value::Object(map) => {
                for (key, item) in map {
                    let pruning = context.field(key);
                    if matches!(pruning, Pruning::Preserve)
                        || (matches!(pruning, Pruning::Remove) && length == 0 && is_meta(key))
                    {
                        continue;
                    }
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    match pruning {
                        Pruning::Descend(context) => self.walk(item, context),
                        _ => self.paths.push(self.path.clone()),
                    }
                    self.path.truncate(length);
                }
            }
            Value::Array(items) => {
                let Some(context) = context.items() else { return };
                for (index, item) in
                    items.iter().enumerate().filter(|(_, item)| item.is_object() || item.is_array())
                {
                    self.path.push_str(&format!("[{index}]"));
                    self.walk(item, context);
                    self.path.truncate(length);
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
    fn unknown_fields_are_pruned_and_reported() {
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
    fn built_in_kinds_report_all_unknown_fields() {
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
