//! What single kinds do that no schema says.

use serde_json::{Value, json};

use crate::{
    refused,
    support::{ask, call, create, get, server, whole},
};

#[tokio::test]
async fn what_is_left_out_is_filled_in_where_it_is_first_answered() {
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
async fn a_label_of_an_endpoint_slice_is_part_of_what_is_wanted() {
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
async fn an_event_of_the_new_api_is_replaced_without_a_trace() {
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
    // The old API asks nothing of an event's name.
    let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "Any_Name"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    create(&chain, "/api/v1/namespaces/default/events", &old).await;
}

#[tokio::test]
async fn kinds_say_in_their_own_words_which_fields_they_are_selected_by() {
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
async fn policies_say_what_they_are_about() {
    let (chain, _store) = server().await;
    let of = "/apis/admissionregistration.k8s.io/v1";
    let object = |kind: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}});
    let message = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x\" is invalid: [spec.matchConstraints: \
        Required value, spec.validations: Required value: validations or auditAnnotations must contain at least one \
        item, spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]";
    let policies = format!("{of}/validatingadmissionpolicies");
    refused(&chain, "POST", &policies, Some(&object("ValidatingAdmissionPolicy")), 422, message).await;
    let message = "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"x\" is invalid: [spec.policyName: \
        Required value, spec.validationActions: Required value: at least one validation action is required]";
    let bindings = format!("{of}/validatingadmissionpolicybindings");
    refused(&chain, "POST", &bindings, Some(&object("ValidatingAdmissionPolicyBinding")), 422, message).await;
}
