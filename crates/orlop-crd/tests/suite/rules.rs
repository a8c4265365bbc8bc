//! Evaluation of rules on objects.

use crate::widgets::version;
use orlop_crd::Version;
use serde_json::{Value, json};

fn run(version: &Version, object: &Value, old: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let found = version.rules().validate(version.schema(), object, old);
    (found.errors.iter().map(ToString::to_string).collect(), found.warnings)
}

/// The errors of an object whose `spec` has this schema and value.
#[track_caller]
fn spec_errors(schema: &Value, spec: &Value, old: Option<&Value>) -> Vec<String> {
    let version = version(json!({"type": "object", "properties": {"spec": schema}}));
    let object = |spec: &Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    run(&version, &object(spec), old.map(object).as_ref()).0
}

fn rule(text: &str) -> Value {
    json!([{"rule": text}])
}

#[test]
fn failures_have_message_and_path() {
    let schema = |kind: &str, rule: Value| json!({"type": kind, "properties": {"a": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "string"}}}, "items": {"type": "integer"}, "x-kubernetes-validations": [rule]});
    for (kind, value, written, expected) in [
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "self.a == 'y'"}),
            "spec: Invalid value: failed rule: self.a == 'y'",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": " self.a == 'y'\n", "message": " must be y "}),
            "spec: Invalid value: must be y",
        ),
        (
            "string",
            json!("x"),
            json!({"rule": "self == 'y'"}),
            "spec: Invalid value: \"x\": failed rule: self == 'y'",
        ),
        (
            "integer",
            json!(5),
            json!({"rule": "self < 5", "message": "small"}),
            "spec: Invalid value: 5: small",
        ),
        ("boolean", json!(false), json!({"rule": "self"}), "spec: Invalid value: false: failed rule: self"),
        (
            "array",
            json!([1, 2]),
            json!({"rule": "self.size() < 2"}),
            "spec: Invalid value: failed rule: self.size() < 2",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "false", "reason": "FieldValueForbidden"}),
            "spec: Forbidden: failed rule: false",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "false", "reason": "FieldValueRequired", "message": "m"}),
            "spec: Required value: m",
        ),
        (
            "string",
            json!("x"),
            json!({"rule": "false", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value: \"x\"",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "false", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value",
        ),
        (
            "string",
            json!("x"),
            json!({"rule": "false", "reason": "FieldValueInvalid"}),
            "spec: Invalid value: \"x\": failed rule: false",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "false", "fieldPath": ".a"}),
            "spec.a: Invalid value: failed rule: false",
        ),
        (
            "object",
            json!({"a": "x"}),
            json!({"rule": "false", "fieldPath": ".m['some.key']"}),
            "spec.m[some.key]: Invalid value: failed rule: false",
        ),
    ] {
        assert_eq!(spec_errors(&schema(kind, written.clone()), &value, None), [expected], "{written}");
    }
    assert!(
        spec_errors(&schema("object", json!({"rule": "self.a == 'x'"})), &json!({"a": "x"}), None).is_empty()
    );
}

#[test]
fn rules_are_evaluated_on_non_null_nodes() {
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": rule("self > 0")}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule("self != ''")}},
        "null": {"type": "string", "nullable": true, "x-kubernetes-validations": rule("self == 'never'")},
        "absent": {"type": "string", "x-kubernetes-validations": rule("false")},
    }});
    let value = json!({"list": [{"n": 1}, {"n": 0}, {}], "map": {"a.b": "", "c": "d"}, "null": null});
    assert_eq!(
        spec_errors(&schema, &value, None),
        [
            "spec.list[1].n: Invalid value: 0: failed rule: self > 0",
            "spec.map[a.b]: Invalid value: \"\": failed rule: self != ''",
        ]
    );
}

