//! Nothing a client can send panics, hangs or grows without bound.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

use orlop_api::apply::{FieldManager, SingleVersion, TypeRef};
use orlop_api::field_error::FieldPath;
use orlop_api::group_version::GroupVersionKind;
use orlop_api::managed_fields::{Filter, ManagedFields};
use orlop_api::patch::{JsonPatch, merge_patch, strategic_merge_patch};
use orlop_api::schema::{self, Malformed, Root, builtin, from_openapi, structural};
use orlop_api::time::Time;
use orlop_api::{continue_token, decode, object_meta};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Any JSON, of keys that mean something somewhere.
fn json_values() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        proptest::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "managedFields",
            "ownerReferences",
            "finalizers",
            "containers",
            "env",
            "ports",
            "volumes",
            "template",
            "replicas",
            "strategy",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "type",
            "properties",
            "items",
            "additionalProperties",
            "enum",
            "pattern",
            "default",
            "anyOf",
            "allOf",
            "not",
            "required",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-validations",
            "rule",
            "fieldsV1",
            "operation",
            "f:spec",
            "k:{\"name\":\"a\"}",
            "v:1",
            ".",
            "format",
            "minimum",
        ])
        .prop_map(str::to_owned),
        "[a-c]".prop_map(|text| text)
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        proptest::sample::select(vec![
            "", "a", "object", "array", "string", "map", "set", "merge", "delete", "replace", "FieldsV1",
            "Apply", "v1", "(", "é"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn decoding_bytes_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::json(&body);
        let _ = decode::yaml(&body);
        let _ = decode::yaml_or_json(&body);
        let _ = JsonPatch::decode(&body);
    }

    #[test]
    fn decoding_yaml_never_panics(body in "[-a-c: \n\\[\\]{}&*!|>'\"0-9#]{0,80}") {
        let _ = decode::yaml(body.as_bytes());
        let _ = continue_token::ContinueToken::decode(&body);
    }

    #[test]
    fn schema_functions_never_panic(source in json_values(), value in json_values(), old in json_values()) {
        let path = FieldPath::root("schema");
        let _ = structural::validate_root(&source, &path, true);
        let _ = structural::validate_structural_schema(&source, &path, &mut structural::ValidationBudget::default());
        let _ = structural::validate_defaults(&source, &path, true, &mut |_| Vec::new());
        let _ = structural::validate_keywords(&source, &path, structural::ValidationOptions::default());
        let _ = structural::conversion_error(&source);
        let _ = structural::format_schema(&source);
        let schema = from_openapi(&source);
        let _ = schema::validate(&value, &schema);
        let _ = schema::validate_update(&value, &old, &schema);
        let _ = schema::validate_list_types(&value, &schema, &FieldPath::nil());
        let _ = schema::validate_embedded_resources(&value, &schema);
        let _ = schema::coerce_metadata(&mut value.clone(), &schema, Malformed::Refuse);
        let mut pruned = value.clone();
        let _ = schema::coerce_metadata(&mut pruned, &schema, Malformed::Drop);
        let gone = schema::prune(&mut pruned, &schema, Root::Resource);
        prop_assert!(schema::unknown_fields(&pruned, &schema, Root::Resource).is_empty(), "{gone:?}");
        schema::canonicalize(&mut pruned, &schema);
        schema::apply_defaults(&mut pruned, &schema);
    }

    #[test]
    fn patch_and_apply_never_panic(live in json_values(), new in json_values(), patch in json_values(), source in json_values()) {
        let pod = builtin::type_of("", "v1", "Pod").unwrap().schema();
        let custom = from_openapi(&source);
        let _ = strategic_merge_patch(&live, &patch, pod);
        let _ = merge_patch(&live, &patch);
        let _ = schema::check_types(&new, pod);
        let _ = ManagedFields::of(&new);
        let _ = object_meta::validate(object_meta::of(&new), object_meta::MetaRules { namespaced: true, name: Default::default() }, &FieldPath::root("metadata"));
        let _ = object_meta::validate_update(object_meta::of(&new), object_meta::of(&live), &FieldPath::root("metadata"));
        let kind = GroupVersionKind::new("", "v1", "Pod");
        let reset: BTreeMap<String, Filter> = BTreeMap::new();
        for of in [TypeRef::resource(pod), TypeRef::resource(&custom), TypeRef::Deduced] {
            let versions = SingleVersion { api_version: "v1", of };
            let fields = FieldManager { kind: &kind, versions: &versions, subresource: "", owned_fields: &reset };
            let tracked = fields.update(&live, new.clone(), "m", Time::from_unix(1));
            let _ = fields.update(&tracked, live.clone(), "n", Time::from_unix(2));
            let mut config = patch.clone();
            if let Some(map) = config.as_object_mut() {
                map.insert("apiVersion".to_owned(), "v1".into());
                map.insert("kind".to_owned(), "Pod".into());
            }
            for force in [false, true] {
                if let Ok(applied) = fields.apply(Some(&tracked), &config, "kubectl", force, Time::from_unix(3)) {
                    let again = fields.apply(Some(&applied.object), &config, "kubectl", force, Time::from_unix(4)).unwrap();
                    prop_assert_eq!(&again.object, &applied.object);
                }
            }
        }
    }
}

#[test]
fn yaml_alias_bomb_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let previous = level - 1;
        let aliases = format!("*a{previous}, ").repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", aliases.trim_end_matches(", ")));
    }
    assert!(decode::yaml(bomb.as_bytes()).is_err());
}

#[test]
fn oversized_patterns_are_refused() {
    let schema = from_openapi(&json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}));
    let errors = schema::validate(&json!("b"), &schema);
    assert!(errors[0].detail.contains("but pattern is invalid"), "{errors:?}");
}
