//! OpenAPI v2 in protobuf (gnostic's `openapi.v2`), which helm and older
//! Go clients require.
//!
//! A document is a concatenation of parts: protobuf readers merge repeated messages,
//! so a large document is written one path and one definition at a time.

use serde_json::{Map, Value};

use super::wire::{put_bytes, put_double, put_integer, put_message};

/// Encoding of a JSON field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// Anything, as YAML.
    Any,
    Anys,
    Message(&'static Fields),
    Messages(&'static Fields),
    /// A map whose entries are messages.
    Named(&'static Fields),
    /// One type or several.
    Types,
    /// A schema or a flag.
    AdditionalProperties,
    Parameters,
    Responses,
}

/// Fields of a message: JSON name, number and encoding; and the number of vendor extensions
/// (`x-`).
struct Fields {
    known: &'static [(&'static str, u32, Shape)],
    extensions: Option<u32>,
}

static INFO: Fields =
    Fields { known: &[("title", 1, Shape::Text), ("version", 2, Shape::Text)], extensions: None };

static SCHEMA: Fields = Fields {
    known: &[
        ("$ref", 1, Shape::Text),
        ("format", 2, Shape::Text),
        ("title", 3, Shape::Text),
        ("description", 4, Shape::Text),
        ("default", 5, Shape::Any),
        ("multipleOf", 6, Shape::Double),
        ("maximum", 7, Shape::Double),
        ("exclusiveMaximum", 8, Shape::Flag),
        ("minimum", 9, Shape::Double),
        ("exclusiveMinimum", 10, Shape::Flag),
        ("maxLength", 11, Shape::Integer),
        ("minLength", 12, Shape::Integer),
        ("pattern", 13, Shape::Text),
        ("maxItems", 14, Shape::Integer),
        ("minItems", 15, Shape::Integer),
        ("uniqueItems", 16, Shape::Flag),
        ("maxProperties", 17, Shape::Integer),
        ("minProperties", 18, Shape::Integer),
        ("required", 19, Shape::Texts),
        ("enum", 20, Shape::Anys),
        ("additionalProperties", 21, Shape::AdditionalProperties),
        ("type", 22, Shape::Types),
        ("items", 23, Shape::Message(&ITEMS)),
        ("allOf", 24, Shape::Messages(&SCHEMA)),
        ("properties", 25, Shape::Named(&SCHEMA)),
        ("example", 30, Shape::Any),
    ],
    extensions: Some(31),
};

/// A schema wrapped in a message, whose only field has no JSON name.
static ITEMS: Fields = Fields { known: &[("", 1, Shape::Message(&SCHEMA))], extensions: None };

