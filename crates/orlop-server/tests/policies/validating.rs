//! ValidatingAdmissionPolicy: the behaviour table.

use orlop_api::user::UserInfo;
use serde_json::{Value, json};

use super::{
    GROUP, MAPS, call_as, config_map, policy, rules, server,
    support::{call, create},
    try_create, validate,
};

const POLICY: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p";
const BINDING: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b";

/// The text of a denial of the config map `m` by policy `p` and binding `b`.
fn denial(message: &str) -> String {
    format!(
        "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
    )
}

/// One validation of `object.data.a` with these fields.
fn validation(fields: Value) -> Value {
    let mut validation = json!({"expression": "object.data.a == 'x'"});
    validation.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"validations": [validation]})
}

#[tokio::test]
async fn denial_has_message_reason_and_code() {
    let rows = [
        (json!({}), 422, "Invalid", "failed expression: object.data.a == 'x'"),
        (
            json!({"expression": "  object.data.a == 'x'\n"}),
            422,
            "Invalid",
            "failed expression: object.data.a == 'x'",
        ),
        (json!({"message": " a must be x "}), 422, "Invalid", "a must be x"),
        (json!({"message": "m", "messageExpression": "'a is ' + object.data.a"}), 422, "Invalid", "a is y"),
        (json!({"message": "m", "messageExpression": "object.data.b"}), 0, "", ""),
        (json!({"message": "m", "messageExpression": "string(object.data.b)"}), 422, "Invalid", "m"),
        (json!({"message": "m", "messageExpression": "' '"}), 422, "Invalid", "m"),
        (json!({"message": "m", "messageExpression": "'a\\nb'"}), 422, "Invalid", "m"),
        (
            json!({"message": "m", "messageExpression": "object.data.a + '0123456789'.replace('', 'x'.replace('x', 'yyyyyyyyyy')).replace('y', 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz')"}),
            422,
            "Invalid",
            "m",
        ),
        (json!({"reason": "Forbidden"}), 403, "Forbidden", "failed expression: object.data.a == 'x'"),
        (json!({"reason": "Unauthorized"}), 401, "Unauthorized", "failed expression: object.data.a == 'x'"),
        (
            json!({"reason": "RequestEntityTooLarge"}),
            413,
            "RequestEntityTooLarge",
            "failed expression: object.data.a == 'x'",
        ),
    ];
    for (fields, code, reason, message) in rows {
        let chain = server().await;
        if code == 0 {
            // The type of a message must be known.
            let object = policy("ValidatingAdmissionPolicy", "p", validation(fields));
            let (code, refused) =
                call(&chain, "POST", &format!("{GROUP}/validatingadmissionpolicies"), Some(&object)).await;
            let message = refused["message"].as_str().unwrap();
            assert_eq!(code, 422);
            assert!(message.contains("spec.validations[0].messageExpression: Invalid value: \"object.data.b\": must evaluate to string but got dyn"), "{message}");
            continue;
        }
        validate(&chain, validation(fields.clone()), json!({})).await;
        assert_eq!(try_create(&chain, "good", json!({"a": "x"})).await.0, 201, "{fields}");
        let (found, status) = call(&chain, "POST", MAPS, Some(&config_map("m", json!({"a": "y"})))).await;
        assert_eq!((found, &status["code"]), (code, &json!(code)), "{status}");
        assert_eq!(status["reason"], reason);
        assert_eq!(status["message"], denial(message));
        let cause = denial(message).split_once(": ").unwrap().1.to_owned();
        assert_eq!(
            status["details"],
            json!({"name": "m", "kind": "configmaps", "causes": [{"message": cause}]})
        );
    }
}

#[tokio::test]
async fn both_ways_to_bind_a_pod_are_under_policies() {
    let pods = "/api/v1/namespaces/default/pods";
    let legacy = "/api/v1/namespaces/default/bindings".to_owned();
    for (resource, path) in [("pods/binding", format!("{pods}/p/binding")), ("bindings", legacy)] {
        let chain = server().await;
        let constraints = json!({"resourceRules": rules(&["CREATE"], &[resource])});
        let validations = json!([{"expression": "object.kind == 'Binding' && object.target.name == 'good'"}]);
        let spec = json!({"matchConstraints": constraints, "validations": validations});
        validate(&chain, spec, json!({})).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        create(&chain, pods, &pod).await;
        let binding = |node: &str| {
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
        };
        assert_eq!(call(&chain, "POST", &path, Some(&binding("bad"))).await.0, 422, "{resource}");
        assert_eq!(call(&chain, "POST", &path, Some(&binding("good"))).await.0, 201, "{resource}");
    }
}