#[test]
fn resources_expose_type_and_name_only() {
    let root = |text: &str| {
        version(json!({"type": "object", "x-kubernetes-validations": rule(text), "properties": {
            "spec": {"type": "object", "properties": {"embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}}))
    };
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {"a": "b"}},
        "spec": {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1}}}});
    for text in [
        "self.kind == 'Widget' && self.apiVersion == 'example.com/v1' && self.metadata.name == 'w'",
        "!has(self.metadata.generateName)",
        "self.spec.embedded.kind == 'Pod' && self.spec.embedded.metadata.name == 'p'",
    ] {
        assert_eq!(run(&root(text), &object, None).0, Vec::<String>::new(), "{text}");
    }
    for (text, field) in [
        ("has(self.metadata.labels)", "labels"),
        ("has(self.spec.embedded.spec)", "spec"),
        ("has(self.status)", "status"),
    ] {
        let found = run(&root(text), &object, None).0;
        assert_eq!(found.len(), 1, "{text}");
        assert!(
            found[0].starts_with(
                "<nil>: Invalid value: \"object\": rule compile error: compilation failed: ERROR: <input>:1:"
            ),
            "{}",
            found[0]
        );
        assert!(found[0].contains(&format!("undefined field '{field}'")), "{}", found[0]);
    }
}

#[test]
fn field_names_are_escaped() {
    let schema = |text: &str| {
        json!({"type": "object", "x-kubernetes-validations": rule(text), "properties": {
            "x-y": {"type": "integer"}, "a.b/c": {"type": "integer"}, "namespace": {"type": "integer"}, "_d__e": {"type": "integer"},
            "spaced name": {"type": "integer", "x-kubernetes-validations": rule("self > 1")}}})
    };
    let value = json!({"x-y": 1, "a.b/c": 2, "namespace": 3, "_d__e": 4, "spaced name": 1});
    let text = "self.x__dash__y == 1 && self.a__dot__b__slash__c == 2 && self.__namespace__ == 3 && self._d__underscores__e == 4";
    // What has no name in expressions still has rules of its own.
    assert_eq!(
        spec_errors(&schema(text), &value, None),
        ["spec.spaced name: Invalid value: 1: failed rule: self > 1"]
    );
}

#[test]
fn transition_rules_are_skipped_on_create() {
    let schema = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [rule]}}});
    let fixed = json!({"rule": "self == oldSelf", "message": "is immutable"});
    let (one, two, none) = (json!({"a": "1"}), json!({"a": "2"}), json!({}));
    assert!(spec_errors(&schema(fixed.clone()), &one, None).is_empty());
    assert!(spec_errors(&schema(fixed.clone()), &one, Some(&none)).is_empty());
    assert!(spec_errors(&schema(fixed.clone()), &one, Some(&json!({"a": null}))).is_empty());
    assert!(spec_errors(&schema(fixed.clone()), &one, Some(&one)).is_empty());
    assert_eq!(spec_errors(&schema(fixed), &two, Some(&one)), ["spec.a: Invalid value: \"2\": is immutable"]);

    let optional = json!({"rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true, "message": "is immutable"});
    assert!(spec_errors(&schema(optional.clone()), &one, None).is_empty());
    assert_eq!(
        spec_errors(&schema(optional), &two, Some(&one)),
        ["spec.a: Invalid value: \"2\": is immutable"]
    );
    let only_new = json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true});
    assert_eq!(
        spec_errors(&schema(only_new.clone()), &one, None),
        ["spec.a: Invalid value: \"1\": failed rule: oldSelf.hasValue()"]
    );
    assert!(spec_errors(&schema(only_new), &one, Some(&one)).is_empty());
}

#[test]
fn old_values_correlate_through_maps_and_list_maps() {
    let grows = json!([{"rule": "self >= oldSelf", "message": "must grow"}]);
    let schema = json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": grows}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"n": {"type": "integer", "x-kubernetes-validations": grows}}},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"], "items": {"type": "object", "required": ["k", "p"],
            "properties": {"k": {"type": "string"}, "p": {"type": "integer"}, "n": {"type": "integer", "x-kubernetes-validations": grows}}}},
    }});
    let old = json!({"map": {"a": 5}, "atomic": {"n": 5}, "list": [{"k": "x", "p": 1, "n": 5}, {"k": "y", "p": 1, "n": 5}, {"k": "x", "p": 2, "n": 5}]});
    let new = json!({"map": {"a": 4, "b": 0}, "atomic": {"n": 4}, "list": [{"k": "z", "p": 1, "n": 0}, {"k": "x", "p": 2, "n": 4}, {"k": "x", "p": 1, "n": 5}, {"k": "y", "p": 1, "n": 1}]});
    assert_eq!(
        spec_errors(&schema, &new, Some(&old)),
        [
            "spec.atomic.n: Invalid value: 4: must grow",
            "spec.list[1].n: Invalid value: 4: must grow",
            "spec.list[3].n: Invalid value: 1: must grow",
            "spec.map[a]: Invalid value: 4: must grow",
        ]
    );
}

