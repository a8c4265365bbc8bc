//! Strategies of single kinds, through the API.

use orlop_server::{
    auth::issuer::Issuer, cluster::Cluster, registry::Kinds, storage::service_ranges::ServiceRanges,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

use crate::{
    refused,
    support::{ask, call, create, get, server, started, whole},
};

#[tokio::test]
async fn create_response_has_defaults() {
    let (chain, _store) = server().await;
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let device = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "d.example.com"}}]});
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (collection, kind, rest, pointer, expected) in [
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}}),
            "/spec/targetCPUUtilizationPercentage",
            Some(json!(80)),
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            "ResourceClaim",
            json!({"spec": {"devices": device}}),
            "/spec/devices/requests/0/exactly",
            Some(json!({"allocationMode": "ExactCount", "count": 1, "deviceClassName": "d.example.com"})),
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
            "ResourceClaimTemplate",
            json!({"spec": {"spec": {"devices": device}}}),
            "/spec/spec/devices/requests/0/exactly/count",
            Some(json!(1)),
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            "APIService",
            json!({"metadata": {"name": "v1.zz.example.com"}, "spec": {"group": "zz.example.com", "version": "v1",
                "groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": true,
                "service": {"name": "s", "namespace": "default"}}}),
            "/spec/service/port",
            Some(json!(443)),
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            json!({"spec": {"template": template}}),
            "/spec/minReadySeconds",
            None,
        ),
    ] {
        let version = collection.split('/').skip(1).take_while(|part| *part != "namespaces");
        let version: Vec<&str> =
            version.filter(|part| !matches!(*part, "api" | "apis" | "apiservices")).collect();
        let mut object = json!({"apiVersion": version.join("/"), "kind": kind, "metadata": {"name": "x"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let (code, created) = call(&chain, "POST", collection, Some(&object)).await;
        assert_eq!(code, 201, "{created}");
        assert_eq!(created.pointer(pointer), expected.as_ref(), "{created}");
        let name = object["metadata"]["name"].as_str().unwrap();
        let (_, stored) = get(&chain, &format!("{collection}/{name}")).await;
        assert_eq!(stored.pointer(pointer), expected.as_ref(), "{stored}");
    }
}

#[tokio::test]
async fn endpoint_slice_label_change_bumps_generation() {
    let (chain, _store) = server().await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}]});
    create(&chain, slices, &slice).await;
    let mut generations = Vec::new();
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"labels": {"a": "c"}}, "endpoints": []}),
    ] {
        let (_, patched) = call(&chain, "PATCH", &format!("{slices}/s"), Some(&patch)).await;
        generations.push(patched["metadata"]["generation"].as_i64());
    }
    assert_eq!(generations, [Some(2), Some(2), Some(3)]);
}

#[tokio::test]
async fn update_of_a_new_event_replaces_it() {
    let (chain, _store) = server().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let first = create(&chain, events, &event).await;
    let (_, stored) = get(&chain, &format!("{events}/e")).await;
    assert_eq!(stored["deprecatedSource"], json!({}));
    let headers = [("content-type", "application/json"), ("user-agent", "another/1")];
    let path = format!("{events}/e");
    let (code, _, body) = whole(ask(&chain, "PUT", &path, &headers, event.to_string()).await).await;
    let replaced: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, replaced["metadata"]["resourceVersion"].as_str()), (200, Some(first.as_str())));
    // Core Events accept any path segment as name.
    let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "Any_Name"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    create(&chain, "/api/v1/namespaces/default/events", &old).await;
}

#[tokio::test]
async fn unsupported_field_selector_messages_match_kubernetes() {
    let (chain, _store) = server().await;
    for (path, message) in [
        ("/apis/batch/v1/jobs", "field label \"spec.x\" not supported for Job"),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x",
        ),
        ("/api/v1/pods", "field label not supported: spec.x"),
        (
            "/apis/apps/v1/replicasets",
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        refused(&chain, "GET", &format!("{path}?fieldSelector=spec.x=1"), None, 400, message).await;
    }
    let requests = "/apis/certificates.k8s.io/v1/podcertificaterequests?fieldSelector=spec.nodeName=n";
    assert_eq!(get(&chain, requests).await.0, 200);
    assert_eq!(
        get(&chain, "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.pool.name=p").await.0,
        200
    );
}

