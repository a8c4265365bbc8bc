//! Paths and methods, and the errors of others. Responses were compared with a kube-apiserver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{ask, call, config_map, create, get, server, whole};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn unsupported_methods_return_405() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let object = config_map("b", &json!({}));
    for (method, path) in [
        ("POST", format!("{MAPS}/a")),
        ("PUT", MAPS.to_owned()),
        ("PATCH", MAPS.to_owned()),
        // No deletecollection across namespaces.
        ("DELETE", "/api/v1/configmaps".to_owned()),
        ("POST", "/api/v1/configmaps".to_owned()),
        ("OPTIONS", MAPS.to_owned()),
        ("DELETE", "/api/v1/namespaces".to_owned()),
        ("POST", "/api/v1/componentstatuses".to_owned()),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned()),
        ("GET", "/api/v1/namespaces/default/bindings".to_owned()),
        ("POST", "/apis/apps/v1/namespaces/default/deployments/x/scale".to_owned()),
        ("PUT", "/version".to_owned()),
    ] {
        let (code, status) = call(&chain, method, &path, Some(&object)).await;
        assert_eq!((code, status["reason"].as_str()), (405, Some("MethodNotAllowed")), "{method} {path}");
        let message = "the server does not allow this method on the requested resource";
        assert_eq!(status["message"], message, "{method} {path}");
    }
    assert_eq!(get(&chain, &format!("{MAPS}/a")).await.0, 200, "nothing was deleted");
    assert_eq!(call(&chain, "POST", "/nowhere", Some(&object)).await, (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn unknown_resource_of_a_known_group_is_a_status() {
    let (chain, _store) = server().await;
    for path in
        ["/api/v1/nothings", "/apis/apps/v2", "/apis/apps/v2/deployments", "/api/v2", "/api/v1/configmaps/a"]
    {
        let (code, status) = get(&chain, path).await;
        assert_eq!((code, status["reason"].as_str()), (404, Some("NotFound")), "{path}");
        assert_eq!(status["message"], "the server could not find the requested resource");
    }
    for path in
        ["/nothing", "/apis/nothing.io", "/apis/nothing.io/v1", "/apis/nothing.io/v1/x", "/metrics/nothing"]
    {
        assert_eq!(get(&chain, path).await, (404, "404 page not found\n".into()), "{path}");
    }
    let (_, root) = get(&chain, "/").await;
    let paths: Vec<&str> =
        root["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(paths.is_sorted() && paths.contains(&"/apis/apps/v1") && paths.contains(&"/api/v1"), "{paths:?}");
}

#[tokio::test]
async fn reviews_are_not_served_as_tables() {
    let (chain, _store) = server().await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let headers =
        [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"), ("content-type", "application/json")];
    let (code, _, body) = whole(ask(&chain, "POST", path, &headers, review.to_string()).await).await;
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, status["reason"].as_str()), (406, Some("NotAcceptable")));
    let (code, refused) = call_table(&chain, &format!("{MAPS}?includeObject=Bogus")).await;
    let message = "Unable to convert to Table as requested: includeObject: Invalid value: \"Bogus\": \
        must be 'Metadata', 'Object', 'None', or empty";
    assert_eq!((code, refused["message"].as_str()), (400, Some(message)));
    let (_, table) = call_table(&chain, &format!("{MAPS}?includeObject=None")).await;
    assert_eq!(
        (table["kind"].as_str(), table["columnDefinitions"][0]["format"].as_str()),
        (Some("Table"), Some("name"))
    );
}

async fn call_table(chain: &orlop_server::chain::Chain, path: &str) -> (u16, Value) {
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (code, _, body) = whole(ask(chain, "GET", path, &headers, "").await).await;
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn openid_discovery_publishes_the_signing_key() {
    let (chain, _store) = server().await;
    let (code, discovery) = get(&chain, "/.well-known/openid-configuration").await;
    assert_eq!((code, discovery["issuer"].as_str()), (200, Some("https://kubernetes.default.svc")));
    let (code, headers, body) = whole(ask(&chain, "GET", "/openid/v1/jwks", &[], "").await).await;
    assert_eq!((code, &headers["content-type"]), (200, &"application/jwk-set+json".parse().unwrap()));
    let keys: Value = serde_json::from_slice(&body).unwrap();
    let key = &keys["keys"][0];
    assert_eq!((key["kty"].as_str(), key["crv"].as_str()), (Some("EC"), Some("P-256")));
    assert!(key["x"].as_str().unwrap().len() == 43 && key["y"].as_str().unwrap().len() == 43, "{key}");
}

#[tokio::test]
async fn malformed_body_errors_match_kubernetes() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let item = format!("{MAPS}/a");
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): \
        couldn't get version/kind; json parse error: unexpected end of JSON input";
    for (method, path, media_type, body, code, message) in [
        ("POST", MAPS, "application/json", "{", 400, format!("{unrecognized} ({{)")),
        ("POST", MAPS, "application/json", "", 400, format!("{unrecognized} (<empty>)")),
        ("PATCH", &item, "application/merge-patch+json", "{", 400, "invalid JSON patch".to_owned()),
        ("PATCH", &item, "application/merge-patch+json", "[]", 400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned()),
        ("PATCH", &item, "application/json-patch+json", "{}", 400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned()),
        ("PATCH", &item, "text/plain", "{}", 415, "415: Unsupported Media Type".to_owned()),
    ] {
        let headers = [("content-type", media_type)];
        let (answered, _, said) = whole(ask(&chain, method, path, &headers, body.to_owned()).await).await;
        let status: Value = serde_json::from_slice(&said).unwrap();
        assert_eq!((answered, status["message"].as_str()), (code, Some(message.as_str())), "{method} {body}");
    }
    let (_, object) = get(&chain, &item).await;
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "zzz"}});
    let (code, status) = call(&chain, "DELETE", &item, Some(&options)).await;
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (zzz) does not match the \
         UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!((code, status["message"].as_str()), (409, Some(message.as_str())));
    assert_eq!(get(&chain, &format!("{item}?timeout=-1s")).await.0, 200);
    assert_eq!(get(&chain, &format!("{item}?timeout=x")).await.0, 400);
}