#[test]
fn failures_of_unchanged_values_are_warnings() {
    let short = json!([{"rule": "size(self) < 3", "message": "too long"}]);
    let version = version(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": short},
        "b": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": short}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "x-kubernetes-validations": [{"rule": "self.all(x, size(x.v) < 3)", "message": "one too long"}],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "x-kubernetes-validations": short}}}},
        "moves": {"type": "string", "x-kubernetes-validations": [{"rule": "size(self) < 3 || self != oldSelf", "message": "must move"}]},
    }}}}));
    let check = |old: Value, new: Value| run(&version, &json!({"spec": new}), Some(&json!({"spec": old})));
    let none = Vec::<String>::new();
    assert_eq!(
        check(json!({"a": "long", "b": "1"}), json!({"a": "long", "b": "2"})),
        (none.clone(), vec!["spec.a: Invalid value: \"long\": too long".to_owned()])
    );
    assert_eq!(
        check(json!({"a": "long"}), json!({"a": "longer"})).0,
        ["spec.a: Invalid value: \"longer\": too long"]
    );
    // Items of a list without keys are what they were only if the whole list is.
    let (errors, warnings) = check(json!({"list": ["long"]}), json!({"list": ["long"]}));
    assert_eq!((errors, warnings.len()), (none.clone(), 1));
    assert_eq!(
        check(json!({"list": ["long"]}), json!({"list": ["long", "x"]})).0,
        ["spec.list[0]: Invalid value: \"long\": too long"]
    );
    // Those of a keyed list are told apart, in whatever order.
    let item = |key: &str, value: &str| json!({"k": key, "v": value});
    let (errors, warnings) = check(
        json!({"keyed": [item("a", "long"), item("b", "x")]}),
        json!({"keyed": [item("b", "y"), item("a", "long")]}),
    );
    assert_eq!(errors, ["spec.keyed: Invalid value: one too long"]);
    assert_eq!(warnings, ["spec.keyed[1].v: Invalid value: \"long\": too long"]);
    let (errors, warnings) = check(
        json!({"keyed": [item("a", "long"), item("b", "x")]}),
        json!({"keyed": [item("b", "x"), item("a", "long")]}),
    );
    assert_eq!((errors, warnings.len()), (none, 2));
    assert_eq!(
        check(json!({"moves": "long"}), json!({"moves": "long"})).0,
        ["spec.moves: Invalid value: \"long\": must move"]
    );
}

#[test]
fn message_expressions_fall_back_to_message() {
    let schema = |rule: Value| json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}});
    let value = json!({"n": 7, "s": "x".repeat(6000)});
    let message = |expression: &str| {
        let mut written =
            json!({"rule": "self.n < 5", "message": "fallback", "messageExpression": expression});
        let with = spec_errors(&schema(written.clone()), &value, None);
        written["message"] = json!("");
        (with, spec_errors(&schema(written), &value, None))
    };
    for (expression, expected) in [
        ("'n is ' + string(self.n)", "n is 7"),
        ("'  trimmed  '", "trimmed"),
        ("self.s.substring(0, 5120)", &*"x".repeat(5120)),
    ] {
        let expected = format!("spec: Invalid value: {expected}");
        assert_eq!(message(expression), (vec![expected.clone()], vec![expected]), "{expression}");
    }
    // Too long, blank, broken over lines, or not to be had.
    for expression in
        ["self.s.substring(0, 5121)", "''", "'  '", "'a\\nb'", "string(self.n / 0)", "[''][self.n]"]
    {
        let expected = ("spec: Invalid value: fallback", "spec: Invalid value: failed rule: self.n < 5");
        assert_eq!(
            message(expression),
            (vec![expected.0.to_owned()], vec![expected.1.to_owned()]),
            "{expression}"
        );
    }
}