#[tokio::test]
async fn expressions_see_the_request() {
    let chain = server().await;
    let rows = [
        ("object.metadata.name == 'm' && oldObject == null", true),
        ("request.operation == 'CREATE' && request.name == 'm' && request.namespace == 'default'", true),
        ("request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'", true),
        ("request.requestKind == request.kind && request.requestResource.version == 'v1'", true),
        ("!has(request.subResource) && !request.dryRun", true),
        ("request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups", true),
        ("request.options.kind == 'CreateOptions'", true),
        ("namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'", true),
        ("authorizer.group('').resource('pods').namespace('default').check('create').allowed()", true),
        ("authorizer.requestResource.check('delete').allowed()", true),
        (
            "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('get').allowed()",
            false,
        ),
        ("authorizer.path('/healthz').check('get').allowed()", true),
        ("object.data['a'].matches('^y$') && object.data.size() == 1", true),
        ("quantity('1Ki').isGreaterThan(quantity('1k'))", true),
    ];
    for (expression, holds) in rows {
        let chain = server().await;
        validate(&chain, json!({"validations": [{"expression": expression}]}), json!({})).await;
        let (code, message) = try_create(&chain, "m", json!({"a": "y"})).await;
        let expected =
            if holds { String::new() } else { denial(&format!("failed expression: {expression}")) };
        assert_eq!((code, message), (if holds { 201 } else { 422 }, expected), "{expression}");
    }
    let (code, message) = try_create(&chain, "m", json!({})).await;
    assert_eq!((code, message.as_str()), (201, ""), "no policy is bound");
}

#[tokio::test]
async fn update_and_delete_see_both_objects() {
    let chain = server().await;
    let spec = json!({"validations": [
        {"expression": "request.operation != 'UPDATE' || object.data.a != oldObject.data.a", "message": "unchanged"},
        {"expression": "request.operation != 'DELETE' || (object == null && oldObject.data.a != 'keep')", "message": "kept"},
    ]});
    validate(&chain, spec, json!({})).await;
    assert_eq!(try_create(&chain, "m", json!({"a": "1"})).await.0, 201);
    let path = format!("{MAPS}/m");
    let patch = |value: &str| json!({"data": {"a": value}});
    let (code, status) =
        call(&chain, "PATCH", &path, Some(&json!({"metadata": {"labels": {"x": "y"}}}))).await;
    assert_eq!((code, &status["message"]), (422, &json!(denial("unchanged"))));
    assert_eq!(call(&chain, "PATCH", &path, Some(&patch("keep"))).await.0, 200);
    let (code, status) = call(&chain, "DELETE", &path, None).await;
    assert_eq!((code, &status["message"]), (422, &json!(denial("kept"))));
    assert_eq!(call(&chain, "PATCH", &path, Some(&patch("2"))).await.0, 200);
    assert_eq!(call(&chain, "DELETE", &path, None).await.0, 200);
}

#[tokio::test]
async fn failure_policy_decides_about_errors() {
    let failing = "object.data.missing == 'x'";
    for (failure_policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let chain = server().await;
        let spec = json!({"failurePolicy": failure_policy, "validations": [{"expression": failing, "message": "m"}]});
        validate(&chain, spec, json!({})).await;
        let (found, message) = try_create(&chain, "m", json!({"a": "y"})).await;
        assert_eq!(found, code);
        if code == 422 {
            let error = format!("expression '{failing}' resulted in error: no such key: missing");
            assert_eq!(message, denial(&error));
        }
    }
    // Ignore does not excuse a validation that fails.
    let chain = server().await;
    validate(&chain, json!({"failurePolicy": "Ignore", "validations": [{"expression": "false"}]}), json!({}))
        .await;
    assert_eq!(try_create(&chain, "m", json!({})).await.0, 422);
}

