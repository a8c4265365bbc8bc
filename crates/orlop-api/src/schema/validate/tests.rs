//! Tests of every keyword and its message.

use super::*;
use crate::schema::from_openapi;
use serde_json::json;

fn errors(schema: Value, value: Value) -> Vec<String> {
    let schema = from_openapi(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}}),
    );
    validate(&json!({"spec": {"a": value}}), &schema).iter().map(ToString::to_string).collect()
}

#[test]
fn every_keyword_has_kubernetes_message() {
    let cases: Vec<(Value, Value, Vec<&str>)> = vec![
        (
            json!({"type": "integer"}),
            json!("x"),
            vec![r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#],
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                r#"spec.a: Invalid value: "number": spec.a in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.a"#,
            ],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            vec![r#"spec.a: Invalid value: "null": spec.a in body must be of type string: "null""#],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"type": "number"}), json!(3), vec![]),
        (json!({"x-kubernetes-int-or-string": true}), json!("5%"), vec![]),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![
                r#"spec.a: Invalid value: "boolean": spec.a in body must be of type integer,string: "boolean""#,
            ],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!(5),
            vec![r#"spec.a: Invalid value: "int64": spec.a in body must be of type date-time: "int64""#],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("x"),
            vec![r#"spec.a: Invalid value: "x": spec.a in body must be of type date-time: "x""#],
        ),
        (json!({"type": "string", "format": "unheard-of"}), json!("x"), vec![]),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            vec![
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.a"#,
            ],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            vec!["spec.a: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("é"),
            vec![r#"spec.a: Invalid value: "é": spec.a in body should be at least 2 chars long"#],
        ),
        (
            json!({"type": "string", "pattern": "^x$"}),
            json!("y"),
            vec![r#"spec.a: Invalid value: "y": spec.a in body should match '^x$'"#],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec![r#"spec.a: Unsupported value: "c": supported values: "a", "b""#],
        ),
        (
            json!({"type": "integer", "enum": [1]}),
            json!(2),
            vec![r#"spec.a: Unsupported value: 2: supported values: "1""#],
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            vec!["spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"],
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            vec!["spec.a: Invalid value: 1: spec.a in body should be greater than 1"],
        ),
        (
            json!({"type": "number", "maximum": 1.5}),
            json!(1.75),
            vec!["spec.a: Invalid value: 1.75: spec.a in body should be less than or equal to 1.5"],
        ),
        (
            json!({"type": "integer", "maximum": 2, "exclusiveMaximum": true}),
            json!(2),
            vec!["spec.a: Invalid value: 2: spec.a in body should be less than 2"],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            vec!["spec.a: Invalid value: 4: spec.a in body should be a multiple of 3"],
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
        (
            json!({"type": "integer", "multipleOf": 0}),
            json!(1),
            vec!["spec.a: Invalid value: 0: factor MultipleOf declared for spec.a must be positive: 0"],
        ),
        // A whole number is an integer, however it is written.
        (json!({"type": "integer", "minimum": 0.0}), json!(1.0), vec![]),
        (json!({"type": "integer"}), json!(-3e2), vec![]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                r#"spec.a: Invalid value: "number": spec.a in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.a"#,
            ],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            vec![
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.a"#,
            ],
        ),
        // A bound that is no integer makes every integer wrong.
        (
            json!({"type": "integer", "maximum": 1.5}),
            json!(1),
            vec![
                r#"<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in spec.a"#,
            ],
        ),
        (
            json!({"type": "integer", "format": "int32", "minimum": -5_000_000_000_i64}),
            json!(1),
            vec![
                r#"<nil>: Invalid value: "": Minimum boundary value must be of type integer with format int32 in spec.a"#,
            ],
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            vec!["spec.a: Invalid value: 1.5: spec.a in body should be less than 1.5"],
        ),
        // Numbers are the same however they are written; null is among no values.
        (json!({"type": "number", "enum": [1, 2.0]}), json!(2), vec![]),
        (json!({"type": "number", "enum": [1, 2.0]}), json!(1.0), vec![]),
        (
            json!({"type": "string", "nullable": true, "enum": ["a", null]}),
            json!(null),
            vec![r#"spec.a: Unsupported value: null: supported values: "a", "null""#],
        ),
        // Patterns are Go's: about ASCII.
        (
            json!({"type": "string", "pattern": r"^\d+$"}),
            json!("١"),
            vec![r#"spec.a: Invalid value: "١": spec.a in body should match '^\d+$'"#],
        ),
        (json!({"type": "string", "pattern": r"^[[:alpha:]]+$"}), json!("abc"), vec![]),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["x", "y"]),
            vec!["spec.a: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["spec.a: Invalid value: 0: spec.a in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            json!([1, "x"]),
            vec![
                r#"spec.a[1]: Invalid value: "string": spec.a[1] in body must be of type integer: "string""#,
            ],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            json!(["x", "x"]),
            vec![r#"spec.a: Invalid value: "": spec.a in body shouldn't contain duplicates"#],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"x": "1", "y": "2"}),
            vec!["spec.a: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "object", "minProperties": 1}),
            json!({}),
            vec!["spec.a: Invalid value: 0: spec.a in body should have at least 1 properties"],
        ),
        (
            json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}),
            json!({}),
            vec!["spec.a.b: Required value"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"k": 1}),
            vec![r#"spec.a.k: Invalid value: "integer": spec.a.k in body must be of type string: "integer""#],
        ),
        (
            json!({"type": "integer", "not": {"minimum": 5}}),
            json!(6),
            vec![r#"<nil>: Invalid value: "": "spec.a" must not validate the schema (not)"#],
        ),
        (
            json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(3),
            vec![
                r#"<nil>: Invalid value: "": "spec.a" must validate at least one schema (anyOf)"#,
                "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 1}]}),
            json!(3),
            vec![
                r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid"#,
                "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(3),
            vec![
                r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]}),
            json!(3),
            vec![
                "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5",
                r#"<nil>: Invalid value: "": "spec.a" must validate all the schemas (allOf)"#,
            ],
        ),
    ];
    for (schema, value, expected) in cases {
        assert_eq!(errors(schema.clone(), value.clone()), expected, "{schema} {value}");
    }
}

#[test]
fn closest_alternative_is_reported() {
    let schema = json!({"type": "object", "properties": {"t": {"type": "string"}, "x": {"type": "integer"}}, "oneOf": [
        {"properties": {"t": {"enum": ["a"]}}, "required": ["t"]},
        {"properties": {"t": {"enum": ["b"]}, "x": {"minimum": 1}}, "required": ["t", "x"]}
    ]});
    let found = errors(schema, json!({"t": "b", "x": 0}));
    assert_eq!(found[1], "spec.a.x: Invalid value: 0: spec.a.x in body should be greater than or equal to 1");
}

#[test]
fn updates_ratchet_unchanged_values() {
    let schema = from_openapi(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["r"], "properties": {
            "r": {"type": "string"},
            "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 1}}}},
            "atomic": {"type": "array", "items": {"type": "integer", "minimum": 1}}
        }}}}),
    );
    let check = |old: Value, new: Value| -> Vec<String> {
        validate_update(&json!({"spec": new}), &json!({"spec": old}), &schema)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        check(json!({"a": "long", "b": "x", "r": "r"}), json!({"a": "long", "b": "longer", "r": "r"})),
        ["spec.b: Too long: may not be more than 1 bytes".replace("bytes", "byte")]
    );
    assert_eq!(
        check(
            json!({"r": "r", "list": [{"k": "a", "v": 0}]}),
            json!({"r": "r", "list": [{"k": "b", "v": 0}, {"k": "a", "v": 0}]})
        ),
        ["spec.list[0].v: Invalid value: 0: spec.list[0].v in body should be greater than or equal to 1"]
    );
    assert_eq!(
        check(json!({"r": "r", "atomic": [0]}), json!({"r": "r", "atomic": [0]})),
        Vec::<String>::new()
    );
    assert_eq!(check(json!({"r": "r", "atomic": [0]}), json!({"r": "r", "atomic": [0, 1]})).len(), 1);
    assert_eq!(check(json!({"a": "x"}), json!({"a": "y"})), ["spec.r: Required value"]);
}

#[test]
fn type_errors_block_cel_rules() {
    let schema = from_openapi(
        &json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string"}}}}),
    );
    let blocked = validate(&json!({"list": "x"}), &schema);
    assert!(blocks_rules(&blocked));
    assert!(
        rules_skipped_error()
            .to_string()
            .starts_with("<nil>: Invalid value: null: some validation rules were not checked")
    );
}

#[test]
fn every_format_has_kubernetes_message() {
    let bad = [
        ("bsonobjectid", "507f"),
        ("uri", "a b"),
        ("email", "nobody"),
        ("hostname", "-a"),
        ("ipv4", "1.2.3"),
        ("ipv6", "1.2.3.4"),
        ("cidr", "10.0.0.0/33"),
        ("mac", "01:02"),
        ("uuid", "a8098c1a"),
        ("uuid3", "bcd02e22-68f0-4046-a512-327cca9def8f"),
        ("uuid4", "025b0d74-00a2-4048-0f57-227c5111bb34"),
        ("uuid5", "886313e1-3b8a-4372-9b90-0c9aee199e5d"),
        ("isbn", "0321751042"),
        ("isbn10", "978-0321751041"),
        ("isbn13", "9780321751042"),
        ("creditcard", "4111-1111-1111-1112"),
        ("ssn", "111111111"),
        ("hexcolor", "#FFFF"),
        ("rgbcolor", "rgb(256,0,0)"),
        ("byte", "aGk"),
        ("date", "2026-02-30"),
        ("duration", "5 parsecs"),
        ("datetime", "2026-02-28"),
        ("date-time", "2026-02-28"),
        ("k8s-short-name", "a.b"),
        ("k8s-long-name", "A"),
    ];
    for (format, text) in bad {
        assert_eq!(
            errors(json!({"type": "string", "format": format}), json!(text)),
            [format!("spec.a: Invalid value: {text:?}: spec.a in body must be of type {format}: {text:?}")]
        );
    }
    assert_eq!(errors(json!({"type": "string", "format": "password"}), json!("")), Vec::<String>::new());
}

#[test]
fn nulls_of_non_nullable_properties_are_type_errors() {
    let schema =
        from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "strict": {"type": "object"},
            "nullable": {"type": "object", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}}}));
    let value = json!({"spec": {"strict": null, "nullable": null, "defaulted": null, "list": [{"a": null}], "unknown": null}});
    let errors: Vec<_> = validate_nulls(&value, &schema).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.list[0].a: Invalid value: \"null\": spec.list[0].a in body must be of type string: \"null\"",
            "spec.strict: Invalid value: \"null\": spec.strict in body must be of type object: \"null\"",
        ]
    );
}

#[test]
fn compiled_patterns_stay_within_the_cache_budget() {
    let names: Vec<String> = (0..4_000).map(|n| format!("p{n}")).collect();
    let properties: serde_json::Map<_, _> = names
        .iter()
        .map(|name| (name.clone(), json!({"type": "string", "pattern": format!("^{name}-[a-z]+$")})))
        .collect();
    let schema = from_openapi(&json!({"type": "object", "properties": properties}));
    let object: serde_json::Map<_, _> =
        names.iter().map(|name| (name.clone(), format!("{name}-x").into())).collect();
    let object = Value::Object(object);
    assert_eq!(validate(&object, &schema), []);
    assert!(orlop_regex::cached_bytes() <= orlop_regex::CACHE_BYTES_MAX);
    // Evicted patterns are compiled again.
    assert_eq!(validate(&object, &schema), []);
}
