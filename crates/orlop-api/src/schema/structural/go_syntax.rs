//! Go syntax (`%#v`) of schemas in error messages: Kubernetes' internal type with all of its fields.

use crate::go_text;
use crate::schema::unstructured::{entries, flag, list, text};
use serde_json::Value;

enum GoType {
    Text,
    Flag,
    /// Anything, `null` where absent.
    Any,
    Schema,
    Schemas,
    Map,
    /// A schema or a boolean.
    OrBool,
    /// A schema or several.
    Items,
    /// A map to schemas or lists of names.
    Dependencies,
    Docs,
    Rules,
}

/// Keywords with their Go fields and types, in Go's order.
const FIELDS: [(&str, &str, GoType); 44] = [
    ("id", "ID", GoType::Text),
    ("$schema", "Schema", GoType::Text),
    ("$ref", "Ref", GoType::Any),
    ("description", "Description", GoType::Text),
    ("type", "Type", GoType::Text),
    ("nullable", "Nullable", GoType::Flag),
    ("format", "Format", GoType::Text),
    ("title", "Title", GoType::Text),
    ("default", "Default", GoType::Any),
    ("maximum", "Maximum", GoType::Any),
    ("exclusiveMaximum", "ExclusiveMaximum", GoType::Flag),
    ("minimum", "Minimum", GoType::Any),
    ("exclusiveMinimum", "ExclusiveMinimum", GoType::Flag),
    ("maxLength", "MaxLength", GoType::Any),
    ("minLength", "MinLength", GoType::Any),
    ("pattern", "Pattern", GoType::Text),
    ("maxItems", "MaxItems", GoType::Any),
    ("minItems", "MinItems", GoType::Any),
    ("uniqueItems", "UniqueItems", GoType::Flag),
    ("multipleOf", "MultipleOf", GoType::Any),
    ("enum", "Enum", GoType::Any),
    ("maxProperties", "MaxProperties", GoType::Any),
    ("minProperties", "MinProperties", GoType::Any),
    ("required", "Required", GoType::Any),
    ("items", "Items", GoType::Items),
    ("allOf", "AllOf", GoType::Schemas),
    ("oneOf", "OneOf", GoType::Schemas),
    ("anyOf", "AnyOf", GoType::Schemas),
    ("not", "Not", GoType::Schema),
    ("properties", "Properties", GoType::Map),
    ("additionalProperties", "AdditionalProperties", GoType::OrBool),
    ("patternProperties", "PatternProperties", GoType::Map),
    ("dependencies", "Dependencies", GoType::Dependencies),
    ("additionalItems", "AdditionalItems", GoType::OrBool),
    ("definitions", "Definitions", GoType::Map),
    ("externalDocs", "ExternalDocs", GoType::Docs),
    ("example", "Example", GoType::Any),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", GoType::Any),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", GoType::Flag),
    ("x-kubernetes-int-or-string", "XIntOrString", GoType::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", GoType::Any),
    ("x-kubernetes-list-type", "XListType", GoType::Any),
    ("x-kubernetes-map-type", "XMapType", GoType::Any),
    ("x-kubernetes-validations", "XValidations", GoType::Rules),
];

pub(super) fn is_keyword(key: &str) -> bool {
    FIELDS.iter().any(|(keyword, _, _)| *keyword == key)
}

/// Formats a schema in Go syntax.
pub fn format_schema(schema: &Value) -> String {
    let field = |(key, name, go_type): &(&str, &str, GoType)| {
        let value = schema.get(*key).unwrap_or(&Value::Null);
        let printed = match go_type {
            GoType::Text => quoted(text(schema, key)),
            GoType::Flag => flag(schema, key).to_string(),
            GoType::Any => go_text::json(value),
            GoType::Schema => or_null(value),
            GoType::Schemas if value.is_null() => "null".to_owned(),
            GoType::Schemas => several(list(schema, key)),
            GoType::Map if value.is_null() => "null".to_owned(),
            GoType::Map => map(entries(schema, key).map(|(name, inner)| (name, format_schema(inner)))),
            GoType::OrBool => match value {
                Value::Null => "null".to_owned(),
                Value::Bool(allowed) => format!("{{\"Allows\":{allowed},\"Schema\":null}}"),
                inner => format!("{{\"Allows\":true,\"Schema\":{}}}", format_schema(inner)),
            },
            GoType::Items => match value {
                Value::Null => "null".to_owned(),
                Value::Array(items) => format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", several(items)),
                inner => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", format_schema(inner)),
            },
            GoType::Dependencies if value.is_null() => "null".to_owned(),
            GoType::Dependencies => map(entries(schema, key).map(|(name, inner)| (name, dependency(inner)))),
            GoType::Docs if value.is_null() => "null".to_owned(),
            GoType::Docs => {
                let (description, url) = (quoted(text(value, "description")), quoted(text(value, "url")));
                format!("{{\"Description\":{description},\"URL\":{url}}}")
            }
            GoType::Rules if value.is_null() => "null".to_owned(),
            GoType::Rules => bracketed(list(schema, key).iter().map(format_rule)),
        };
        format!("\"{name}\":{printed}")
    };
    let fields: Vec<_> = FIELDS.iter().map(field).collect();
    format!("{{{}}}", fields.join(","))
}

/// Formats a rule of `x-kubernetes-validations` in Go syntax.
pub fn format_rule(rule: &Value) -> String {
    let value = |key: &str| go_text::json(rule.get(key).unwrap_or(&Value::Null));
    let text = |key: &str| quoted(text(rule, key));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        value("reason"),
        text("fieldPath"),
        value("optionalOldSelf"),
    )
}

fn quoted(text: &str) -> String {
    go_text::json(&Value::String(text.to_owned()))
}

fn or_null(schema: &Value) -> String {
    if schema.is_null() { "null".to_owned() } else { format_schema(schema) }
}

fn several(schemas: &[Value]) -> String {
    bracketed(schemas.iter().map(format_schema))
}

fn bracketed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn map<'a>(entries: impl Iterator<Item = (&'a String, String)>) -> String {
    let entries: Vec<_> = entries.map(|(name, inner)| format!("{}:{inner}", quoted(name))).collect();
    format!("{{{}}}", entries.join(","))
}

fn dependency(value: &Value) -> String {
    match value {
        Value::Array(_) => format!("{{\"Schema\":null,\"Property\":{}}}", go_text::json(value)),
        schema => format!("{{\"Schema\":{},\"Property\":null}}", or_null(schema)),
    }
}
