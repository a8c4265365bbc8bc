//! MutatingAdmissionPolicy: apply configurations, JSON patches, reinvocation.

use orlop_server::chain::Chain;
use serde_json::{Value, json};

use super::{
    GROUP, MAPS, config_map, mutate, policy, server,
    support::{call, create},
    try_create,
};

fn apply_configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

async fn created(chain: &Chain, name: &str, data: Value) -> Value {
    let (code, object) = call(chain, "POST", MAPS, Some(&config_map(name, data))).await;
    assert_eq!(code, 201, "{object}");
    object
}

#[tokio::test]
async fn mutations_change_objects_in_order() {
    let rows = [
        (
            json!([apply_configuration("Object{data: {'b': object.data.a + '!'}}")]),
            json!({"a": "x", "b": "x!"}),
        ),
        (json!([apply_configuration("Object{?data: optional.none()}")]), json!({"a": "x"})),
        (
            json!([json_patch("[JSONPatch{op: 'add', path: '/data/b', value: 'y'}]")]),
            json!({"a": "x", "b": "y"}),
        ),
        (
            json!([json_patch(
                "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('k~x.y'), value: 'y'}]"
            )]),
            json!({"a": "x"}),
        ),
        (
            json!([json_patch(
                "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/b'}, JSONPatch{op: 'remove', path: '/data/a'}]"
            )]),
            json!({"b": "x"}),
        ),
        (
            json!([json_patch("[JSONPatch{op: 'replace', path: '/data', value: {'c': 'z'}}]")]),
            json!({"c": "z"}),
        ),
        (
            // A failed test leaves the object as it is.
            json!([json_patch(
                "[JSONPatch{op: 'test', path: '/data/a', value: 'no'}, JSONPatch{op: 'remove', path: '/data/a'}]"
            )]),
            json!({"a": "x"}),
        ),
        (
            json!([
                apply_configuration("Object{data: {'b': '1'}}"),
                json_patch(
                    "has(object.data.b) ? [JSONPatch{op: 'move', from: '/data/b', path: '/data/c'}] : []"
                )
            ]),
            json!({"a": "x", "c": "1"}),
        ),
    ];
    for (mutations, data) in rows {
        let chain = server().await;
        if mutations.to_string().contains("k~x.y") {
            // The change is validated like any other.
            mutate(&chain, "p", json!({"mutations": mutations}), json!({})).await;
            let (code, message) = try_create(&chain, "m", json!({"a": "x"})).await;
            assert_eq!(code, 422);
            assert!(message.contains("data[k~x.y]: Invalid value"), "{message}");
            continue;
        }
        mutate(&chain, "p", json!({"mutations": mutations}), json!({})).await;
        assert_eq!(created(&chain, "m", json!({"a": "x"})).await["data"], data, "{mutations}");
    }
}

#[tokio::test]
async fn configuration_is_merged_by_the_rules_of_apply() {
    let chain = server().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": super::rules(&["CREATE"], &["pods"])},
        "mutations": [apply_configuration(
            "Object{metadata: Object.metadata{labels: {'injected': 'yes'}}, spec: Object.spec{containers: [Object.spec.containers{name: 'sidecar', image: 'proxy'}, Object.spec.containers{name: 'c', env: [Object.spec.containers.env{name: 'A', value: 'B'}]}]}}",
        )],
    });
    mutate(&chain, "sidecar", spec, json!({})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"own": "yes"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "X", "value": "Y"}]}]}});
    let (code, pod) = call(&chain, "POST", "/api/v1/namespaces/default/pods", Some(&pod)).await;
    assert_eq!(code, 201, "{pod}");
    assert_eq!(pod["metadata"]["labels"], json!({"own": "yes", "injected": "yes"}));
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let by_name = |name: &str| containers.iter().find(|container| container["name"] == name).unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(by_name("c")["image"], "i");
    assert_eq!(by_name("c")["env"].as_array().unwrap().len(), 2);
    assert_eq!(by_name("sidecar")["imagePullPolicy"], "Always", "defaults are applied");
}