#[tokio::test]
async fn admission_policy_errors_match_kubernetes() {
    let (chain, _store) = server().await;
    let of = "/apis/admissionregistration.k8s.io/v1";
    let object = |kind: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}});
    let message = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x\" is invalid: [spec.matchConstraints: \
        Required value, spec.validations: Required value: validations or auditAnnotations must contain at least one \
        item, spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]";
    let policies = format!("{of}/validatingadmissionpolicies");
    refused(&chain, "POST", &policies, Some(&object("ValidatingAdmissionPolicy")), 422, message).await;
    let message = "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"x\" is invalid: [spec.policyName: \
        Required value, spec.validationActions: Required value]";
    let bindings = format!("{of}/validatingadmissionpolicybindings");
    refused(&chain, "POST", &bindings, Some(&object("ValidatingAdmissionPolicyBinding")), 422, message).await;
}

#[tokio::test]
async fn scale_has_its_own_columns() {
    let (chain, _store) = server().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    create(&chain, deployments, &deployment).await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{deployments}/d/scale");
    let (code, _, body) = whole(ask(&chain, "GET", &path, &headers, "").await).await;
    let table: Value = serde_json::from_slice(&body).unwrap();
    let names =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap());
    assert_eq!((code, names.collect::<Vec<_>>()), (200, vec!["Name", "Desired", "Available", "Age"]));
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(3), json!(0)]);
}

#[tokio::test]
async fn undecodable_values_are_rejected() {
    let (chain, _store) = server().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers":
        [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}]}});
    let message = "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    refused(&chain, "POST", "/api/v1/namespaces/default/pods", Some(&pod), 400, message).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "YQ!="}});
    let message =
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 2";
    refused(&chain, "POST", "/api/v1/namespaces/default/secrets", Some(&secret), 400, message).await;
}

/// Returns a Service with one port.
fn service(spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
    service["spec"]["ports"] = json!([{"port": 80}]);
    service
}

#[tokio::test]
async fn service_dry_run_shows_allocations() {
    let (chain, _store) = server().await;
    let services = "/api/v1/namespaces/default/services";
    let path = format!("{services}?dryRun=All");
    let (code, shown) = call(&chain, "POST", &path, Some(&service(json!({"type": "NodePort"})))).await;
    assert!(code == 201 && shown["spec"]["clusterIP"].as_str().unwrap().starts_with("10.0."), "{shown}");
    assert!(shown["spec"]["ports"][0]["nodePort"].as_u64().unwrap() >= 30000, "{shown}");
    assert_eq!(get(&chain, &format!("{services}/s")).await.0, 404);
    for (spec, why) in [
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack \
             services",
        ),
        (
            json!({"clusterIP": "1.2.3.4"}),
            "spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided network \
             does not match the current range",
        ),
        (
            json!({"clusterIP": "10.0.255.255"}),
            "spec.clusterIPs: Invalid value: [\"10.0.255.255\"]: failed to allocate IP 10.0.255.255: the provided IP \
             (10.0.255.255) is not in the valid range. The range of valid IPs is 10.0.0.0/16",
        ),
    ] {
        let message = format!("Service \"s\" is invalid: {why}");
        refused(&chain, "POST", &path, Some(&service(spec)), 422, &message).await;
    }
    let (_, headless) = call(&chain, "POST", &path, Some(&service(json!({"clusterIP": "None"})))).await;
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]), "its endpoints are others'");
    let chosen = json!({"clusterIP": "None", "selector": {"a": "b"}});
    let (_, headless) = call(&chain, "POST", &path, Some(&service(chosen))).await;
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4"]));
}

#[tokio::test]
async fn dual_stack_services_have_an_address_of_each_family() {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let ranges = ServiceRanges::parse("10.0.0.0/24,fd00::/108", "30000-32767").unwrap();
    let cluster = Cluster::new(store.clone(), Kinds::builtin(), Issuer::generate().unwrap());
    let chain = started(cluster.with_service_ranges(ranges)).await;
    let (_, cidr) = get(&chain, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await;
    assert_eq!(cidr["spec"]["cidrs"], json!(["10.0.0.0/24", "fd00::/108"]));
    let services = "/api/v1/namespaces/default/services";
    let dual = service(json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}));
    let (code, mut created) = call(&chain, "POST", services, Some(&dual)).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    let addresses = created["spec"]["clusterIPs"].as_array().unwrap().clone();
    assert_eq!(created["spec"]["clusterIP"], addresses[0]);
    assert!(addresses[0].as_str().unwrap().starts_with("fd00::"), "{addresses:?}");
    assert!(addresses[1].as_str().unwrap().starts_with("10.0.0."), "{addresses:?}");
    let allocated =
        |address: &Value| format!("/apis/networking.k8s.io/v1/ipaddresses/{}", address.as_str().unwrap());
    let (_, object) = get(&chain, &allocated(&addresses[0])).await;
    assert_eq!(object["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv6");
    // The policy alone releases the second family.
    let path = format!("{services}/s");
    created["spec"]["ipFamilyPolicy"] = "SingleStack".into();
    let (code, single) = call(&chain, "PUT", &path, Some(&created)).await;
    assert_eq!((code, &single["spec"]["clusterIPs"]), (200, &json!([addresses[0]])), "{single}");
    assert_eq!(get(&chain, &allocated(&addresses[1])).await.0, 404);
    let upgrade = json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}});
    let (_, upgraded) = call(&chain, "PATCH", &path, Some(&upgrade)).await;
    assert_eq!(upgraded["spec"]["clusterIPs"].as_array().unwrap().len(), 2, "{upgraded}");
    assert_eq!(upgraded["spec"]["clusterIP"], addresses[0]);
}

