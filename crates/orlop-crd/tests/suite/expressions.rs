//! Validation of rules when a definition is written.

use crate::widgets::{changed, with_schema};
use orlop_crd::{validate_create, validate_update};
use serde_json::{Value, json};

const ROOT: &str = "spec.validation.openAPIV3Schema";

fn errors(schema: Value) -> Vec<String> {
    validate_create(&with_schema(schema)).iter().map(ToString::to_string).collect()
}

/// The errors of a node `a` with rules, without the path to it.
fn node_errors(node: Value) -> Vec<String> {
    let prefix = format!("{ROOT}.properties[a]");
    let strip = |error: String| error.strip_prefix(&prefix).map(str::to_owned).unwrap_or(error);
    errors(json!({"type": "object", "properties": {"a": node}})).into_iter().map(strip).collect()
}

fn with_rule(rule: Value) -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "x-kubernetes-validations": [rule]})
}

fn form(rule: &str, message_expression: &str) -> String {
    format!(
        r#"{{"Rule":{},"Message":"","MessageExpression":{},"Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#,
        json!(rule),
        json!(message_expression)
    )
}

#[test]
fn compile_errors_have_positions() {
    let compile = |rule: &str| node_errors(with_rule(json!({"rule": rule})));
    let expected = |rule: &str, detail: &str| {
        [format!(".x-kubernetes-validations[0].rule: Invalid value: {}: {detail}", form(rule, ""))]
    };
    for (rule, detail) in [
        (
            "self.x == 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x == 1\n | ....^",
        ),
        (
            "self.n == ",
            "compilation failed: ERROR: <input>:1:11: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.n == \n | ..........^",
        ),
        (
            "self.n + 'a' == 1",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n | self.n + 'a' == 1\n | .......^",
        ),
        ("self.n", "cel expression must evaluate to a bool"),
        (
            "nothing",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing\n | ^",
        ),
    ] {
        assert_eq!(compile(rule), expected(rule, detail), "{rule}");
    }
    assert_eq!(
        node_errors(with_rule(json!({"rule": "true", "messageExpression": "self.n"}))),
        [format!(
            ".x-kubernetes-validations[0].messageExpression: Invalid value: {}: messageExpression must evaluate to a string",
            form("true", "self.n")
        )]
    );
    let found = node_errors(with_rule(json!({"rule": "true", "messageExpression": "self.x"})));
    assert!(
        found[0].contains("messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'x'"),
        "{found:?}"
    );
}

#[test]
fn fields_of_rules_are_validated() {
    for (rule, expected) in [
        (json!({"rule": " "}), ".rule: Required value: rule is not specified"),
        (
            json!({"rule": "true", "message": " "}),
            r#".message: Invalid value: " ": must be non-empty if specified"#,
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            r#".message: Invalid value: "a\nb": must not contain line breaks"#,
        ),
        (
            json!({"rule": "true\n&& true"}),
            ".message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "messageExpression": "  "}),
            ".messageExpression: Required value: messageExpression must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "reason": "Because"}),
            r#".reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
        ),
        (
            json!({"rule": "true", "fieldPath": " "}),
            r#".fieldPath: Invalid value: " ": must be non-empty if specified"#,
        ),
        (
            json!({"rule": "true", "fieldPath": ".nope"}),
            r#".fieldPath: Invalid value: ".nope": must be a valid path"#,
        ),
        (
            json!({"rule": "true", "fieldPath": "n"}),
            r#".fieldPath: Invalid value: "n": must be a valid path"#,
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            ".optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": false}),
            ".optionalOldSelf: Invalid value: false: may not be set if oldSelf is not used in rule",
        ),
    ] {
        let found = node_errors(with_rule(rule.clone()));
        assert_eq!(
            found.first().map(String::as_str),
            Some(&*format!(".x-kubernetes-validations[0]{expected}")),
            "{rule}"
        );
    }
    for good in [
        json!({"rule": "self.n > 0", "message": "m", "reason": "FieldValueForbidden", "fieldPath": ".n"}),
        json!({"rule": "self.n >= oldSelf.n"}),
        json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true}),
        json!({"rule": "oldSelf.orValue(self).n == self.n", "optionalOldSelf": true, "messageExpression": "'was %d'.format([oldSelf.value().n])"}),
    ] {
        assert_eq!(node_errors(with_rule(good.clone())), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn transition_rules_require_correlatable_nodes() {
    let rules = json!([{"rule": "self == oldSelf"}]);
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 5}}, "x-kubernetes-validations": rules});
    let list = |kind: &str| json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": kind, "items": changed(item.clone(), &[("/x-kubernetes-map-type", json!("atomic"))])});
    let refused = |path: &str, within: &str| {
        vec![format!(
            r#"{path}.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {ROOT}.properties[a]{within}"#
        )]
    };
    assert_eq!(node_errors(list("atomic")), refused(".items", ""));
    assert_eq!(node_errors(list("set")), refused(".items", ""));
    let keyed = json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    assert_eq!(node_errors(keyed), Vec::<String>::new());
    let map = json!({"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 5, "x-kubernetes-validations": rules}});
    assert_eq!(node_errors(map.clone()), Vec::<String>::new());
    let nested = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"m": map}}}}});
    assert_eq!(
        node_errors(nested),
        refused(".properties[l].items.properties[m].additionalProperties", ".properties[l]")
    );
    let atomic = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"s": {"type": "string", "maxLength": 5, "x-kubernetes-validations": rules}}});
    assert_eq!(node_errors(atomic), Vec::<String>::new());
}