#[tokio::test]
async fn errors_deny_with_kubernetes_texts() {
    let rows = [
        (
            apply_configuration("Object{spec: Object.spec{x: 1}}"),
            "error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema",
        ),
        (
            apply_configuration("Object{metadata: Object.wrong{name: 'x'}}"),
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path from root Object type",
        ),
        (
            json_patch("[JSONPatch{op: 'remove', path: '/data/missing'}]"),
            "JSON Patch: Unable to remove nonexistent key: missing: missing value",
        ),
        (
            apply_configuration("Object{data: {'a': object.data.missing}}"),
            "expression 'Object{data: {'a': object.data.missing}}' resulted in error: no such key: missing",
        ),
    ];
    for (mutation, message) in rows {
        for failure_policy in ["Fail", "Ignore"] {
            let chain = server().await;
            let spec = json!({"mutations": [mutation], "failurePolicy": failure_policy});
            mutate(&chain, "p", spec, json!({})).await;
            let (code, status) = call(&chain, "POST", MAPS, Some(&config_map("m", json!({"a": "x"})))).await;
            if failure_policy == "Ignore" {
                assert_eq!((code, &status["data"]), (201, &json!({"a": "x"})), "{status}");
                continue;
            }
            let text = format!("policy 'p' with binding 'p' denied request: {message}");
            assert_eq!((code, &status["message"]), (403, &json!(text)));
            assert_eq!(status["reason"], "Invalid");
            assert_eq!(status["details"]["causes"], json!([{"message": text}]));
        }
    }
}

#[tokio::test]
async fn atomic_fields_are_not_mutated() {
    let chain = server().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": super::rules(&["CREATE"], &["pods"])},
        "mutations": [apply_configuration("Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}")],
    });
    mutate(&chain, "p", spec, json!({})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, status) = call(&chain, "POST", "/api/v1/namespaces/default/pods", Some(&pod)).await;
    let message = "policy 'p' with binding 'p' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
}

#[tokio::test]
async fn policies_with_parameters_variables_and_conditions() {
    let chain = server().await;
    create(&chain, MAPS, &config_map("settings", json!({"team": "blue"}))).await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "team", "expression": "params.data.team"}],
        "matchConditions": [{"name": "marked", "expression": "has(object.data) && 'mark' in object.data"}],
        "mutations": [apply_configuration("Object{metadata: Object.metadata{annotations: {'team': string(variables.team), 'by': request.userInfo.username}}}")],
    });
    let bound = json!({"paramRef": {"name": "settings", "parameterNotFoundAction": "Deny"}});
    mutate(&chain, "p", spec, bound).await;
    assert_eq!(created(&chain, "plain", json!({})).await["metadata"]["annotations"], Value::Null);
    let annotations = json!({"team": "blue", "by": "admin"});
    assert_eq!(created(&chain, "m", json!({"mark": ""})).await["metadata"]["annotations"], annotations);
    assert_eq!(call(&chain, "DELETE", &format!("{MAPS}/settings"), None).await.0, 200);
    let message = "policy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(try_create(&chain, "n", json!({"mark": ""})).await, (403, message.to_owned()));
}

#[tokio::test]
async fn policy_is_invoked_again_if_needed() {
    for (reinvocation, seen) in [("Never", "1"), ("IfNeeded", "2")] {
        let chain = server().await;
        // The first counts keys, the second adds one.
        let count = json!({"reinvocationPolicy": reinvocation, "mutations": [json_patch(
            "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'keys': string(object.data.size())}}]",
        )]});
        mutate(&chain, "a-count", count, json!({})).await;
        let add = json!({"mutations": [apply_configuration("Object{data: {'added': 'yes'}}")]});
        mutate(&chain, "b-add", add, json!({})).await;
        let object = created(&chain, "m", json!({"own": "x"})).await;
        assert_eq!(object["metadata"]["annotations"]["keys"], seen, "{reinvocation}");
        assert_eq!(object["data"], json!({"own": "x", "added": "yes"}));
    }
}

#[tokio::test]
async fn write_of_a_mutating_policy_is_in_force_when_it_is_answered() {
    let chain = server().await;
    let set = |value: usize| json!({"spec": {"mutations": [apply_configuration(&format!("Object{{data: {{'v': '{value}'}}}}"))]}});
    let first = json!({"mutations": [apply_configuration("Object{data: {'v': '0'}}")]});
    mutate(&chain, "p", first, json!({})).await;
    for round in 0..10 {
        let object = created(&chain, &format!("m{round}"), json!({})).await;
        assert_eq!(object["data"]["v"], round.to_string());
        let path = format!("{GROUP}/mutatingadmissionpolicies/p");
        assert_eq!(call(&chain, "PATCH", &path, Some(&set(round + 1))).await.0, 200);
    }
    let refused = policy("MutatingAdmissionPolicy", "q", json!({"mutations": [apply_configuration("1")]}));
    let (code, status) =
        call(&chain, "POST", &format!("{GROUP}/mutatingadmissionpolicies"), Some(&refused)).await;
    assert_eq!(code, 422);
    let message = "MutatingAdmissionPolicy.admissionregistration.k8s.io \"q\" is invalid: spec.mutations[0].applyConfiguration.expression: Invalid value: \"1\": must evaluate to Object but got int";
    assert_eq!(status["message"], message);
}
