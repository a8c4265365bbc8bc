//! APIServices of the server's own group versions, and availability.

use serde_json::{Value, json};

use crate::{
    extension::{Extension, SERVICES, condition, eventually, register},
    support::{call, get, server},
};

const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widgets() -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget"}}})
}

#[tokio::test]
async fn built_in_group_versions_are_registered_with_kubernetes_priorities() {
    let (chain, _store) = server().await;
    let (_, list) = get(&chain, SERVICES).await;
    let find =
        |name: &str| list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name);
    for (name, group, version) in
        [("v1.", 18000, 1), ("v1.apps", 17800, 15), ("v2.autoscaling", 17500, 30), ("v1.batch", 17400, 15)]
    {
        let found = find(name).unwrap_or_else(|| panic!("no {name}"));
        let spec = &found["spec"];
        assert_eq!(
            (&spec["groupPriorityMinimum"], &spec["versionPriority"]),
            (&json!(group), &json!(version))
        );
        assert_eq!(found["metadata"]["labels"][LABEL], "onstart");
        let condition = &found["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Local")));
        assert_eq!(condition["message"], "Local APIServices are always available");
    }
    assert!(find("v1.apiregistration.k8s.io").is_none());
    // A built-in one is restored at a start only.
    assert_eq!(call(&chain, "DELETE", &format!("{SERVICES}/v1.apps"), None).await.0, 200);
    assert_eq!(get(&chain, "/apis/apps/v1/deployments").await.0, 200);
}

#[tokio::test]
async fn custom_group_versions_are_registered_restored_and_removed() {
    let (chain, _store) = server().await;
    let path = format!("{SERVICES}/v1.example.com");
    assert_eq!(call(&chain, "POST", DEFINITIONS, Some(&widgets())).await.0, 201);
    let ask = || async { get(&chain, &path).await.1 };
    let found = eventually(ask, |found| found["kind"] == "APIService").await;
    assert_eq!(found["metadata"]["labels"][LABEL], "true");
    assert_eq!(
        (&found["spec"]["groupPriorityMinimum"], &found["spec"]["versionPriority"]),
        (&json!(1000), &json!(100))
    );

    let edit = json!({"spec": {"groupPriorityMinimum": 5}});
    assert_eq!(call(&chain, "PATCH", &path, Some(&edit)).await.0, 200);
    eventually(ask, |found| found["spec"]["groupPriorityMinimum"] == 1000).await;
    assert_eq!(call(&chain, "DELETE", &path, None).await.0, 200);
    let again = eventually(ask, |found| found["kind"] == "APIService").await;
    assert_ne!(again["metadata"]["uid"], found["metadata"]["uid"]);

    assert_eq!(call(&chain, "DELETE", &format!("{DEFINITIONS}/widgets.example.com"), None).await.0, 200);
    eventually(ask, |found| found["reason"] == "NotFound").await;
}

