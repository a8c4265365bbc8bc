//! Pod subresources without nodes, and service account tokens.

use orlop_server::chain::Chain;
use serde_json::{Value, json};

use crate::{
    refused,
    support::{call, create, get, server},
};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(chain: &Chain, name: &str, containers: &[&str]) {
    let containers: Vec<Value> =
        containers.iter().map(|container| json!({"name": container, "image": "i"})).collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"serviceAccountName": "default", "containers": containers}});
    create(chain, PODS, &pod).await;
}

#[tokio::test]
async fn log_options_are_validated_as_in_kubernetes() {
    let (chain, _store) = server().await;
    pod(&chain, "p", &["c"]).await;
    pod(&chain, "two", &["c", "d"]).await;
    let log = format!("{PODS}/p/log");
    assert_eq!(get(&chain, &log).await, (204, json!("")));
    assert_eq!(get(&chain, &format!("{log}?container=c&tailLines=3&sinceSeconds=5")).await.0, 204);
    let invalid = |what: &str| format!("PodLogOptions \"p\" is invalid: {what}");
    for (query, code, message) in [
        ("container=zork", 400, "container zork is not valid for pod p".to_owned()),
        ("tailLines=-1", 422, invalid("tailLines: Invalid value: -1: must be greater than or equal to 0")),
        ("limitBytes=0", 422, invalid("limitBytes: Invalid value: 0: must be greater than 0")),
        ("sinceSeconds=0", 422, invalid("sinceSeconds: Invalid value: 0: must be greater than 0")),
        ("stream=Stdout", 422, invalid("stream: Forbidden: may not be specified")),
        (
            "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
            422,
            invalid("[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
        ),
        ("tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
    ] {
        refused(&chain, "GET", &format!("{log}?{query}"), None, code, &message).await;
    }
    let message = "a container name must be specified for pod two, choose one of: [c d]";
    refused(&chain, "GET", &format!("{PODS}/two/log"), None, 400, message).await;
    refused(&chain, "GET", &format!("{PODS}/none/log"), None, 404, "pods \"none\" not found").await;
}

#[tokio::test]
async fn node_subresources_report_missing_pods_and_nodes() {
    let (chain, _store) = server().await;
    pod(&chain, "p", &["c"]).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]}});
    create(&chain, "/api/v1/namespaces/default/services", &service).await;
    for (path, code, message) in [
        ("pods/p/exec?command=x&stdout=true", 400, "pod p does not have a host assigned"),
        ("pods/p/exec?command=x&container=zork", 400, "container zork is not valid for pod p"),
        ("pods/p/portforward", 400, "pod p does not have a host assigned"),
        ("pods/none/attach", 404, "pods \"none\" not found"),
        ("pods/p/proxy/x", 400, "address not allowed"),
        ("pods/none/proxy", 404, "pods \"none\" not found"),
        ("services/s/proxy", 503, "no endpoints available for service \"s\""),
        ("services/https:s:443/proxy/x", 503, "no service port 443 found for service \"s\""),
        ("services/http:none:80/proxy", 404, "services \"none\" not found"),
    ] {
        refused(&chain, "GET", &format!("/api/v1/namespaces/default/{path}"), None, code, message).await;
    }
    refused(&chain, "GET", "/api/v1/nodes/none/proxy", None, 404, "nodes \"none\" not found").await;
}

#[tokio::test]
async fn binding_and_eviction_must_name_the_pod() {
    let (chain, _store) = server().await;
    pod(&chain, "p", &["c"]).await;
    let binding = |name: &str, target: Value| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
    let path = format!("{PODS}/p/binding");
    for (body, code, message) in [
        (binding("q", json!({"name": "n"})), 400, "name in URL does not match name in Binding object"),
        (binding("p", json!({})), 500, "target.name: Required value"),
        (
            binding("p", json!({"kind": "Zork"})),
            500,
            "[target.kind: Unsupported value: \"Zork\": supported values: \"Node\", \"<empty>\", target.name: Required value]",
        ),
    ] {
        refused(&chain, "POST", &path, Some(&body), code, message).await;
    }
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction"});
    let message = "name in URL does not match name in Eviction object";
    refused(&chain, "POST", &format!("{PODS}/p/eviction"), Some(&eviction), 400, message).await;
    assert_eq!(get(&chain, &format!("{PODS}/p")).await.0, 200);
}

#[tokio::test]
async fn token_binds_only_to_existing_objects() {
    let (chain, _store) = server().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}});
    create(&chain, accounts, &account).await;
    pod(&chain, "p", &["c"]).await;
    let path = format!("{accounts}/s/token");
    let request = |metadata: Value, reference: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata,
            "spec": {"boundObjectRef": reference}})
    };
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name});
    for (body, code, message) in [
        (request(json!({}), pod("none")), 404, "pods \"none\" not found"),
        (
            request(json!({}), json!({"apiVersion": "v1", "kind": "Zork", "name": "z"})),
            400,
            "cannot bind token to object of type /v1, Kind=Zork",
        ),
        (
            request(json!({}), pod("p")),
            400,
            "cannot bind token for serviceaccount \"s\" to pod running with different serviceaccount name.",
        ),
        (
            request(json!({"name": "zork"}), Value::Null),
            422,
            "TokenRequest.authentication.k8s.io \"s\" is invalid: metadata.name: Invalid value: \"zork\": must match \
             the service account name if specified",
        ),
    ] {
        refused(&chain, "POST", &path, Some(&body), code, message).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    create(&chain, "/api/v1/namespaces/default/secrets", &secret).await;
    let bound = request(json!({}), json!({"apiVersion": "v1", "kind": "Secret", "name": "x"}));
    let (code, answer) = call(&chain, "POST", &path, Some(&bound)).await;
    let (_, account) = get(&chain, &format!("{accounts}/s")).await;
    assert_eq!((code, &answer["metadata"]["uid"]), (201, &account["metadata"]["uid"]), "{answer}");
}