static BODY_PARAMETER: Fields = Fields {
    known: &[
        ("description", 1, Shape::Text),
        ("name", 2, Shape::Text),
        ("in", 3, Shape::Text),
        ("required", 4, Shape::Flag),
        ("schema", 5, Shape::Message(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY_PARAMETER: Fields = Fields {
    known: &[
        ("required", 1, Shape::Flag),
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 6, Shape::Text),
        ("format", 7, Shape::Text),
        ("uniqueItems", 20, Shape::Flag),
    ],
    extensions: Some(23),
};

static PATH_PARAMETER: Fields = Fields {
    known: &[
        ("required", 1, Shape::Flag),
        ("in", 2, Shape::Text),
        ("description", 3, Shape::Text),
        ("name", 4, Shape::Text),
        ("type", 5, Shape::Text),
        ("format", 6, Shape::Text),
        ("uniqueItems", 19, Shape::Flag),
    ],
    extensions: Some(22),
};

static REFERENCE: Fields = Fields { known: &[("$ref", 1, Shape::Text)], extensions: None };

static RESPONSE: Fields = Fields {
    known: &[("description", 1, Shape::Text), ("schema", 2, Shape::Message(&ITEMS))],
    extensions: Some(5),
};

static OPERATION: Fields = Fields {
    known: &[
        ("tags", 1, Shape::Texts),
        ("description", 3, Shape::Text),
        ("operationId", 5, Shape::Text),
        ("produces", 6, Shape::Texts),
        ("consumes", 7, Shape::Texts),
        ("parameters", 8, Shape::Parameters),
        ("responses", 9, Shape::Responses),
        ("schemes", 10, Shape::Texts),
    ],
    extensions: Some(13),
};

static PATH_ITEM: Fields = Fields {
    known: &[
        ("get", 2, Shape::Message(&OPERATION)),
        ("put", 3, Shape::Message(&OPERATION)),
        ("post", 4, Shape::Message(&OPERATION)),
        ("delete", 5, Shape::Message(&OPERATION)),
        ("options", 6, Shape::Message(&OPERATION)),
        ("head", 7, Shape::Message(&OPERATION)),
        ("patch", 8, Shape::Message(&OPERATION)),
        ("parameters", 9, Shape::Parameters),
    ],
    extensions: Some(10),
};

/// Encodes the head of a document: swagger version and info.
pub fn head(info: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    put_bytes(&mut to, 1, b"2.0");
    put_message(&mut to, 2, |to| put(to, info, &INFO));
    to
}

/// Encodes a path of a document.
pub fn path(name: &str, item: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    put_message(&mut to, 8, |to| named(to, 2, name, item, &PATH_ITEM));
    to
}

/// Encodes a definition of a document.
pub fn definition(name: &str, schema: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    put_message(&mut to, 9, |to| named(to, 1, name, schema, &SCHEMA));
    to
}

/// Encodes a parameter that operations of a document refer to.
pub fn shared_parameter(name: &str, value: &Value) -> Vec<u8> {
    let mut to = Vec::new();
    put_message(&mut to, 10, |to| {
        put_message(to, 1, |to| {
            put_bytes(to, 1, name.as_bytes());
            put_message(to, 2, |to| by_location(to, value));
        });
    });
    to
}

fn named(to: &mut Vec<u8>, number: u32, name: &str, value: &Value, fields: &Fields) {
    put_message(to, number, |to| {
        put_bytes(to, 1, name.as_bytes());
        put_message(to, 2, |to| put(to, value, fields));
    });
}

fn put(to: &mut Vec<u8>, value: &Value, fields: &Fields) {
    if let [("", number, shape)] = fields.known {
        return field(to, *number, *shape, value);
    }
    let none = Map::new();
    let map = value.as_object().unwrap_or(&none);
    for (name, number, shape) in fields.known {
        if let Some(value) = map.get(*name) {
            field(to, *number, *shape, value);
        }
    }
    if let Some(number) = fields.extensions {
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
            put_message(to, number, |to| {
                put_bytes(to, 1, name.as_bytes());
                any(to, 2, value);
            });
        }
    }
}

fn field(to: &mut Vec<u8>, number: u32, shape: Shape, value: &Value) {
    let text = |to: &mut Vec<u8>, number, value: &Value| {
        put_bytes(to, number, value.as_str().unwrap_or_default().as_bytes());
    };
    let items = || value.as_array().map(Vec::as_slice).unwrap_or_default();
    match shape {
        Shape::Text => text(to, number, value),
        Shape::Texts => items().iter().for_each(|item| text(to, number, item)),
        Shape::Flag => put_integer(to, number, value.as_bool().unwrap_or_default().into()),
        Shape::Integer => put_integer(to, number, value.as_i64().unwrap_or_default()),
        Shape::Double => put_double(to, number, value.as_f64().unwrap_or_default()),
        Shape::Any => any(to, number, value),
        Shape::Anys => items().iter().for_each(|item| any(to, number, item)),
        Shape::Message(fields) => put_message(to, number, |to| put(to, value, fields)),
        Shape::Messages(fields) => {
            items().iter().for_each(|item| put_message(to, number, |to| put(to, item, fields)));
        }
        Shape::Named(fields) => put_message(to, number, |to| {
            for (name, item) in value.as_object().into_iter().flatten() {
                named(to, 1, name, item, fields);
            }
        }),
        Shape::Types => put_message(to, number, |to| match value {
            Value::Array(types) => types.iter().for_each(|name| text(to, 1, name)),
            name => text(to, 1, name),
        }),
        Shape::AdditionalProperties => put_message(to, number, |to| match value {
            Value::Bool(flag) => put_integer(to, 2, (*flag).into()),
            schema => put_message(to, 1, |to| put(to, schema, &SCHEMA)),
        }),
        Shape::Parameters => items().iter().for_each(|item| parameter(to, number, item)),
        Shape::Responses => put_message(to, number, |to| {
            for (code, response) in value.as_object().into_iter().flatten() {
                put_message(to, 1, |to| {
                    put_bytes(to, 1, code.as_bytes());
                    // A response that is not a reference.
                    put_message(to, 2, |to| put_message(to, 1, |to| put(to, response, &RESPONSE)));
                });
            }
        }),
    }
}

/// Encodes a parameter or a reference to one.
fn parameter(to: &mut Vec<u8>, number: u32, value: &Value) {
    put_message(to, number, |to| match value.get("$ref") {
        Some(_) => put_message(to, 2, |to| put(to, value, &REFERENCE)),
        None => put_message(to, 1, |to| by_location(to, value)),
    });
}

/// Encodes a parameter: nested unions by location.
fn by_location(to: &mut Vec<u8>, value: &Value) {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => put_message(to, 1, |to| put(to, value, &BODY_PARAMETER)),
        Some("path") => {
            put_message(to, 2, |to| put_message(to, 4, |to| put(to, value, &PATH_PARAMETER)));
        }
        _ => put_message(to, 2, |to| put_message(to, 3, |to| put(to, value, &QUERY_PARAMETER))),
    }
}

/// Encodes JSON as YAML.
fn any(to: &mut Vec<u8>, number: u32, value: &Value) {
    put_message(to, number, |to| put_bytes(to, 2, value.to_string().as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn definition_encodes_as_gnostic() {
        let schema = json!({"type": "object", "x-kubernetes-map-type": "atomic"});
        let expected = [
            // definitions { additional_properties { name: "T" value {
            &b"\x4a\x38\x0a\x36\x0a\x01T\x12\x31"[..],
            // type { value: "object" }
            b"\xb2\x01\x08\x0a\x06object",
            // vendor_extension { name: "x-kubernetes-map-type" value { yaml: "\"atomic\"" } }
            b"\xfa\x01\x23\x0a\x15x-kubernetes-map-type\x12\x0a\x12\x08\"atomic\"",
        ];
        assert_eq!(definition("T", &schema), expected.concat());
        let items = json!({"items": {"$ref": "#/b"}});
        let expected = b"\x4a\x11\x0a\x0f\x0a\x01T\x12\x0a\xba\x01\x07\x0a\x05\x0a\x03#/b";
        assert_eq!(definition("T", &items), expected);
    }

    #[test]
    fn parameters_encode_by_location() {
        let item = |place: &str| json!({"parameters": [{"in": place}]});
        let made = |place: &str| path("/", &item(place));
        // parameters { parameter { body_parameter { in: "body" } } }
        assert!(made("body").ends_with(b"\x4a\x0a\x0a\x08\x0a\x06\x1a\x04body"));
        // parameters { parameter { non_body_parameter { path_parameter_sub_schema { in: "path" } } } }
        assert!(made("path").ends_with(b"\x4a\x0c\x0a\x0a\x12\x08\x22\x06\x12\x04path"));
        assert!(made("query").ends_with(b"\x4a\x0d\x0a\x0b\x12\x09\x1a\x07\x12\x05query"));
        // parameters { json_reference { _ref: "#/parameters/a" } }
        let referring = path("/", &json!({"parameters": [{"$ref": "#/parameters/a"}]}));
        assert!(referring.ends_with(b"\x4a\x12\x12\x10\x0a\x0e#/parameters/a"));
        // parameters { additional_properties { name: "a" value { body_parameter { in: "body" } } } }
        assert_eq!(
            shared_parameter("a", &json!({"in": "body"})),
            b"\x52\x0f\x0a\x0d\x0a\x01a\x12\x08\x0a\x06\x1a\x04body"
        );
    }
}
