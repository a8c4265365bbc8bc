//! Markers of a field: `required=true default="a b" enum="x,y"`.

use orlop_regex::COMPILED_BYTES_MAX;
use serde_json::{Map, Number, Value as Json, json};

/// One `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    name: Name,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Required,
    Default,
    Description,
    Minimum,
    Maximum,
    Validation,
    Enum,
    Immutable,
    Pattern,
    MinLength,
    MaxLength,
    UniqueItems,
    MinItems,
    MaxItems,
    ListType,
    ListMapKey,
}

impl Name {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "required" => Self::Required,
            "default" => Self::Default,
            "description" => Self::Description,
            "minimum" => Self::Minimum,
            "maximum" => Self::Maximum,
            "validation" => Self::Validation,
            "enum" => Self::Enum,
            "immutable" => Self::Immutable,
            "pattern" => Self::Pattern,
            "minLength" => Self::MinLength,
            "maxLength" => Self::MaxLength,
            "uniqueItems" => Self::UniqueItems,
            "minItems" => Self::MinItems,
            "maxItems" => Self::MaxItems,
            "listType" => Self::ListType,
            "listMapKey" => Self::ListMapKey,
            _ => return Err(format!("invalid marker key \"{text}\": unknown marker: {text}")),
        })
    }
}

/// Splits the text after `|` into markers.
pub(crate) fn parse(text: &str) -> Result<Vec<Marker>, String> {
    let mut markers = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, after)) = rest.split_once('=') else {
            let key: String = rest.split_whitespace().collect();
            return Err(format!("marker key '{key}' without a value"));
        };
        // Words before `=` run together, as kro's scanner has it: a second `|` becomes part of the key.
        let key: String = key.split_whitespace().collect();
        if key.is_empty() {
            return Err("empty marker key".to_owned());
        }
        let name = Name::parse(&key)?;
        let (value, after) = scan_value(after)?;
        markers.push(Marker { name, value });
        rest = after.trim_start();
    }
    Ok(markers)
}

/// Reads a value up to the space that ends it; returns it and what follows.
fn scan_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut open: Vec<char> = Vec::new();
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let nested = !open.is_empty();
        match c {
            '\\' if quoted => {
                match chars.clone().next() {
                    Some((_, next @ ('"' | '\\'))) if !nested => {
                        chars.next();
                        value.push(next);
                    }
                    // Inside JSON the escape belongs to the JSON.
                    Some((_, next @ ('"' | '\\'))) => {
                        chars.next();
                        value.push(c);
                        value.push(next);
                    }
                    _ => value.push(c),
                }
            }
            '"' => {
                quoted = !quoted;
                if nested {
                    value.push(c);
                }
            }
            '{' | '[' if !quoted => {
                open.push(c);
                value.push(c);
            }
            '}' | ']' if !quoted => {
                let wanted = if c == '}' { '{' } else { '[' };
                if open.pop() != Some(wanted) {
                    return Err("unmatched closing bracket/brace".to_owned());
                }
                value.push(c);
            }
            c if c.is_whitespace() && !quoted && !nested => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err("unclosed quote".to_owned());
    }
    if !open.is_empty() {
        return Err("unclosed bracket/brace".to_owned());
    }
    Ok((value, ""))
}