#[tokio::test]
async fn match_conditions_exclude_requests() {
    let rows = [
        (json!([{"name": "a", "expression": "object.data.a == 'z'"}]), "Fail", 201, ""),
        (
            json!([{"name": "a", "expression": "object.data.a == 'y'"}]),
            "Fail",
            422,
            "failed expression: false",
        ),
        (
            json!([{"name": "a", "expression": "object.data.b == 'y'"}]),
            "Fail",
            422,
            "expression 'object.data.b == 'y'' resulted in error: no such key: b",
        ),
        (json!([{"name": "a", "expression": "object.data.b == 'y'"}]), "Ignore", 201, ""),
        (
            json!([{"name": "a", "expression": "object.data.b == 'y'"}, {"name": "b", "expression": "false"}]),
            "Fail",
            201,
            "",
        ),
        (
            json!([{"name": "a", "expression": "object.data.b == 'y'"}, {"name": "b", "expression": "object.data.c == 'y'"}]),
            "Fail",
            422,
            "[expression 'object.data.b == 'y'' resulted in error: no such key: b, expression 'object.data.c == 'y'' resulted in error: no such key: c]",
        ),
        (json!([{"name": "a", "expression": "request.userInfo.username != 'admin'"}]), "Fail", 201, ""),
    ];
    for (conditions, failure_policy, code, message) in rows {
        let chain = server().await;
        let spec = json!({"matchConditions": conditions, "failurePolicy": failure_policy, "validations": [{"expression": "false"}]});
        validate(&chain, spec, json!({})).await;
        let expected = if message.is_empty() { String::new() } else { denial(message) };
        assert_eq!(try_create(&chain, "m", json!({"a": "y"})).await, (code, expected), "{conditions}");
    }
}

#[tokio::test]
async fn variables_compose() {
    let chain = server().await;
    let spec = json!({
        "variables": [
            {"name": "data", "expression": "has(object.data) ? object.data : {}"},
            {"name": "keys", "expression": "variables.data.map(k, k)"},
            {"name": "bad", "expression": "object.data.missing"},
        ],
        "validations": [
            {"expression": "variables.keys.size() < 2", "messageExpression": "'too many keys: ' + variables.keys.join(', ')"},
            {"expression": "!('b' in variables.data) || variables.bad == 'x'"},
        ],
    });
    validate(&chain, spec, json!({})).await;
    assert_eq!(try_create(&chain, "none", json!({})).await.0, 201);
    assert_eq!(
        try_create(&chain, "m", json!({"a": "", "c": ""})).await,
        (422, denial("too many keys: a, c"))
    );
    let error = "expression '!('b' in variables.data) || variables.bad == 'x'' resulted in error: composited variable \"bad\" fails to evaluate: no such key: missing";
    assert_eq!(try_create(&chain, "m", json!({"b": ""})).await, (422, denial(error)));
}

#[tokio::test]
async fn actions_deny_and_warn() {
    let chain = server().await;
    validate(&chain, validation(json!({"message": "no"})), json!({"validationActions": ["Warn", "Audit"]}))
        .await;
    let admin = UserInfo::master("admin");
    let (code, warnings, _) =
        call_as(&chain, &admin, "POST", MAPS, Some(&config_map("m", json!({"a": "y"})))).await;
    assert_eq!(code, 201);
    assert_eq!(
        warnings,
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no\""]
    );
    let (code, warnings, _) =
        call_as(&chain, &admin, "POST", MAPS, Some(&config_map("n", json!({"a": "x"})))).await;
    assert_eq!((code, warnings.len()), (201, 0));
}

