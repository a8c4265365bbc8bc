//! Types between CEL and OpenAPI: what fits where, and what a status field is.

use orlop_cel::{Schema, Type};
use serde_json::{Map, Value as Json, json};

/// Structs nested deeper than this are taken as free objects.
const DEPTH_MAX: usize = 32;

/// Checks that a result fits a field; the error says why, in kro's words.
pub(crate) fn is_assignable(output: &Type, expected: &Type) -> Result<(), String> {
    fits(output, expected, 0)
}

fn fits(output: &Type, expected: &Type, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    let mismatch = || Err(format!("type kind mismatch: got \"{output}\", expected \"{expected}\""));
    match (output, expected) {
        (Type::Dyn | Type::Error | Type::Param(_), _) | (_, Type::Dyn | Type::Error) => Ok(()),
        (Type::Optional(inner), expected) => fits(inner, expected, depth + 1),
        // A null field counts as absent.
        (Type::Null, _) => Ok(()),
        (Type::List(output), Type::List(expected)) => {
            fits(output, expected, depth + 1).map_err(|why| format!("list element type incompatible: {why}"))
        }
        (Type::Map(key, value), Type::Map(_, expected)) => {
            fits(key, &Type::String, depth + 1).map_err(|why| format!("map key type incompatible: {why}"))?;
            fits(value, expected, depth + 1).map_err(|why| format!("map value type incompatible: {why}"))
        }
        (Type::Object(output), Type::Object(expected)) => {
            if output == expected {
                return Ok(());
            }
            for (name, schema) in output.fields() {
                match field_of(expected, name) {
                    Some(wanted) => fits(&schema.to_type(), &wanted, depth + 1)
                        .map_err(|why| format!("field \"{name}\" has incompatible type: {why}"))?,
                    None => {
                        return Err(format!("field \"{name}\" exists in output but not in expected type"));
                    }
                }
            }
            Ok(())
        }
        (Type::Map(_, value), Type::Object(expected)) => expected.fields().try_for_each(|(name, schema)| {
            fits(value, &schema.to_type(), depth + 1)
                .map_err(|why| format!("map value incompatible with struct field \"{name}\": {why}"))
        }),
        (Type::Object(output), Type::Map(_, expected)) => output.fields().try_for_each(|(name, schema)| {
            fits(&schema.to_type(), expected, depth + 1)
                .map_err(|why| format!("struct field \"{name}\" incompatible with map value type: {why}"))
        }),
        // Fields of these formats are strings in JSON, which authors encode themselves.
        (Type::String, Type::Bytes | Type::Timestamp | Type::Duration) => Ok(()),
        (output, expected) if output == expected => Ok(()),
        _ => mismatch(),
    }
}

/// The type of an object's field; `dyn` where the object takes any.
fn field_of(schema: &Schema, name: &str) -> Option<Type> {
    let declared = schema.fields().find(|(known, _)| *known == name).map(|(_, field)| field.to_type());
    declared.or_else(|| schema.is_open().then_some(Type::Dyn))
}

/// Returns the OpenAPI schema of a status field from the type of its expression. It is kro's to the letter, so that a CRD
/// that kro made is not written again.
pub(crate) fn schema_of_type(ty: &Type) -> Json {
    infer(ty, 0)
}

fn infer(ty: &Type, depth: usize) -> Json {
    let free = || json!({"x-kubernetes-preserve-unknown-fields": true});
    let described = |text: String| json!({"x-kubernetes-preserve-unknown-fields": true, "description": text});
    if depth > DEPTH_MAX {
        return free();
    }
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int | Type::Uint => json!({"type": "integer"}),
        Type::Double => json!({"type": "number"}),
        Type::String => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Timestamp => json!({
            "type": "string", "format": "date-time", "description": "Timestamp representing a creation time"}),
        Type::List(item) => json!({"type": "array", "items": infer(item, depth + 1)}),
        Type::Map(_, value) => json!({"type": "object", "additionalProperties": infer(value, depth + 1)}),
        Type::Object(schema) => {
            let properties: Map<String, Json> = schema
                .fields()
                .map(|(name, field)| (name.to_owned(), infer_field(&field.to_type(), depth + 1)))
                .collect();
            let mut inferred = json!({"type": "object", "properties": properties});
            if schema.is_open()
                && let Some(inferred) = inferred.as_object_mut()
            {
                inferred.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            }
            inferred
        }
        Type::Dyn => free(),
        Type::Null => described("null type - any value allowed".to_owned()),
        other => described(format!("unknown CEL type: {other}")),
    }
}

/// The schema of a field of an object. kro leaves times in there open, and its CRDs are updated by this controller: a type
/// would be a breaking change.
fn infer_field(ty: &Type, depth: usize) -> Json {
    match ty {
        Type::Timestamp | Type::Duration => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Type::List(item) => json!({"type": "array", "items": infer_field(item, depth + 1)}),
        Type::Map(_, value) => {
            json!({"type": "object", "additionalProperties": infer_field(value, depth + 1)})
        }
        other => infer(other, depth),
    }
}

/// The names of JSON types that a literal in a place of this schema may have.
pub(crate) fn types_of_schema(ty: &Type) -> Option<Vec<&'static str>> {
    Some(match ty {
        Type::Bool => vec!["boolean"],
        Type::Int | Type::Uint => vec!["integer"],
        Type::Double => vec!["number"],
        Type::String | Type::Bytes | Type::Timestamp | Type::Duration => vec!["string"],
        Type::List(_) => vec!["array"],
        Type::Map(..) | Type::Object(_) => vec!["object"],
        _ => return None,
    })
}

/// The name of a literal's JSON type.
pub(crate) fn literal_type_name(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}
