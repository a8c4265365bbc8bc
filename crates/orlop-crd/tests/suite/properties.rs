//! Properties: no input panics, and accepted definitions can be served.

use crate::widgets::{widgets, with_schema};
use orlop_api::time::Time;
use orlop_crd::{
    Definition, accept_names, apply_defaults, approval_condition, conversion, structural_condition,
    validate_create, validate_status_update, validate_update, warnings,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Arbitrary JSON with keywords of definitions among its strings.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("object"),
        Just("array"),
        Just("string"),
        Just("integer"),
        Just(""),
        Just("v1"),
        Just("None"),
        Just("Webhook"),
        Just(".spec.a"),
        Just("map"),
        Just("set"),
        Just("self.a == oldSelf.a"),
        Just("true"),
        Just("date-time"),
        Just("x-kubernetes-validations"),
        Just("é\n"),
        Just("k8s.io"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("properties"),
        Just("items"),
        Just("name"),
        Just("default"),
        Just("a"),
        Just("additionalProperties"),
        Just("x-kubernetes-list-type"),
        Just("x-kubernetes-list-map-keys"),
        Just("x-kubernetes-validations"),
        Just("rule"),
        Just("allOf"),
        Just("required"),
        Just("jsonPath"),
        Just("metadata"),
        Just("storage"),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A schema that is often structural.
fn schema() -> impl Strategy<Value = Value> {
    let rule = prop_oneof![
        Just("self == oldSelf"),
        Just("true"),
        Just("has(self.a)"),
        Just("self.a > 0"),
        Just("self.all(x, x == x)"),
        Just("size(self) < 5"),
        Just("self.a =="),
        Just("1 / 0 == 0"),
    ];
    let rules =
        prop::option::of(rule.prop_map(|rule| json!([{"rule": rule, "messageExpression": "string(1 / 0)"}])));
    let scalar = prop_oneof![
        Just(json!({"type": "string", "maxLength": 5})),
        Just(json!({"type": "integer", "minimum": 0, "default": 1})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "number", "nullable": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "string", "format": "date-time", "enum": ["x"]})),
    ];
    scalar.prop_recursive(3, 16, 3, move |inner| {
        let properties = prop::collection::btree_map("[abc]|x-y|metadata", inner.clone(), 0..4);
        let object = (properties, rules.clone()).prop_map(|(properties, rules)| with_rules(json!({"type": "object", "properties": properties}), rules));
        let map = (inner.clone(), rules.clone()).prop_map(|(values, rules)| with_rules(json!({"type": "object", "maxProperties": 3, "additionalProperties": values}), rules));
        let list = (inner, rules.clone(), prop_oneof![Just("atomic"), Just("set"), Just("map")]).prop_map(|(items, rules, kind)| {
            let list = json!({"type": "array", "maxItems": 3, "items": items, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": if kind == "map" { json!(["a"]) } else { json!([]) }});
            with_rules(list, rules)
        });
        prop_oneof![object, map, list]
    })
}

fn with_rules(mut schema: Value, rules: Option<Value>) -> Value {
    if let Some(rules) = rules {
        schema["x-kubernetes-validations"] = rules;
    }
    schema
}

/// Calls every public function on a definition and an object.
fn ask_everything(source: &Value, old: &Value, object: &Value) {
    let _ = (
        validate_create(source),
        validate_update(source, old),
        validate_status_update(source, old),
        warnings(source, Some(old)),
    );
    let _ = (approval_condition(source), structural_condition(source));
    let Ok(definition) = Definition::of(source) else { return };
    let mut written = source.clone();
    accept_names(&definition, [&definition.names]).write(&mut written, Time::from_unix(0));
    for version in &definition.versions {
        let _ = (
            version.validate_create(object),
            version.validate_update(object, old),
            version.validate_status_update(object, source),
        );
        let _ = (
            version.columns().cells(object, Time::from_unix(0)),
            version.warning(),
            version.open_api_schema(),
        );
        assert_eq!(version.selectable().values(object).count(), version.selectable().names().count());
        if let Some(scale) = version.scale() {
            let _ = (scale.read(object), scale.write(&mut object.clone(), 1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn odd_definitions_do_not_panic(part in 0_usize..24, value in anything(), object in anything()) {
        let pointers = [
            "/spec", "/metadata", "/status", "/spec/names", "/spec/group", "/spec/scope", "/spec/conversion", "/spec/versions", "/spec/versions/0", "/metadata/name",
            "/spec/versions/0/schema", "/spec/versions/0/schema/openAPIV3Schema", "/spec/versions/0/schema/openAPIV3Schema/properties", "/spec/versions/0/name",
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "/spec/versions/0/schema/openAPIV3Schema/type", "/status/storedVersions", "/spec/names/kind",
        ];
        let mut source = widgets();
        for (key, added) in [("subresources", json!({"scale": value})), ("selectableFields", json!([value])), ("additionalPrinterColumns", json!([value]))] {
            source["spec"]["versions"][0][key] = if part % 2 == 0 { value.clone() } else { added };
        }
        match pointers.get(part).and_then(|pointer| source.pointer_mut(pointer)) {
            Some(place) => *place = value.clone(),
            None => source = value.clone(),
        }
        let mut defaulted = source.clone();
        apply_defaults(&mut defaulted);
        ask_everything(&source, &widgets(), &object);
        ask_everything(&defaulted, &source, &object);
    }

    #[test]
    fn what_is_accepted_can_be_served(inner in schema(), spec in anything(), old in anything()) {
        let source = with_schema(json!({"type": "object", "properties": {"spec": inner}}));
        let errors = validate_create(&source);
        let object = |spec: &Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"}, "spec": spec});
        let definition = Definition::of(&source).unwrap();
        let version = definition.version("v1").unwrap();
        let (object, old) = (object(&spec), object(&old));
        let found = [version.validate_create(&object), version.validate_update(&object, &old), version.rules().validate(version.schema(), &object, Some(&old))];
        if errors.is_empty() {
            for error in found.iter().flat_map(|found| &found.errors) {
                prop_assert!(!error.detail.contains("compile"), "{source}\n{error}");
            }
        }
        ask_everything(&source, &source, &object);
    }

    #[test]
    fn odd_reviews_do_not_panic(request in anything(), response in anything(), object in anything()) {
        let kind = orlop_api::group_version::GroupVersionKind::new("g", "v", "K");
        let _ = conversion::objects_of_response(&request, &kind, response.clone());
        let asked = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "request": {"objects": [object]}});
        let answer = json!({"response": {"result": {"status": "Success"}, "convertedObjects": [response]}});
        let _ = conversion::objects_of_response(&asked, &kind, answer);
    }
}