#[tokio::test]
async fn evicted_pod_has_disruption_target_condition() {
    let (chain, _store) = server().await;
    pod(&chain, "p", &["c"]).await;
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}});
    assert_eq!(call(&chain, "POST", &format!("{PODS}/p/binding"), Some(&binding)).await.0, 201);
    let missing = "nodes \"n\" not found";
    refused(&chain, "GET", &format!("{PODS}/p/log"), None, 404, missing).await;
    refused(&chain, "GET", &format!("{PODS}/p/exec?command=x"), None, 404, missing).await;

    let (_, before) = get(&chain, &format!("{PODS}/p")).await;
    let eviction = |preconditions: Value| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            "deleteOptions": {"preconditions": preconditions}})
    };
    let path = format!("{PODS}/p/eviction");
    let (code, refused) = call(&chain, "POST", &path, Some(&eviction(json!({"uid": "other"})))).await;
    assert_eq!((code, refused["details"]["kind"].as_str()), (409, Some("Pod")), "{refused}");
    let version = &before["metadata"]["resourceVersion"];
    let (code, told) =
        call(&chain, "POST", &path, Some(&eviction(json!({"resourceVersion": version})))).await;
    assert_eq!(code, 201, "{told}");
    let (_, evicted) = get(&chain, &format!("{PODS}/p")).await;
    assert_eq!(evicted["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = evicted["status"]["conditions"].as_array().unwrap();
    let reasons: Vec<_> = conditions.iter().filter_map(|condition| condition["reason"].as_str()).collect();
    assert_eq!(reasons, ["EvictionByEvictionAPI"], "{evicted}");
}

#[tokio::test]
async fn negative_grace_period_becomes_one_second() {
    let (chain, _store) = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    for (name, seconds, given) in [("a", -5, 1), ("b", 7, 7)] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        create(&chain, pods, &pod).await;
        let path = format!("{pods}/{name}?gracePeriodSeconds={seconds}");
        let (_, marked) = call(&chain, "DELETE", &path, None).await;
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], given, "{marked}");
        // A second delete cannot lengthen the grace period.
        let (_, marked) = call(&chain, "DELETE", &format!("{pods}/{name}?gracePeriodSeconds=90"), None).await;
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], given, "{marked}");
    }
}

#[tokio::test]
async fn rare_pod_fields_are_validated() {
    let (chain, _store) = server().await;
    let in_container = |field: &str, value: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container[field] = value;
        json!({"containers": [container]})
    };
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!({"volumes": [volume]})
    };
    let files = |name: &str| json!({"name": name, "items": [{"key": "k", "path": "x"}]});
    let resource =
        json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}}]);
    let field =
        json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v9"}}}]);
    for (spec, expected) in [
        (volume(json!({"cephfs": {}})), "spec.volumes[0].cephfs.monitors: Required value"),
        (
            volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": {}}})),
            "spec.volumes[0].csi.nodePublishSecretRef.name: Required value",
        ),
        (
            volume(json!({"emptyDir": {"sizeLimit": "-1"}})),
            "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ),
        (
            volume(json!({"projected": {"sources": [{"configMap": files("a")}, {"secret": files("b")}]}})),
            "spec.volumes[0].projected: Invalid value: \"b\": conflicting duplicate paths",
        ),
        (
            in_container("lifecycle", json!({"preStop": {"sleep": {"seconds": 100}}})),
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 100: must be non-negative and less than \
             terminationGracePeriodSeconds (30)",
        ),
        (
            in_container("env", resource),
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only \
             divisor's values 1m and 1 are supported with the cpu resource",
        ),
        (
            in_container("env", field),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name\": error converting \
             fieldPath: unsupported pod version: v9",
        ),
        (
            in_container("securityContext", json!({"appArmorProfile": {"type": "Localhost"}})),
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when \
             AppArmor type is Localhost",
        ),
        (
            in_container("resources", json!({"limits": {"cpu": "1", "hugepages-2Mi": "1Mi"}})),
            "[spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"1Mi\": 1Mi is not positive integer \
             multiple of hugepages-2Mi, spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"1Mi\": \
             1Mi is not positive integer multiple of hugepages-2Mi]",
        ),
        (
            in_container("resizePolicy", json!([{"resourceName": "zork", "restartPolicy": "NotRequired"}])),
            "spec.containers[0].resizePolicy: Unsupported value: \"zork\": supported values: \"cpu\", \"memory\"",
        ),
        (
            json!({"resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "y"}]}),
            "spec.resourceClaims[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"overhead": {"cpu": "-1"}}),
            "spec.overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"hostUsers": false, "hostNetwork": true}),
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
        ),
        (
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": "a", "matchLabelKeys": ["x"]}]}}}),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: \
             must not be specified when labelSelector is not set",
        ),
    ] {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let message = format!("Pod \"p\" is invalid: {expected}");
        refused(&chain, "POST", PODS, Some(&pod), 422, &message).await;
    }
}