#[tokio::test]
async fn service_cidr_adds_a_range() {
    let (chain, _store) = server().await;
    let fixed = service(json!({"clusterIP": "10.9.0.7"}));
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(call(&chain, "POST", services, Some(&fixed)).await.0, 422);
    let cidr = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.9.0.0/24"]}});
    assert_eq!(call(&chain, "POST", "/apis/networking.k8s.io/v1/servicecidrs", Some(&cidr)).await.0, 201);
    let (code, created) = call(&chain, "POST", services, Some(&fixed)).await;
    assert_eq!((code, &created["spec"]["clusterIPs"]), (201, &json!(["10.9.0.7"])), "{created}");
}

#[tokio::test]
async fn node_port_follows_the_name_of_its_port() {
    let (chain, _store) = server().await;
    let services = "/api/v1/namespaces/default/services";
    let mut service = service(json!({"type": "NodePort"}));
    service["spec"]["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let (_, created) = call(&chain, "POST", services, Some(&service)).await;
    service["spec"]["ports"] = json!([{"name": "b", "port": 80}, {"name": "a", "port": 82}]);
    let (code, replaced) = call(&chain, "PUT", &format!("{services}/s"), Some(&service)).await;
    let port = |service: &Value, index: usize| service["spec"]["ports"][index]["nodePort"].clone();
    assert_eq!(code, 200, "{replaced}");
    assert_eq!((port(&replaced, 0), port(&replaced, 1)), (port(&created, 1), port(&created, 0)));
}

#[tokio::test]
async fn fields_of_later_transitions_are_rejected_early() {
    let (chain, _store) = server().await;
    let container = json!([{"name": "c", "image": "i"}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": container}});
    for (collection, kind, spec, why) in [
        (
            "/api/v1/namespaces/default/pods",
            "Pod",
            json!({"containers": container, "ephemeralContainers": [{"name": "e", "image": "i"}]}),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            "Job",
            json!({"template": template, "managedBy": "me"}),
            "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "CronJob",
            json!({"schedule": "* * * * *", "timeZone": "Europe/Atlantis", "jobTemplate": {"spec": {"template": template}}}),
            "spec.timeZone: Invalid value: \"Europe/Atlantis\": unknown time zone Europe/Atlantis",
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            "NetworkPolicy",
            json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16"]}}]}]}),
            "spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
        ),
    ] {
        let version = collection.split('/').skip(1).take_while(|part| *part != "namespaces");
        let version: Vec<&str> = version.filter(|part| !matches!(*part, "api" | "apis")).collect();
        let group = version
            .first()
            .filter(|_| version.len() > 1)
            .map_or_else(String::new, |group| format!(".{group}"));
        let object =
            json!({"apiVersion": version.join("/"), "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let message = format!("{kind}{group} \"x\" is invalid: {why}");
        refused(&chain, "POST", collection, Some(&object), 422, &message).await;
    }
}

#[tokio::test]
async fn node_cidr_and_priority_value_are_immutable() {
    let (chain, _store) = server().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "10.1.0.0/24"}});
    let (_, node) = call(&chain, "POST", "/api/v1/nodes", Some(&node)).await;
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 5});
    create(&chain, classes, &class).await;
    let (_, patched) =
        call(&chain, "PATCH", &format!("{classes}/p"), Some(&json!({"description": "d"}))).await;
    assert_eq!((&patched["description"], &patched["metadata"]["generation"]), (&json!("d"), &json!(1)));
}