#[test]
fn estimated_cost_of_a_rule_is_limited() {
    let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let list = |most: Option<u64>, rule: &str| {
        let mut list = json!({"type": "array", "items": {"type": "string", "maxLength": 10}, "x-kubernetes-validations": [{"rule": rule}]});
        if let Some(most) = most {
            list["maxItems"] = json!(most);
        }
        node_errors(list)
    };
    let quadratic = "self.all(x, self.exists(y, x == y))";
    assert_eq!(list(Some(100), quadratic), Vec::<String>::new());
    let found = list(None, quadratic);
    assert_eq!(
        found[0],
        format!(
            ".x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {advice}"
        )
    );
    assert_eq!(found[1], format!("{ROOT}.properties[a].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema").strip_prefix(&format!("{ROOT}.properties[a]")).unwrap());
    assert_eq!(
        found[2],
        format!(
            "{ROOT}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {advice}"
        )
    );
    assert_eq!(found.len(), 3);
    // A factor between one and a half and a hundred has one digit, a smaller one six.
    let factors: Vec<String> = (900..1500)
        .step_by(20)
        .flat_map(|most| list(Some(most), quadratic))
        .filter_map(|error| {
            Some(
                error
                    .split_once("estimated rule cost exceeds budget by factor of ")?
                    .1
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    assert!(factors.iter().any(|factor| factor.starts_with("1.") && factor.len() == 9), "{factors:?}");
    assert!(factors.iter().any(|factor| factor.len() == 4 && factor.ends_with('x')), "{factors:?}");
    // How often a rule may run counts.
    let below = |most: Option<u64>| {
        let mut list = json!({"type": "array", "items": {"type": "object", "properties": {"s": {"type": "string", "x-kubernetes-validations": [{"rule": "self.contains('x')"}]}}}});
        if let Some(most) = most {
            list["maxItems"] = json!(most);
        }
        node_errors(list)
    };
    assert_eq!(below(Some(2)), Vec::<String>::new());
    assert!(!below(None).is_empty());
    let message =
        with_rule(json!({"rule": "true", "messageExpression": "self.s.replace('a', self.s) + self.s"}));
    let found = node_errors(message);
    assert!(found.iter().any(|error| error.starts_with(".x-kubernetes-validations[0].messageExpression: Forbidden: estimated messageExpression cost exceeds budget by factor of")), "{found:?}");
}

#[test]
fn estimated_cost_of_a_schema_is_limited() {
    // Each costs less than a tenth of what all may cost; eleven cost more.
    let dear = json!({"type": "array", "maxItems": 900, "items": {"type": "string", "maxLength": 10}, "x-kubernetes-validations": [{"rule": "self.all(x, self.exists(y, x == y))"}]});
    let properties = |count: usize| -> Value {
        let properties: serde_json::Map<_, _> =
            (0..count).map(|index| (format!("p{index:02}"), dear.clone())).collect();
        json!({"type": "object", "properties": properties})
    };
    assert_eq!(errors(properties(1)), Vec::<String>::new());
    let found = errors(properties(20));
    let contributed = |index: usize| {
        format!(
            "{ROOT}.properties[p{index:02}].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        )
    };
    assert_eq!(found[..4], [contributed(0), contributed(1), contributed(2), contributed(3)]);
    assert!(found[4].starts_with(&format!("{ROOT}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of ")), "{}", found[4]);
    assert_eq!(found.len(), 5);
}

#[test]
fn unchanged_schema_skips_cost_check() {
    let dear = with_schema(
        json!({"type": "object", "properties": {"a": {"type": "array", "maxItems": 2500, "items": {"type": "string", "maxLength": 10}, "x-kubernetes-validations": [{"rule": "self.all(x, self.exists(y, x == y))"}]}}}),
    );
    let dear = changed(dear, &[("/metadata/resourceVersion", json!("1"))]);
    assert_eq!(validate_create(&dear).len(), 1);
    assert_eq!(validate_update(&dear, &dear), []);
    let other =
        changed(dear.clone(), &[("/spec/versions/0/schema/openAPIV3Schema/description", json!("changed"))]);
    assert_eq!(validate_update(&other, &dear).len(), 1);
}

#[test]
fn map_of_unknown_type_is_uncorrelatable() {
    let odd = json!({"type": "object", "x-kubernetes-map-type": "odd", "properties": {"s": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}});
    assert_eq!(
        node_errors(odd),
        [
            r#".x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular""#
                .to_owned(),
            format!(
                r#".properties[s].x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {ROOT}.properties[a]"#
            ),
        ]
    );
}

#[test]
fn defaults_of_embedded_resources_need_valid_metadata() {
    let embedded = |properties: Value, default: Value| {
        let mut node =
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": properties});
        if !default.is_null() {
            node["default"] = default;
        }
        node_errors(node)
    };
    let something = json!({"something": {"type": "string"}});
    let pod = |extra: &str| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foo", "unknown": 42}});
        if !extra.is_empty() {
            pod[extra] = json!(42);
        }
        pod
    };
    // Metadata may have fields that nobody knows; the object may not.
    assert_eq!(embedded(something.clone(), pod("")), Vec::<String>::new());
    assert_eq!(
        embedded(something.clone(), pod("other")),
        [format!(".default: Invalid value: {}: must not have unknown fields", pod("other"))]
    );
    assert_eq!(
        embedded(something.clone(), json!({"apiVersion": 42, "kind": "Pod"})),
        [".default.apiVersion: Invalid value: 42: must be a string"]
    );
    assert_eq!(embedded(something.clone(), json!({"kind": "Pod"})), [".default.apiVersion: Required value"]);
    assert!(
        embedded(something, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "x y"}}}))
            [0]
        .starts_with(".default.metadata.labels: Invalid value: \"x y\":")
    );
    // Inside, a default is tried in an object that has nothing else.
    let inside = |name: &str, schema: Value| embedded(json!({name: schema}), Value::Null);
    assert_eq!(
        inside("metadata", json!({"type": "object", "default": {"name": "foo", "unknown": 42}})),
        Vec::<String>::new()
    );
    assert_eq!(inside("kind", json!({"type": "string", "default": "Pod"})), Vec::<String>::new());
    assert!(inside("kind", json!({"type": "string", "default": "%"}))[0].starts_with(".properties[kind].default: Invalid value: \"%\": must result in valid metadata: kind: Invalid value: \"%\": may have mixed case"));
    assert!(inside("metadata", json!({"type": "object", "default": {"labels": {"bar": "x y"}}}))[0].starts_with(".properties[metadata].default: Invalid value: {\"labels\":{\"bar\":\"x y\"}}: must result in valid metadata: metadata.labels: Invalid value: \"x y\":"));
    let name = inside(
        "metadata",
        json!({"type": "object", "properties": {"name": {"type": "string", "default": 42}}}),
    );
    assert!(name[0].starts_with(".properties[metadata].properties[name].default: Invalid value: 42: must result in valid metadata: metadata: Invalid value:"), "{name:?}");
}