/// Applies markers to a schema; returns whether the field is required, where a marker says so.
pub(crate) fn apply(markers: &[Marker], schema: &mut Map<String, Json>) -> Result<Option<bool>, String> {
    let mut required = None;
    for Marker { name, value } in markers {
        match name {
            Name::Required => required = Some(boolean(value, "required")?),
            Name::Default => {
                let default = default_value(schema, value)?;
                schema.insert("default".to_owned(), default);
            }
            Name::Description => {
                schema.insert("description".to_owned(), json!(value));
            }
            Name::Minimum => bound(schema, "minimum", value)?,
            Name::Maximum => bound(schema, "maximum", value)?,
            Name::Validation if value.trim().is_empty() => return Err("validation failed".to_owned()),
            Name::Validation => rule(schema, value, "validation failed"),
            Name::Immutable if boolean(value, "immutable")? => {
                rule(schema, "self == oldSelf", "field is immutable");
            }
            Name::Immutable => {}
            Name::Enum => enumeration(schema, value)?,
            Name::Pattern => {
                if value.is_empty() {
                    return Err("pattern marker value cannot be empty".to_owned());
                }
                only_for(schema, "pattern", "string")?;
                orlop_regex::compile(value, COMPILED_BYTES_MAX)
                    .map_err(|error| format!("invalid pattern regex: {error}"))?;
                schema.insert("pattern".to_owned(), json!(value));
            }
            Name::MinLength => count(schema, "minLength", "string", value)?,
            Name::MaxLength => count(schema, "maxLength", "string", value)?,
            Name::MinItems => count(schema, "minItems", "array", value)?,
            Name::MaxItems => count(schema, "maxItems", "array", value)?,
            Name::UniqueItems => {
                let unique = boolean(value, "uniqueItems")?;
                only_for(schema, "uniqueItems", "array")?;
                match list_type_of(schema) {
                    Some(other) if unique && other != "set" => {
                        return Err(format!("cannot set unique when listType is set to {other}"));
                    }
                    _ if unique => {
                        schema.insert(LIST_TYPE.to_owned(), json!("set"));
                    }
                    _ => {}
                }
            }
            Name::ListType => {
                only_for(schema, "listType", "array")?;
                if !["atomic", "set", "map"].contains(&value.as_str()) {
                    return Err(format!(
                        "unsupported value for listType {value}, needs to be one of atomic, set, or map"
                    ));
                }
                if let Some(before) = list_type_of(schema).filter(|before| before != value) {
                    return Err(format!(
                        "listType attempting to overwrite set type of {before}, listType and uniqueItems contradict"
                    ));
                }
                schema.insert(LIST_TYPE.to_owned(), json!(value));
            }
            Name::ListMapKey => {
                if list_type_of(schema).as_deref() != Some("map") {
                    return Err(
                        "listMapKey set while listType is unset, listType must be set to map".to_owned()
                    );
                }
                let keys = schema.entry("x-kubernetes-list-map-keys").or_insert_with(|| json!([]));
                if let Some(keys) = keys.as_array_mut() {
                    if keys.iter().any(|known| known == value) {
                        return Err(format!("duplicate listMapKey marker, value {value}"));
                    }
                    keys.push(json!(value));
                }
            }
        }
    }
    Ok(required)
}

const LIST_TYPE: &str = "x-kubernetes-list-type";

fn type_of(schema: &Map<String, Json>) -> &str {
    schema.get("type").and_then(Json::as_str).unwrap_or_default()
}

fn list_type_of(schema: &Map<String, Json>) -> Option<String> {
    schema.get(LIST_TYPE).and_then(Json::as_str).map(str::to_owned)
}

fn only_for(schema: &Map<String, Json>, marker: &str, wanted: &str) -> Result<(), String> {
    match type_of(schema) {
        found if found == wanted => Ok(()),
        found => Err(format!("{marker} marker is only valid for {wanted} types, got type: {found}")),
    }
}

fn boolean(text: &str, marker: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!(
            "failed to parse {marker} marker value: strconv.ParseBool: parsing \"{text}\": invalid syntax"
        )),
    }
}

fn bound(schema: &mut Map<String, Json>, marker: &str, text: &str) -> Result<(), String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
        format!("failed to parse {marker} enum value: strconv.ParseFloat: parsing \"{text}\": invalid syntax")
    })?;
    schema.insert(marker.to_owned(), number_json(number));
    Ok(())
}

/// A whole number is written without a fraction.
fn number_json(number: f64) -> Json {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Json::from(number as i64);
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

fn count(schema: &mut Map<String, Json>, marker: &str, wanted: &str, text: &str) -> Result<(), String> {
    only_for(schema, marker, wanted)?;
    let number = text.parse::<i64>().ok().filter(|number| *number >= 0).ok_or_else(|| {
        format!("failed to parse {marker} value: strconv.ParseInt: parsing \"{text}\": invalid syntax")
    })?;
    schema.insert(marker.to_owned(), json!(number));
    Ok(())
}

fn rule(schema: &mut Map<String, Json>, rule: &str, message: &str) {
    let rules = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Some(rules) = rules.as_array_mut() {
        rules.push(json!({"rule": rule, "message": message}));
    }
}

fn enumeration(schema: &mut Map<String, Json>, text: &str) -> Result<(), String> {
    let mut values = Vec::new();
    for value in text.split(',').map(str::trim) {
        if value.is_empty() {
            return Err("empty enum values are not allowed".to_owned());
        }
        values.push(match type_of(schema) {
            "string" => json!(value),
            "integer" => json!(value.parse::<i64>().map_err(|_| {
                format!("failed to parse integer enum value: strconv.ParseInt: parsing \"{value}\": invalid syntax")
            })?),
            other => {
                return Err(format!("enum values only supported for string and integer types, got type: {other}"));
            }
        });
    }
    schema.insert("enum".to_owned(), Json::Array(values));
    Ok(())
}

fn default_value(schema: &Map<String, Json>, text: &str) -> Result<Json, String> {
    let kind = type_of(schema);
    let wrong = || format!("default value must be a valid {kind}, got: {text}");
    Ok(match kind {
        "string" => json!(text),
        "integer" => json!(text.parse::<i64>().map_err(|_| wrong())?),
        "number" => {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong)?;
            number_json(number)
        }
        "boolean" => json!(boolean(text, "default").map_err(|_| wrong())?),
        _ => serde_json::from_str(text).map_err(|_| wrong())?,
    })
}
