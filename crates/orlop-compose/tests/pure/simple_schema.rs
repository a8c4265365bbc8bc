//! SimpleSchema to OpenAPI.

use orlop_compose::simple_schema::to_openapi;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

fn convert(fields: Json, types: Json) -> Result<Json, String> {
    let map = |json: Json| json.as_object().cloned().unwrap_or_default();
    to_openapi(&map(fields), &map(types))
}

fn field(text: &str) -> Json {
    convert(json!({"f": text}), json!({})).expect("a schema")["properties"]["f"].clone()
}

fn error(text: &str) -> String {
    convert(json!({"f": text}), json!({})).expect_err("refused")
}

#[test]
fn every_type_has_its_schema() {
    assert_eq!(field("string"), json!({"type": "string"}));
    assert_eq!(field("integer"), json!({"type": "integer"}));
    assert_eq!(field("boolean"), json!({"type": "boolean"}));
    assert_eq!(field("float"), json!({"type": "number"}));
    assert_eq!(field("object"), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(field("[]string"), json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(
        field("map[string][]integer"),
        json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}})
    );
}

#[test]
fn every_marker_has_its_keyword() {
    assert_eq!(field("string | default=x"), json!({"type": "string", "default": "x"}));
    assert_eq!(
        field("integer | default=3 minimum=1 maximum=5"),
        json!({"type": "integer", "default": 3, "minimum": 1, "maximum": 5})
    );
    assert_eq!(field("boolean | default=true"), json!({"type": "boolean", "default": true}));
    assert_eq!(field("float | default=0.5"), json!({"type": "number", "default": 0.5}));
    assert_eq!(
        field(r#"string | description="a \"b\" c""#),
        json!({"type": "string", "description": "a \"b\" c"})
    );
    assert_eq!(field(r#"string | enum="a, b""#), json!({"type": "string", "enum": ["a", "b"]}));
    assert_eq!(field(r#"integer | enum="1,2""#), json!({"type": "integer", "enum": [1, 2]}));
    assert_eq!(
        field(r#"string | validation="size(self) > 1""#)["x-kubernetes-validations"],
        json!([{"rule": "size(self) > 1", "message": "validation failed"}])
    );
    assert_eq!(
        field("string | immutable=true")["x-kubernetes-validations"],
        json!([{"rule": "self == oldSelf", "message": "field is immutable"}])
    );
    assert_eq!(
        field(r#"string | pattern="^\d+$" minLength=1 maxLength=9"#),
        json!({"type": "string", "pattern": r"^\d+$", "minLength": 1, "maxLength": 9})
    );
    assert_eq!(
        field("[]string | minItems=1 maxItems=2 uniqueItems=true"),
        json!({
        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "x-kubernetes-list-type": "set"})
    );
    assert_eq!(
        field("[]object | listType=map listMapKey=a listMapKey=b")["x-kubernetes-list-map-keys"],
        json!(["a", "b"])
    );
    assert_eq!(field(r#"[]integer | default=[1, 2]"#)["default"], json!([1, 2]));
    assert_eq!(field(r#"map[string]string | default={"a": "b c"}"#)["default"], json!({"a": "b c"}));
}

#[test]
fn mistakes_are_told_in_kro_words() {
    for (text, wanted) in [
        ("string | a=1 | default=2", "field f: invalid marker key \"a\": unknown marker: a"),
        (
            "string | required=true | default=2",
            "field f: invalid marker key \"|default\": unknown marker: |default",
        ),
        ("string | required", "field f: marker key 'required' without a value"),
        ("string | =1", "field f: empty marker key"),
        ("string | default=\"x", "field f: unclosed quote"),
        ("object | default={", "field f: unclosed bracket/brace"),
        ("object | default=}", "field f: unmatched closing bracket/brace"),
        ("", "field f: empty type"),
        ("[]", "field f: empty slice element type"),
        ("map[integer]string", "field f: map key must be string"),
        ("map[string]", "field f: map value type is required"),
        ("Unknown", "field f: unknown type: Unknown"),
        ("integer | default=x", "field f: default value must be a valid integer, got: x"),
        ("string | enum=\"a,\"", "field f: empty enum values are not allowed"),
        (
            "boolean | enum=\"a\"",
            "field f: enum values only supported for string and integer types, got type: boolean",
        ),
        (
            "integer | minLength=1",
            "field f: minLength marker is only valid for string types, got type: integer",
        ),
        ("string | minItems=1", "field f: minItems marker is only valid for array types, got type: string"),
        ("string | pattern=\"\"", "field f: pattern marker value cannot be empty"),
        (
            "[]string | listType=bag",
            "field f: unsupported value for listType bag, needs to be one of atomic, set, or map",
        ),
        (
            "[]string | listMapKey=a",
            "field f: listMapKey set while listType is unset, listType must be set to map",
        ),
    ] {
        assert_eq!(error(text), wanted, "{text}");
    }
    let deep = format!("{}string", "[]".repeat(17));
    assert!(error(&deep).contains("type nesting too deep (max 16)"), "{}", error(&deep));
    assert_eq!(convert(json!({"f": 1}), json!({})).unwrap_err(), "field f: unexpected type: int64");
}

#[test]
fn custom_types_are_inlined_in_any_order() {
    let schema = convert(
        json!({"server": "Server", "ports": "[]Port", "port": "Port | default=90"}),
        json!({"Server": {"port": "Port", "host": "string"}, "Port": "integer | default=80 required=true"}),
    )
    .unwrap();
    assert_eq!(
        schema["properties"]["server"]["properties"]["port"],
        json!({"type": "integer", "default": 80})
    );
    assert_eq!(schema["properties"]["server"]["required"], json!(["port"]));
    assert_eq!(schema["properties"]["port"]["default"], 90);
    assert_eq!(schema["required"], json!(["port"]));
    let cycle = convert(json!({}), json!({"A": {"b": "B"}, "B": {"a": "A"}})).unwrap_err();
    assert_eq!(cycle, "cyclic dependency in type A: graph contains a cycle: A -> B -> A");
    let missing = convert(json!({}), json!({"A": {"b": "B"}})).unwrap_err();
    assert!(missing.ends_with("node B does not exist"), "{missing}");
}

#[test]
fn struct_of_defaults_exists_by_itself() {
    let schema = convert(json!({"a": {"b": "string | default=x", "c": "string"}}), json!({})).unwrap();
    assert_eq!(schema["properties"]["a"]["default"], json!({}));
    assert_eq!(schema["default"], json!({}));
    let schema =
        convert(json!({"a": {"b": "string | default=x", "c": "string | required=true"}}), json!({})).unwrap();
    assert!(schema["properties"]["a"].get("default").is_none());
}

/// Types with the schema that they should have.
fn types() -> impl Strategy<Value = (Json, Json)> {
    let leaf = prop_oneof![
        Just(("string", json!({"type": "string"}))),
        Just(("integer", json!({"type": "integer"}))),
        Just(("boolean", json!({"type": "boolean"}))),
        Just(("float", json!({"type": "number"}))),
    ];
    let text = leaf.prop_map(|(text, schema)| (text.to_owned(), schema)).prop_recursive(4, 8, 1, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|(text, schema)| (format!("[]{text}"), json!({"type": "array", "items": schema}))),
            inner.prop_map(|(text, schema)| (
                format!("map[string]{text}"),
                json!({"type": "object", "additionalProperties": schema})
            )),
        ]
    });
    let text = text.prop_map(|(text, schema)| (Json::String(text), schema));
    text.prop_recursive(3, 16, 4, |inner| {
        prop::collection::btree_map("[a-z]{1,4}", inner, 1..4).prop_map(|fields| {
            let definition: Map<String, Json> =
                fields.iter().map(|(name, (text, _))| (name.clone(), text.clone())).collect();
            let properties: Map<String, Json> =
                fields.into_iter().map(|(name, (_, schema))| (name, schema)).collect();
            (Json::Object(definition), json!({"type": "object", "properties": properties}))
        })
    })
}

proptest! {
    #[test]
    fn schema_of_any_type_is_its_shape((definition, schema) in types()) {
        let built = convert(json!({"f": definition}), json!({})).unwrap();
        prop_assert_eq!(&built["properties"]["f"], &schema);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = convert(json!({"f": text.clone()}), json!({"T": text}));
    }

    #[test]
    fn quoted_defaults_come_back_as_they_were(value in "[ -~]{0,20}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let built = field(&format!("string | default=\"{quoted}\""));
        prop_assert_eq!(built["default"].as_str(), Some(value.as_str()));
    }
}
