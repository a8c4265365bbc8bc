//! Subresources and collections, seen by webhooks.

use serde_json::json;

use super::*;

/// Starts a webhook that sees every request for every resource and subresource.
async fn observer(chain: &Chain) -> Hook {
    let hook = Hook::start(&[], allow).await;
    let mut all = webhook(&hook, "a.example.com");
    all["rules"] =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    configure(chain, VALIDATING, "c", &[all]).await;
    hook
}

/// Returns operation, resource, subresource, kind, name, and kinds of the objects.
fn requests(hook: &Hook) -> Vec<String> {
    let requests = |review: &Value| {
        let request = &review["request"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        format!(
            "{} {}/{} {}/{} {} {} {} {}",
            text(&request["operation"]),
            text(&request["resource"]["resource"]),
            text(&request["subResource"]),
            text(&request["kind"]["group"]),
            text(&request["kind"]["kind"]),
            text(&request["name"]),
            text(&request["namespace"]),
            text(&request["object"]["kind"]),
            text(&request["oldObject"]["kind"]),
        )
    };
    hook.take_reviews().iter().map(requests).collect()
}

#[tokio::test]
async fn scale_and_status_have_their_kinds() {
    let chain = server().await;
    let hook = observer(&chain).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(call(&chain, "POST", deployments, Some(&deployment)).await.0, 201);
    assert_eq!(requests(&hook), ["CREATE deployments/- apps/Deployment d default Deployment -"]);
    let (code, scale) = call(&chain, "GET", &format!("{deployments}/d/scale"), None).await;
    assert_eq!(code, 200);
    let mut scale = scale;
    scale["spec"]["replicas"] = 3.into();
    hook.answers(|review| {
        let request = &review["request"];
        assert_eq!(
            (&request["object"]["spec"]["replicas"], &request["oldObject"]["spec"]["replicas"]),
            (&json!(3), &json!(1))
        );
        allow(review)
    });
    assert_eq!(call(&chain, "PUT", &format!("{deployments}/d/scale"), Some(&scale)).await.0, 200);
    assert_eq!(requests(&hook), ["UPDATE deployments/scale autoscaling/Scale d default Scale Scale"]);
    hook.answers(allow);
    let status = json!({"status": {"observedGeneration": 1}});
    assert_eq!(call(&chain, "PATCH", &format!("{deployments}/d/status"), Some(&status)).await.0, 200);
    assert_eq!(
        requests(&hook),
        ["UPDATE deployments/status apps/Deployment d default Deployment Deployment"]
    );
}

#[tokio::test]
async fn scale_can_be_changed_by_webhooks() {
    let chain = server().await;
    let hook = Hook::start(&[], |review| {
        patch(review, &json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]))
    })
    .await;
    let mut scales = webhook(&hook, "a.example.com");
    scales["rules"] = json!([rule("apps", "v1", "deployments/scale")]);
    configure(&chain, MUTATING, "c", &[scales]).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(call(&chain, "POST", deployments, Some(&deployment)).await.0, 201);
    let more = json!({"spec": {"replicas": 2}});
    let (code, scaled) = call(&chain, "PATCH", &format!("{deployments}/d/scale"), Some(&more)).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)), "{scaled}");
    assert_eq!(call(&chain, "GET", &format!("{deployments}/d"), None).await.1["spec"]["replicas"], 5);
}

#[tokio::test]
async fn pods_are_bound_evicted_and_deleted_with_reviews() {
    let chain = server().await;
    let hook = observer(&chain).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(call(&chain, "POST", pods, Some(&pod)).await.0, 201);
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}});
    assert_eq!(call(&chain, "POST", &format!("{pods}/p/binding"), Some(&binding)).await.0, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 0}});
    assert_eq!(call(&chain, "POST", &format!("{pods}/p/eviction"), Some(&eviction)).await.0, 201);
    assert_eq!(
        requests(&hook),
        [
            "CREATE pods/- /Pod p default Pod -",
            "CREATE pods/binding /Binding p default Binding -",
            "CREATE pods/eviction policy/Eviction p default Eviction -",
        ]
    );
}

#[tokio::test]
async fn collections_are_deleted_with_a_review_for_each_object() {
    let chain = server().await;
    for name in ["a", "b"] {
        assert_eq!(call(&chain, "POST", MAPS, Some(&config_map(name))).await.0, 201);
    }
    let hook = observer(&chain).await;
    assert_eq!(call(&chain, "DELETE", MAPS, None).await.0, 200);
    let requests = requests(&hook);
    assert_eq!(requests.len(), 2);
    assert!(
        requests.iter().all(|it| it == "DELETE configmaps/- /ConfigMap - default - ConfigMap"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn namespace_is_in_itself() {
    let chain = server().await;
    let hook = observer(&chain).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    assert_eq!(call(&chain, "POST", "/api/v1/namespaces", Some(&namespace)).await.0, 201);
    assert_eq!(requests(&hook), ["CREATE namespaces/- /Namespace team team Namespace -"]);
}

#[tokio::test]
async fn generated_names_are_known_once_they_are_validated() {
    let chain = server().await;
    let hook = observer(&chain).await;
    let mut map = config_map("");
    map["metadata"] = json!({"generateName": "gen-"});
    let (code, made) = call(&chain, "POST", MAPS, Some(&map)).await;
    assert_eq!(code, 201);
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!(requests(&hook), [format!("CREATE configmaps/- /ConfigMap {name} default ConfigMap -")]);
}