#[test]
fn schema_errors_skip_rule_compilation() {
    let broken = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nope"}], "properties": {
        "a": {"type": "array", "x-kubernetes-list-type": "odd", "items": {"type": "string"}},
        "b": {"type": "string", "x-kubernetes-validations": [{"rule": "self + 1"}]}}});
    let found = errors(broken);
    assert_eq!(
        found[0],
        format!(
            r#"{ROOT}.properties[a].x-kubernetes-list-type: Unsupported value: "odd": supported values: "atomic", "set", "map""#
        )
    );
    assert!(
        found[1]
            .starts_with(&format!("{ROOT}.properties[b].x-kubernetes-validations[0].rule: Invalid value:")),
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
    let unstructured = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nope"}], "properties": {"a": {}}});
    assert_eq!(
        errors(unstructured),
        [format!("{ROOT}.properties[a].type: Required value: must not be empty for specified object fields")]
    );
    let invisible = json!({"type": "object", "properties": {"a": {"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": [{"rule": "true"}]}}});
    assert_eq!(
        errors(invisible),
        [format!(
            "{ROOT}.properties[a].x-kubernetes-validations: Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
        )]
    );
}

#[test]
fn rules_are_forbidden_in_value_validation() {
    for key in ["allOf", "anyOf", "oneOf"] {
        let node = json!({"type": "string", key: [{"x-kubernetes-validations": [{"rule": "true"}]}]});
        assert_eq!(
            node_errors(node),
            [format!(".{key}[0].x-kubernetes-validations: Forbidden: must be empty to be structural")]
        );
    }
}

#[test]
fn defaults_must_pass_rules() {
    let node = |default: Value, rule: Value| json!({"type": "object", "default": default, "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
    assert_eq!(node_errors(node(json!({"n": 5}), json!({"rule": "self.n > 3"}))), Vec::<String>::new());
    assert_eq!(
        node_errors(node(json!({"n": 2}), json!({"rule": "self.n > 3"}))),
        [".default: Invalid value: failed rule: self.n > 3"]
    );
    let new_only = json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true});
    assert_eq!(
        node_errors(node(json!({"n": 2}), new_only)),
        [".default: Invalid value: failed rule: oldSelf.hasValue()"]
    );
    let inner = json!({"type": "object", "default": {"n": 1}, "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]}}});
    assert_eq!(node_errors(inner), [".default.n: Invalid value: 1: failed rule: self > 3"]);
    assert_eq!(
        node_errors(json!({"type": "integer", "default": "x"})),
        [r#".default: Invalid value: "string":  in body must be of type integer: "string""#]
    );
}