#[tokio::test]
async fn service_keeps_node_ports_while_needed() {
    let (chain, _store) = server().await;
    let services = "/api/v1/namespaces/default/services";
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let (_, created) = call(&chain, "POST", services, Some(&service(local))).await;
    let health = created["spec"]["healthCheckNodePort"].as_u64().unwrap();
    assert!((30000..=32767).contains(&health), "{created}");
    let mut other = service(json!({"type": "NodePort"}));
    (other["metadata"]["name"], other["spec"]["ports"][0]["nodePort"]) = ("o".into(), health.into());
    let taken = format!(
        "Service \"o\" is invalid: spec.ports[0].nodePort: Invalid value: {health}: provided port is already allocated"
    );
    refused(&chain, "POST", services, Some(&other), 422, &taken).await;
    // An ExternalName service has no ports allocated, and keeps externalName when its type changes back.
    let outside = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let (_, outside) = call(&chain, "PATCH", &format!("{services}/s"), Some(&outside)).await;
    let gone =
        ["internalTrafficPolicy", "clusterIP", "healthCheckNodePort"].map(|field| outside["spec"].get(field));
    assert_eq!(gone, [None; 3], "{outside}");
    assert_eq!(call(&chain, "POST", services, Some(&other)).await.0, 201, "its ports were given back");
    let inside = json!({"spec": {"type": "ClusterIP"}});
    let (_, inside) = call(&chain, "PATCH", &format!("{services}/s"), Some(&inside)).await;
    assert_eq!(inside["spec"]["externalName"], "a.b", "{inside}");
}

#[tokio::test]
async fn deployment_status_update_keeps_generation() {
    let (chain, _store) = server().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    create(&chain, deployments, &deployment).await;
    let item = format!("{deployments}/d");
    let annotated = |value: &str| json!({"metadata": {"annotations": {"x": value}}});
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    let (_, changed) = call(&chain, "PATCH", &item, Some(&annotated("1"))).await;
    assert_eq!(generation(&changed), 2, "an annotation is work for its controller");
    let (_, said) = call(&chain, "PATCH", &format!("{item}/status"), Some(&annotated("2"))).await;
    assert_eq!((generation(&said), &said["metadata"]["annotations"]["x"]), (json!(2), &json!("2")));
}

#[tokio::test]
async fn additional_printer_columns_print_their_paths() {
    let (chain, _store) = server().await;
    let columns = |paths: &[(&str, &str)]| -> Value {
        let column = |(name, path): &(&str, &str)| json!({"name": name, "type": "string", "jsonPath": path});
        paths.iter().map(column).collect::<Vec<_>>().into()
    };
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    for (group, paths) in [
        // Columns of client-written fields skip managedFields; other columns still work.
        (
            "a.example.com",
            columns(&[("Size", ".spec.size"), ("Ready", ".status.conditions[?(@.type==\"Ready\")].status")]),
        ),
        (
            "b.example.com",
            columns(&[("Size", ".spec.size"), ("Manager", ".metadata.managedFields[0].manager")]),
        ),
        ("c.example.com", columns(&[("Size", ".spec.size"), ("Version", ".metadata.resourceVersion")])),
    ] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema,
                    "additionalPrinterColumns": paths}],
            },
        });
        create(&chain, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
        let things = format!("/apis/{group}/v1/things");
        let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "x"},
            "spec": {"size": 7}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let version = create(&chain, &format!("{things}?fieldManager=me"), &thing).await;
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        for path in [things.clone(), format!("{things}/x")] {
            let (_, _, body) = whole(ask(&chain, "GET", &path, &table, "").await).await;
            let shown: Value = serde_json::from_slice(&body).unwrap();
            let last = match group {
                "a.example.com" => "True",
                "b.example.com" => "me",
                _ => version.as_str(),
            };
            assert_eq!(shown["rows"][0]["cells"], json!(["x", "7", last]), "{path}");
        }
    }
}

#[tokio::test]
async fn new_event_omits_empty_core_fields() {
    let (chain, _store) = server().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reportingComponent": "",
        "reportingInstance": ""});
    create(&chain, "/api/v1/namespaces/default/events", &event).await;
    let (_, new) = get(&chain, "/apis/events.k8s.io/v1/namespaces/default/events/e").await;
    assert_eq!((new.get("reportingController"), new.get("reportingInstance")), (None, None), "{new}");
}

#[tokio::test]
async fn allocated_cluster_ip_has_no_owner() {
    let (chain, _store) = server().await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": "", "ports": [{"port": 80}]}});
    create(&chain, services, &service).await;
    let owned = |service: &Value| service["metadata"]["managedFields"].to_string().contains("f:clusterIP\"");
    let (_, created) = get(&chain, &format!("{services}/s")).await;
    let address = created["spec"]["clusterIP"].clone();
    assert!(!owned(&created) && address != "", "{created}");
    let cleared = json!({"spec": {"clusterIP": ""}});
    let (code, patched) = call(&chain, "PATCH", &format!("{services}/s"), Some(&cleared)).await;
    assert_eq!((code, &patched["spec"]["clusterIP"]), (200, &address), "it keeps its address");
    assert!(!owned(&patched), "{patched}");
}
