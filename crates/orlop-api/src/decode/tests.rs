use super::*;
use serde_json::json;

#[test]
fn whole_floats_decode_as_integers() {
    let decoded =
        super::json(br#"[1, 1.0, 1e3, 1.5, 9223372036854775807, 9223372036854775808, -1]"#).unwrap();
    assert_eq!(
        decoded.value,
        json!([1, 1, 1000, 1.5, 9_223_372_036_854_775_807_i64, 9_223_372_036_854_775_808_f64, -1])
    );
}

#[test]
fn duplicate_and_unknown_fields_are_reported_in_document_order() {
    let body = br#"{"spec": {"z": 1, "paused": true, "paused": false, "c": [{"n": 1, "n": 2, "u": 3}]}}"#;
    let decoded = super::json(body).unwrap();
    assert_eq!(decoded.value["spec"]["paused"], false);
    let unknown = vec!["spec.c[0].u".to_owned(), "spec.z".to_owned()];
    let errors = decoded.strict_errors(body, unknown.clone(), StrictOrder::Document);
    assert_eq!(
        strict_error(&errors),
        r#"strict decoding error: unknown field "spec.z", duplicate field "spec.paused", duplicate field "spec.c[0].n", unknown field "spec.c[0].u""#
    );
    let errors = decoded.strict_errors(body, unknown, StrictOrder::DuplicatesFirst);
    assert_eq!(errors[0], r#"duplicate field "spec.paused""#);
    assert_eq!(errors[2], r#"unknown field "spec.c[0].u""#);
}

#[test]
fn duplicated_unknown_field_is_reported_once_as_unknown() {
    let body = br#"{"spec": {"x": {"y": 1, "y": 2}, "x": 2, "xs": 1, "xs": 2}}"#;
    let decoded = super::json(body).unwrap();
    let unknown = vec!["spec.x".to_owned()];
    let errors = decoded.strict_errors(body, unknown.clone(), StrictOrder::Document);
    assert_eq!(errors, [r#"unknown field "spec.x""#, r#"duplicate field "spec.xs""#]);
    // Custom resources are decoded without a type, which sees every duplicate.
    let errors = decoded.strict_errors(body, unknown, StrictOrder::DuplicatesFirst);
    assert_eq!(errors.len(), 4, "{errors:?}");
}

#[test]
fn yaml_duplicates_are_reported_by_line() {
    let body = b"a: 1\nb:\n  c: x\n  c: z\n";
    let decoded = yaml(body).unwrap();
    assert_eq!(decoded.value, json!({"a": 1, "b": {"c": "z"}}));
    let errors = decoded.strict_errors(body, vec!["b.d".into()], StrictOrder::Document);
    assert_eq!(
        strict_error(&errors),
        "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"c\" already set in map, unknown field \"b.d\""
    );
    let warnings: Vec<&str> = strict_warnings(&errors).collect();
    assert_eq!(warnings, ["line 4: key \"c\" already set in map", "unknown field \"b.d\""]);
}

#[test]
fn yaml_scalars_become_json() {
    let decoded =
        yaml_or_json(b"a: 1\nb: \"1\"\nc: true\nd: null\ne: 1.5\nf: [x, {y: z}]\n1: int key\n").unwrap();
    assert_eq!(
        decoded.value,
        json!({"a": 1, "b": "1", "c": true, "d": null, "e": 1.5, "f": ["x", {"y": "z"}], "1": "int key"})
    );
    assert_eq!(yaml(b"mode: 0644\non: yes").unwrap().value, json!({"mode": 420, "on": true}));
    assert!(yaml(b"a: [").is_err());
    assert_eq!(yaml(b"a: 1\n---\nb: [").unwrap().value, json!({"a": 1}), "only the first document counts");
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let deep = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert!(super::json(&deep(DEPTH_MAX)).is_ok());
    assert_eq!(super::json(&deep(DEPTH_MAX + 1)).unwrap_err(), DecodeError::TooDeep);
    assert!(super::json(&deep(100_000)).is_err());
    assert!(yaml(&deep(100_000)).is_err());
    assert!(yaml(&deep(DEPTH_MAX + 2)).is_err());
    assert!(check_depth(&super::json(&deep(DEPTH_MAX)).unwrap().value).is_ok());
    assert!(check_depth(&json!([super::json(&deep(DEPTH_MAX)).unwrap().value])).is_err());
}

#[test]
fn syntax_errors_match_go() {
    for (body, expected) in [
        ("{", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{x}", "invalid character 'x' looking for beginning of object key string"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a": 1 "b": 2}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("nope", "invalid character 'o' in literal null (expecting 'u')"),
        ("[tru}", "invalid character '}' in literal true (expecting 'e')"),
    ] {
        assert_eq!(super::json(body.as_bytes()).unwrap_err().to_string(), expected, "{body}");
    }
}
