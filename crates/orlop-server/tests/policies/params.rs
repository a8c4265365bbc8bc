//! Parameters of policies: of built-in and custom kinds.

use serde_json::{Value, json};

use super::{
    MAPS, config_map, server,
    support::{call, create},
    try_create, validate,
};

const CONFIG_MAP: &str = "v1";

fn denial(message: &str) -> (u16, String) {
    let text = format!(
        "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
    );
    (422, text)
}

/// A policy whose parameters are config maps with `data.max`.
fn with_params() -> Value {
    json!({
        "paramKind": {"apiVersion": CONFIG_MAP, "kind": "ConfigMap"},
        "matchConditions": [{"name": "not-a-param", "expression": "oldObject == null && !has(object.metadata.labels)"}],
        "validations": [{
            "expression": "params == null || size(object.data.a) <= int(params.data.max)",
            "messageExpression": "'longer than ' + params.data.max + ' of ' + params.metadata.name + ' ' + params.kind",
        }],
    })
}

fn param(name: &str, max: &str, labels: Value) -> Value {
    let mut param = config_map(name, json!({"max": max}));
    param["metadata"]["labels"] = labels;
    param
}

#[tokio::test]
async fn parameters_are_found_by_name_and_selector() {
    let chain = server().await;
    create(&chain, MAPS, &param("short", "1", json!({"of": "p"}))).await;
    create(&chain, "/api/v1/namespaces/kube-system/configmaps", &param("long", "3", json!({"of": "p"})))
        .await;
    let reference = |fields: Value| {
        let mut whole = json!({"parameterNotFoundAction": "Deny"});
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"paramRef": whole})
    };
    validate(&chain, with_params(), reference(json!({"name": "short"}))).await;
    assert_eq!(try_create(&chain, "m", json!({"a": "22"})).await, denial("longer than 1 of short ConfigMap"));
    let bound = |spec: Value| json!({"spec": spec});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b";
    let rows = [
        (json!({"name": "long", "namespace": "kube-system"}), "333", None),
        (
            json!({"name": "long", "namespace": "kube-system"}),
            "4444",
            Some("longer than 3 of long ConfigMap"),
        ),
        (
            json!({"name": null, "namespace": null, "selector": {"matchLabels": {"of": "p"}}}),
            "22",
            Some("longer than 1 of short ConfigMap"),
        ),
        (json!({"selector": {"matchLabels": {"of": "p"}}, "namespace": "kube-system"}), "22", None),
        (
            json!({"selector": {"matchLabels": {"of": null, "none": "at-all"}}}),
            "22",
            Some(
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ),
        (json!({"parameterNotFoundAction": "Allow"}), "22", None),
    ];
    for (index, (reference, value, denied)) in rows.into_iter().enumerate() {
        let (code, answer) = call(&chain, "PATCH", path, Some(&bound(json!({"paramRef": reference})))).await;
        assert_eq!(code, 200, "{answer}");
        let name = if denied.is_some() { "m".to_owned() } else { format!("n{index}") };
        let expected = denied.map_or((201, String::new()), denial);
        assert_eq!(try_create(&chain, &name, json!({"a": value})).await, expected, "{index}");
    }
    // Without a reference there are no parameters.
    assert_eq!(call(&chain, "PATCH", path, Some(&bound(json!({"paramRef": null})))).await.0, 200);
    assert_eq!(try_create(&chain, "unbound", json!({"a": "22"})).await.0, 201);
}

#[tokio::test]
async fn parameter_is_in_force_when_its_write_is_answered() {
    let chain = server().await;
    let reference = json!({"paramRef": {"name": "q", "parameterNotFoundAction": "Allow"}});
    validate(&chain, with_params(), reference).await;
    for round in 0..10 {
        assert_eq!(try_create(&chain, &format!("a{round}"), json!({"a": "22"})).await.0, 201);
        create(&chain, MAPS, &param("q", "1", json!({"of": "p"}))).await;
        assert_eq!(try_create(&chain, "m", json!({"a": "22"})).await.0, 422);
        let longer = json!({"data": {"max": "2"}});
        assert_eq!(call(&chain, "PATCH", &format!("{MAPS}/q"), Some(&longer)).await.0, 200);
        assert_eq!(try_create(&chain, &format!("b{round}"), json!({"a": "22"})).await.0, 201);
        assert_eq!(call(&chain, "DELETE", &format!("{MAPS}/q"), None).await.0, 200);
    }
}

#[tokio::test]
async fn custom_kind_is_a_parameter_as_soon_as_it_is_defined() {
    let chain = server().await;
    let spec = json!({
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "validations": [{"expression": "size(object.data.a) <= params.spec.max"}],
    });
    let reference = json!({"paramRef": {"name": "l", "parameterNotFoundAction": "Deny"}});
    validate(&chain, spec, reference).await;
    let text = "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'";
    assert_eq!(try_create(&chain, "m", json!({"a": "1"})).await, (422, text.to_owned()));
    let schema = |name: &str| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {name: {"type": "integer"}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "limits", "singular": "limit", "kind": "Limit"},
            "versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema("max")}},
                {"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema("max")}}]}});
    create(&chain, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(
        try_create(&chain, "m", json!({"a": "1"})).await,
        denial(
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
        )
    );
    let limit = json!({"apiVersion": "example.com/v2", "kind": "Limit", "metadata": {"name": "l"}, "spec": {"max": 2}});
    create(&chain, "/apis/example.com/v2/limits", &limit).await;
    assert_eq!(try_create(&chain, "short", json!({"a": "22"})).await.0, 201);
    assert_eq!(
        try_create(&chain, "m", json!({"a": "333"})).await,
        denial("failed expression: size(object.data.a) <= params.spec.max")
    );
    // A reference to a namespace makes no sense for an object of the cluster.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b";
    let namespaced = json!({"spec": {"paramRef": {"namespace": "default"}}});
    assert_eq!(call(&chain, "PATCH", path, Some(&namespaced)).await.0, 200);
    let message = "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
    assert_eq!(try_create(&chain, "m", json!({"a": "1"})).await, denial(message));
}

#[tokio::test]
async fn namespaced_parameter_of_a_cluster_scoped_request_is_an_error() {
    let chain = server().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": super::rules(&["CREATE"], &["persistentvolumes"])},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "true"}],
    });
    validate(&chain, spec, json!({"paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}})).await;
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    let (code, refused) = call(&chain, "POST", "/api/v1/persistentvolumes", Some(&volume)).await;
    assert_eq!(code, 422, "{refused}");
    let message = "persistentvolumes \"v\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    assert_eq!(refused["message"], message);
}