#[tokio::test]
async fn priorities_of_api_services_order_discovery() {
    let (chain, _store) = server().await;
    assert_eq!(call(&chain, "POST", DEFINITIONS, Some(&widgets())).await.0, 201);
    let first = |list: &Value| {
        let groups = list["groups"].as_array().unwrap().iter();
        groups.map(|group| group["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, list) = get(&chain, "/apis").await;
    assert_eq!(first(&list).first().unwrap(), "apiregistration.k8s.io");
    assert_eq!(first(&list).last().unwrap(), "example.com");
    // Somebody else's APIService is left alone.
    let ask = || async { get(&chain, &format!("{SERVICES}/v1.example.com")).await.1 };
    eventually(ask, |found| found["kind"] == "APIService").await;
    let own = json!({"metadata": {"labels": {LABEL: null}}, "spec": {"groupPriorityMinimum": 19000}});
    assert_eq!(call(&chain, "PATCH", &format!("{SERVICES}/v1.example.com"), Some(&own)).await.0, 200);
    let (_, list) = get(&chain, "/apis").await;
    assert_eq!(first(&list)[1], "example.com");
}

#[tokio::test]
async fn availability_follows_service_endpoints_and_server() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let reason = async |wanted: &'static str| condition(&chain, |found| found["reason"] == wanted).await;
    let spec = json!({"group": "home.example.com", "version": "v1", "groupPriorityMinimum": 2000,
        "versionPriority": 10, "caBundle": extension.ca_bundle,
        "service": {"namespace": "default", "name": "lamps", "port": 443}});
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.home.example.com"}, "spec": spec});
    assert_eq!(call(&chain, "POST", SERVICES, Some(&object)).await.0, 201);
    let found = reason("ServiceNotFound").await;
    assert_eq!(found["message"], "service/lamps in \"default\" is not present");
    let (code, text) = get(&chain, "/apis/home.example.com/v1/lamps").await;
    assert_eq!((code, text), (503, "service unavailable\n".into()));

    let services = "/api/v1/namespaces/default/services";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lamps"},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]}});
    assert_eq!(call(&chain, "POST", services, Some(&service)).await.0, 201);
    let found = reason("ServicePortError").await;
    assert_eq!(found["message"], "service/lamps in \"default\" is not listening on port 443");
    let ports = json!({"spec": {"ports": [{"port": 443, "protocol": "TCP", "name": "https"}]}});
    assert_eq!(call(&chain, "PATCH", &format!("{services}/lamps"), Some(&ports)).await.0, 200);
    let found = reason("EndpointsNotFound").await;
    assert_eq!(found["message"], "cannot find endpointslices for service/lamps in \"default\"");

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "lamps-1", "labels": {"kubernetes.io/service-name": "lamps"}},
        "endpoints": [{"addresses": ["127.64.0.1"], "conditions": {"ready": false}}],
        "ports": [{"name": "https", "port": extension.port}]});
    let (code, told) = call(&chain, "POST", slices, Some(&slice)).await;
    assert_eq!(code, 201, "{told}");
    let found = reason("MissingEndpoints").await;
    let wanted = "endpointslices for service/lamps in \"default\" have no addresses with port name \"https\"";
    assert_eq!(found["message"], wanted);
    let (_, metrics) = get(&chain, "/metrics").await;
    let line = "aggregator_unavailable_apiservice{name=\"v1.home.example.com\"} 1";
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
    // Ready, and nobody listens on that address.
    let ready = json!({"endpoints": [{"addresses": ["127.64.0.1"], "conditions": {"ready": true}}]});
    assert_eq!(call(&chain, "PATCH", &format!("{slices}/lamps-1"), Some(&ready)).await.0, 200);
    let found = reason("FailedDiscoveryCheck").await;
    let url = format!("https://127.64.0.1:{}/apis/home.example.com/v1", extension.port);
    let wanted = format!(
        "failing or missing response from {url}: Get {url:?}: dial tcp 127.64.0.1:{}: connect: connection refused",
        extension.port
    );
    assert_eq!(found["message"], wanted);

    // An APIService that loses its Service is local, and available.
    let local = json!({"spec": {"service": null, "caBundle": null}});
    assert_eq!(call(&chain, "PATCH", &format!("{SERVICES}/v1.home.example.com"), Some(&local)).await.0, 200);
    reason("Local").await;
}

#[tokio::test]
async fn server_is_verified_by_the_bundle_unless_told_otherwise() {
    let (chain, _store) = server().await;
    let extension = Extension::start().await;
    let stranger = Extension::start().await;
    register(&chain, extension.port, &json!(stranger.ca_bundle)).await;
    let found = condition(&chain, |found| found["reason"] == "FailedDiscoveryCheck").await;
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("x509: certificate signed by unknown authority"), "{message}");
    let insecure = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    assert_eq!(
        call(&chain, "PATCH", &format!("{SERVICES}/v1.home.example.com"), Some(&insecure)).await.0,
        200
    );
    let found = condition(&chain, |found| found["status"] == "True").await;
    assert_eq!((&found["reason"], &found["message"]), (&json!("Passed"), &json!("all checks passed")));
}
