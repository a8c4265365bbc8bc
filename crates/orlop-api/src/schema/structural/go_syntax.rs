//! Schemas as Kubernetes prints them in messages: its internal type, every field by its Go name, set or not.

use crate::go_text;
use crate::schema::unstructured::{entries, flag, list, text};
use serde_json::Value;

enum Form {
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

/// Every keyword, its Go field, and how it prints, in Go's order.
const FIELDS: [(&str, &str, Form); 44] = [
    ("id", "ID", Form::Text),
    ("$schema", "Schema", Form::Text),
    ("$ref", "Ref", Form::Any),
    ("description", "Description", Form::Text),
    ("type", "Type", Form::Text),
    ("nullable", "Nullable", Form::Flag),
    ("format", "Format", Form::Text),
    ("title", "Title", Form::Text),
    ("default", "Default", Form::Any),
    ("maximum", "Maximum", Form::Any),
    ("exclusiveMaximum", "ExclusiveMaximum", Form::Flag),
    ("minimum", "Minimum", Form::Any),
    ("exclusiveMinimum", "ExclusiveMinimum", Form::Flag),
    ("maxLength", "MaxLength", Form::Any),
    ("minLength", "MinLength", Form::Any),
    ("pattern", "Pattern", Form::Text),
    ("maxItems", "MaxItems", Form::Any),
    ("minItems", "MinItems", Form::Any),
    ("uniqueItems", "UniqueItems", Form::Flag),
    ("multipleOf", "MultipleOf", Form::Any),
    ("enum", "Enum", Form::Any),
    ("maxProperties", "MaxProperties", Form::Any),
    ("minProperties", "MinProperties", Form::Any),
    ("required", "Required", Form::Any),
    ("items", "Items", Form::Items),
    ("allOf", "AllOf", Form::Schemas),
    ("oneOf", "OneOf", Form::Schemas),
    ("anyOf", "AnyOf", Form::Schemas),
    ("not", "Not", Form::Schema),
    ("properties", "Properties", Form::Map),
    ("additionalProperties", "AdditionalProperties", Form::OrBool),
    ("patternProperties", "PatternProperties", Form::Map),
    ("dependencies", "Dependencies", Form::Dependencies),
    ("additionalItems", "AdditionalItems", Form::OrBool),
    ("definitions", "Definitions", Form::Map),
    ("externalDocs", "ExternalDocs", Form::Docs),
    ("example", "Example", Form::Any),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", Form::Any),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", Form::Flag),
    ("x-kubernetes-int-or-string", "XIntOrString", Form::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", Form::Any),
    ("x-kubernetes-list-type", "XListType", Form::Any),
    ("x-kubernetes-map-type", "XMapType", Form::Any),
    ("x-kubernetes-validations", "XValidations", Form::Rules),
];

pub(super) fn is_keyword(key: &str) -> bool {
    FIELDS.iter().any(|(keyword, _, _)| *keyword == key)
}

/// A schema in that form.
pub fn format_schema(schema: &Value) -> String {
    let field = |(key, name, form): &(&str, &str, Form)| {
        let value = schema.get(*key).unwrap_or(&Value::Null);
        let printed = match form {
            Form::Text => quoted(text(schema, key)),
            Form::Flag => flag(schema, key).to_string(),
            Form::Any => go_text::json(value),
            Form::Schema => or_null(value),
            Form::Schemas if value.is_null() => "null".to_owned(),
            Form::Schemas => several(list(schema, key)),
            Form::Map if value.is_null() => "null".to_owned(),
            Form::Map => map(entries(schema, key).map(|(name, inner)| (name, format_schema(inner)))),
            Form::OrBool => match value {
                Value::Null => "null".to_owned(),
                Value::Bool(allowed) => format!("{{\"Allows\":{allowed},\"Schema\":null}}"),
                inner => format!("{{\"Allows\":true,\"Schema\":{}}}", format_schema(inner)),
            },
            Form::Items => match value {
                Value::Null => "null".to_owned(),
                Value::Array(items) => format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", several(items)),
                inner => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", format_schema(inner)),
            },
            Form::Dependencies if value.is_null() => "null".to_owned(),
            Form::Dependencies => map(entries(schema, key).map(|(name, inner)| (name, dependency(inner)))),
            Form::Docs if value.is_null() => "null".to_owned(),
            Form::Docs => {
                let (description, url) = (quoted(text(value, "description")), quoted(text(value, "url")));
                format!("{{\"Description\":{description},\"URL\":{url}}}")
            }
            Form::Rules if value.is_null() => "null".to_owned(),
            Form::Rules => bracketed(list(schema, key).iter().map(format_rule)),
        };
        format!("\"{name}\":{printed}")
    };
    let fields: Vec<_> = FIELDS.iter().map(field).collect();
    format!("{{{}}}", fields.join(","))
}

/// A rule of `x-kubernetes-validations` in that form.
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
