//! Structural schemas of Rust types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Returns the OpenAPI schema of an object whose body is a `T`.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    structural(&mut schema);
    let Some(map) = schema.as_object_mut() else { return json!({"type": "object"}) };
    for extra in ["title", "components", "$schema"] {
        map.remove(extra);
    }
    let properties = map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    if let Some(properties) = properties.as_object_mut() {
        for (name, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
            properties.insert(name.into(), json!({"type": kind}));
        }
    }
    schema
}

/// Rewrites what schemars generates and a structural schema does not allow: a choice of constants becomes an
/// enum, a choice of a type and null becomes nullable.
fn structural(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(structural),
        Value::Object(map) => {
            constants(map);
            nullable_types(map);
            nullable_choice(map);
            map.values_mut().for_each(structural);
        }
        _ => {}
    }
}

/// Rewrites `oneOf: [{const: a}, {const: b}]`, which schemars generates for an enum with documented variants.
fn constants(map: &mut Map<String, Value>) {
    if let Some(constant) = map.remove("const") {
        map.insert("enum".into(), json!([constant]));
    }
    let Some(Value::Array(choices)) = map.get("oneOf") else { return };
    let mut values = Vec::new();
    for choice in choices {
        match (choice.get("const"), choice.get("enum").and_then(Value::as_array)) {
            (Some(constant), _) => values.push(constant.clone()),
            (None, Some(some)) => values.extend(some.iter().cloned()),
            (None, None) => return,
        }
    }
    if values.iter().all(Value::is_string) {
        map.remove("oneOf");
        map.insert("type".into(), "string".into());
        map.insert("enum".into(), values.into());
    }
}

/// Rewrites `type: [string, "null"]`.
fn nullable_types(map: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = map.get("type") else { return };
    let others: Vec<Value> = types.iter().filter(|kind| *kind != "null").cloned().collect();
    if let [kind] = others.as_slice() {
        let (kind, nullable) = (kind.clone(), types.len() > 1);
        map.insert("type".into(), kind);
        if nullable {
            map.insert("nullable".into(), true.into());
        }
    }
}

/// Rewrites `anyOf: [X, {type: "null"}]`, or its OpenAPI 3.0 equivalent.
fn nullable_choice(map: &mut Map<String, Value>) {
    let is_null = |choice: &Value| {
        choice.get("type").is_some_and(|kind| kind == "null")
            || choice.get("enum").is_some_and(|values| *values == json!([null]))
            || choice.get("const").is_some_and(Value::is_null)
    };
    let Some(Value::Array(choices)) = map.get("anyOf") else { return };
    let others: Vec<Value> = choices.iter().filter(|choice| !is_null(choice)).cloned().collect();
    if let ([Value::Object(other)], 2) = (others.as_slice(), choices.len()) {
        map.remove("anyOf");
        for (key, value) in other.clone() {
            map.entry(key).or_insert(value);
        }
        map.insert("nullable".into(), true.into());
    }
}