#[test]
fn evaluation_errors_are_reported() {
    let schema = |text: &str| json!({"type": "object", "x-kubernetes-validations": rule(text), "properties": {"n": {"type": "integer"}, "m": {"type": "object", "additionalProperties": {"type": "string"}}, "x": {"x-kubernetes-int-or-string": true}}});
    let value = json!({"n": 0, "m": {}, "x": "s"});
    for (text, expected) in [
        ("1 / self.n == 1", "division by zero evaluating rule: 1 / self.n == 1"),
        ("self.m['a'] == ''", "no such key: a evaluating rule: self.m['a'] == ''"),
        (
            "self.x + 1 == 2",
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.x + 1 == 2",
        ),
    ] {
        assert_eq!(
            spec_errors(&schema(text), &value, None),
            [format!("spec: Invalid value: \"object\": {expected}")]
        );
    }
}

#[test]
fn exhausted_budget_stops_evaluation() {
    let list = |rules: Value| json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules}, "z": {"type": "integer", "x-kubernetes-validations": rule("false")}}});
    let value = json!({"l": (0..2000).collect::<Vec<_>>(), "z": 1});
    let square = "self.all(x, self.all(y, x + y >= 0))";
    assert_eq!(
        spec_errors(&list(rule(square)), &value, None),
        [format!(
            "spec.l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {square}"
        )]
    );
    // Each rule fits its own budget; all together do not fit the object's.
    let modest = "self.all(x, self.filter(y, y < 50).size() >= 0)";
    let some = json!({"l": (0..200).collect::<Vec<_>>(), "z": 1});
    let rules = |count: usize| json!((0..count).map(|_| json!({"rule": modest})).collect::<Vec<_>>());
    assert_eq!(spec_errors(&list(rules(1)), &some, None), ["spec.z: Invalid value: 1: failed rule: false"]);
    assert_eq!(
        spec_errors(&list(rules(200)), &some, None),
        [
            "spec.l: Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run"
        ]
    );
    let dear = json!([{"rule": "self.size() == 0", "messageExpression": "self.all(x, self.all(y, x + y >= 0)) ? 'a' : 'b'"}]);
    assert_eq!(
        spec_errors(&list(dear), &value, None),
        [
            "spec.l: Invalid value: \"array\": no further validation rules will be run due to call cost exceeds limit for messageExpression: \"self.all(x, self.all(y, x + y >= 0)) ? 'a' : 'b'\""
        ]
    );
}

#[test]
fn sets_and_list_maps_compare_without_order() {
    let schema = |text: &str| {
        json!({"type": "object", "x-kubernetes-validations": rule(text), "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "other": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "plain": {"type": "array", "items": {"type": "string"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            "date": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"}, "any": {"x-kubernetes-int-or-string": true},
            "hidden": {"x-kubernetes-preserve-unknown-fields": true},
        }})
    };
    let value = json!({"set": ["a", "b"], "other": ["b", "a"], "plain": ["a", "b"],
        "keyed": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "date": "2026-01-01T00:00:00Z", "span": "1h", "any": 5, "hidden": {"x": 1}});
    for text in [
        "self.set == self.other",
        "(self.set + self.other).size() == 2",
        "self.plain + self.plain == ['a', 'b', 'a', 'b']",
        "(self.keyed + oldSelf.keyed).size() == 3 && (self.keyed + oldSelf.keyed)[1].v == 3 && self.keyed != oldSelf.keyed",
        "self.date < timestamp('2027-01-01T00:00:00Z') && self.span == duration('60m')",
        "type(self.any) == int && self.any == 5",
    ] {
        let old = json!({"keyed": [{"k": "y", "v": 3}, {"k": "z", "v": 4}]});
        assert_eq!(spec_errors(&schema(text), &value, Some(&old)), Vec::<String>::new(), "{text}");
    }
    assert!(spec_errors(&schema("has(self.hidden)"), &value, None)[0].contains("undefined field 'hidden'"));
}