#[tokio::test]
async fn binding_binds_by_subresource_and_legacy_path() {
    let (chain, _store) = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    for (name, path) in
        [("one", format!("{pods}/one/binding")), ("two", "/api/v1/namespaces/default/bindings".to_owned())]
    {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(call(&chain, "POST", pods, Some(&pod)).await.0, 201);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
        let (code, status) = call(&chain, "POST", &path, Some(&binding)).await;
        assert_eq!((code, status["status"].as_str()), (201, Some("Success")), "{path}: {status}");
        let (_, bound) = call(&chain, "GET", &format!("{pods}/{name}"), None).await;
        assert_eq!(bound["spec"]["nodeName"], "n", "{path}");
        let (code, status) = call(&chain, "POST", &path, Some(&binding)).await;
        let message = format!(
            "Operation cannot be fulfilled on pods/binding \"{name}\": pod {name} is already assigned to node \"n\""
        );
        assert_eq!((code, status["message"].as_str()), (409, Some(message.as_str())), "{path}");
    }
}

#[tokio::test]
async fn binding_is_of_one_pod_that_may_be_scheduled() {
    let (chain, _store) = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["example.com/x"]},
        "spec": {"schedulingGates": [{"name": "example.com/queue"}], "containers": [{"name": "c", "image": "i"}]}});
    let (_, made) = call(&chain, "POST", pods, Some(&pod)).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let bind = async |metadata: Value| {
        let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
        for (key, value) in metadata.as_object().unwrap() {
            binding["metadata"][key] = value.clone();
        }
        let (code, status) = call(&chain, "POST", &format!("{pods}/p/binding"), Some(&binding)).await;
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    let refusal = |resource: &str, why: &str| {
        (409, format!("Operation cannot be fulfilled on {resource} \"p\": {why}"))
    };
    assert_eq!(
        bind(json!({})).await,
        refusal("pods/binding", "pod p has non-empty .spec.schedulingGates"),
        "a queue holds it back"
    );
    let ungated = json!({"spec": {"schedulingGates": null}});
    assert_eq!(call(&chain, "PATCH", &format!("{pods}/p"), Some(&ungated)).await.0, 200);
    // An earlier pod of the name was meant.
    let why = format!("Precondition failed: UID in precondition: other, UID in object meta: {uid}");
    assert_eq!(bind(json!({"uid": "other"})).await, refusal("pods", &why));
    assert_eq!(bind(json!({"resourceVersion": "1"})).await.0, 409);
    assert_eq!(call(&chain, "DELETE", &format!("{pods}/p"), None).await.0, 200);
    assert_eq!(
        bind(json!({"uid": uid})).await,
        refusal("pods/binding", "pod p is being deleted, cannot be assigned to a host")
    );
    let finished = json!({"metadata": {"finalizers": null}});
    assert_eq!(call(&chain, "PATCH", &format!("{pods}/p"), Some(&finished)).await.0, 200);
    let mut again = pod.clone();
    again["spec"]["schedulingGates"] = Value::Null;
    let (code, made) = call(&chain, "POST", pods, Some(&again)).await;
    assert_eq!(code, 201, "{made}");
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    assert_eq!(bind(json!({"uid": uid, "resourceVersion": version})).await, (201, String::new()));
}