#[tokio::test]
async fn write_is_in_force_when_it_is_answered() {
    let chain = server().await;
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    validate(&chain, validation(json!({})), json!({})).await;
    for round in 0..10 {
        assert_eq!(try_create(&chain, "m", json!({"a": "y"})).await.0, 422);
        let changed = json!({"spec": {"validations": [{"expression": "object.data.a == 'y'"}]}});
        assert_eq!(call(&chain, "PATCH", POLICY, Some(&changed)).await.0, 200);
        assert_eq!(try_create(&chain, &format!("y{round}"), json!({"a": "y"})).await.0, 201);
        assert_eq!(try_create(&chain, "m", json!({"a": "x"})).await.0, 422);
        let (code, bound) = call(&chain, "DELETE", BINDING, None).await;
        assert_eq!(code, 200, "{bound}");
        assert_eq!(try_create(&chain, &format!("x{round}"), json!({"a": "x"})).await.0, 201);
        let bound = super::binding("ValidatingAdmissionPolicyBinding", "b", "p", json!({}));
        create(&chain, &bindings, &bound).await;
        let changed = json!({"spec": {"validations": [{"expression": "object.data.a == 'x'"}]}});
        assert_eq!(call(&chain, "PATCH", POLICY, Some(&changed)).await.0, 200);
    }
    // A failing policy can always be removed, and reviews are never refused.
    let everything = json!({"spec": {"matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
        "validations": [{"expression": "false"}]}});
    assert_eq!(call(&chain, "PATCH", POLICY, Some(&everything)).await.0, 200);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await.0, 422);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    assert_eq!(
        call(&chain, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Some(&review)).await.0,
        201
    );
    assert_eq!(call(&chain, "DELETE", POLICY, None).await.0, 200);
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await.0, 201);
}

#[tokio::test]
async fn constraints_of_policy_and_binding_select_requests() {
    let chain = server().await;
    let spec = json!({
        "matchConstraints": {
            "resourceRules": super::rules(&["CREATE"], &["configmaps", "secrets"]),
            "excludeResourceRules": super::rules(&["*"], &["secrets"]),
            "objectSelector": {"matchLabels": {"checked": "yes"}},
        },
        "validations": [{"expression": "false"}],
    });
    let bound = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}});
    validate(&chain, spec, bound).await;
    let labelled = |name: &str| {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"checked": "yes"});
        map
    };
    assert_eq!(call(&chain, "POST", MAPS, Some(&labelled("m"))).await.0, 422);
    assert_eq!(try_create(&chain, "unlabelled", json!({})).await.0, 201);
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    assert_eq!(call(&chain, "POST", elsewhere, Some(&labelled("m"))).await.0, 201);
    let mut secret = labelled("s");
    secret["kind"] = "Secret".into();
    secret.as_object_mut().unwrap().remove("data");
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces/default/secrets", Some(&secret)).await.0, 201);
}

#[tokio::test]
async fn equivalent_versions_are_converted() {
    let chain = server().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]},
        "validations": [{
            "expression": "object.apiVersion == 'autoscaling/v1' && request.requestKind.version == 'v2' && request.kind.version == 'v1' && object.spec.targetCPUUtilizationPercentage < 50",
        }],
    });
    validate(&chain, spec, json!({})).await;
    let scaler = |percent: i64| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": format!("h{percent}")},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}]}})
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    assert_eq!(call(&chain, "POST", path, Some(&scaler(40))).await.0, 201);
    let (code, refused) = call(&chain, "POST", path, Some(&scaler(60))).await;
    assert_eq!(code, 422, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("horizontalpodautoscalers.autoscaling \"h60\" is forbidden")
    );
}

#[tokio::test]
async fn policy_for_tokens_sees_what_will_be_in_them() {
    let chain = server().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&chain, accounts, &account).await;
    let expression = "size(object.spec.audiences) > 0 && !('vault' in object.spec.audiences) && \
                      object.spec.expirationSeconds <= 3600 && object.metadata.name == 'builder'";
    let spec = json!({
        "matchConstraints": {"resourceRules": rules(&["CREATE"], &["serviceaccounts/token"])},
        "validations": [{"expression": expression, "message": "no such token"}],
    });
    validate(&chain, spec, json!({})).await;
    let ask = async |spec: Value| {
        let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let (code, answer) = call(&chain, "POST", &format!("{accounts}/builder/token"), Some(&object)).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(ask(json!({})).await, (201, String::new()), "audiences and expiration have defaults");
    for refused in [json!({"audiences": ["vault"]}), json!({"expirationSeconds": 7200})] {
        let (code, message) = ask(refused).await;
        assert!(code == 422 && message.ends_with("denied request: no such token"), "{message}");
    }
}
