//! Built-in kinds that are served in two versions or groups.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{Events, apply, call, create, get, server};

const FIRST: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const SECOND: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const OLD: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn target() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"})
}

#[tokio::test]
async fn autoscaler_v2_fields_survive_a_v1_round_trip() {
    let (chain, _store) = server().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let metrics = json!([
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
        {"type": "ContainerResource", "containerResource":
            {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "Pods", "pods": {"metric": {"name": "qps", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "Object", "object": {"describedObject": service, "metric": {"name": "hits"},
            "target": {"type": "Value", "value": "5"}}},
        {"type": "Object", "object": {"describedObject": service, "metric": {"name": "hits"},
            "target": {"type": "AverageValue", "averageValue": "5"}}},
        {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"x": "y"}}},
            "target": {"type": "AverageValue", "averageValue": "30"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 55}}},
    ]);
    let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "annotations": {"x": "y"}},
        "spec": {"maxReplicas": 5, "scaleTargetRef": target(), "metrics": metrics,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}});
    create(&chain, SECOND, &object).await;
    let status = json!({"status": {"currentReplicas": 1, "desiredReplicas": 2,
        "currentMetrics": [{"type": "Resource", "resource":
            {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "100m"}}}],
        "conditions": [{"type": "AbleToScale", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    assert_eq!(call(&chain, "PATCH", &format!("{SECOND}/a/status"), Some(&status)).await.0, 200);
    let (_, before) = get(&chain, &format!("{SECOND}/a")).await;

    let (code, first) = get(&chain, &format!("{FIRST}/a")).await;
    assert_eq!(code, 200);
    assert_eq!(first["apiVersion"], "autoscaling/v1");
    assert_eq!(first["spec"]["targetCPUUtilizationPercentage"], 55);
    assert_eq!(first["status"]["currentCPUUtilizationPercentage"], 50);
    let annotations = &first["metadata"]["annotations"];
    let note = |name: &str| -> Value {
        let key = format!("autoscaling.alpha.kubernetes.io/{name}");
        serde_json::from_str(annotations[key].as_str().unwrap()).unwrap()
    };
    assert_eq!(annotations["x"], "y");
    let expected = json!({"type": "Pods", "pods":
        {"metricName": "qps", "targetAverageValue": "10", "selector": {"matchLabels": {"a": "b"}}}});
    assert_eq!(note("metrics")[2], expected);
    assert_eq!(note("conditions")[0]["type"], "AbleToScale");
    assert_eq!(note("behavior")["ScaleDown"]["StabilizationWindowSeconds"], 5);

    // A v1 client that writes back its change preserves everything else.
    let change = json!({"spec": {"maxReplicas": 6}});
    let (code, changed) = call(&chain, "PATCH", &format!("{FIRST}/a"), Some(&change)).await;
    assert_eq!(code, 200, "{changed}");
    let (_, after) = get(&chain, &format!("{SECOND}/a")).await;
    assert_eq!(after["spec"]["maxReplicas"], 6);
    assert_eq!(after["spec"]["metrics"], before["spec"]["metrics"]);
    assert_eq!(after["spec"]["behavior"], before["spec"]["behavior"]);
    assert_eq!(after["status"], before["status"]);
    assert_eq!(after["metadata"]["annotations"], json!({"x": "y"}));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test]
async fn autoscaler_v1_and_v2_are_the_same_object() {
    let (chain, _store) = server().await;
    for (name, share) in [("b", Some(70)), ("c", None)] {
        let mut object = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name}, "spec": {"maxReplicas": 5, "scaleTargetRef": target()}});
        if let Some(share) = share {
            object["spec"]["targetCPUUtilizationPercentage"] = share.into();
        }
        create(&chain, FIRST, &object).await;
        let share = share.unwrap_or(80);
        let (_, second) = get(&chain, &format!("{SECOND}/{name}")).await;
        let cpu = json!([{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}}}]);
        assert_eq!(second["spec"]["metrics"], cpu);
        let (_, first) = get(&chain, &format!("{FIRST}/{name}")).await;
        assert_eq!(first["spec"]["targetCPUUtilizationPercentage"], share);
    }
    let (_, list) = get(&chain, FIRST).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][0]["apiVersion"], "autoscaling/v1");
}

#[tokio::test]
async fn core_and_events_v1_events_are_the_same_object() {
    let (chain, _store) = server().await;
    let mut watch = Events::of(&chain, &format!("{NEW}?watch=1&fieldSelector=regarding.name=q")).await;
    let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "message": "hello",
        "source": {"component": "kubelet", "host": "h"}, "count": 3, "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z"});
    create(&chain, OLD, &old).await;
    let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e2", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "q", "namespace": "default"}, "reason": "R2", "note": "hi",
        "reportingController": "x.io/c", "reportingInstance": "i", "action": "A", "type": "Warning",
        "eventTime": "2026-01-01T00:00:00.000001Z"});
    create(&chain, NEW, &new).await;

    let (_, seen) = get(&chain, &format!("{NEW}/e1")).await;
    let field = |object: &Value, name: &str| object[name].clone();
    assert_eq!(field(&seen, "note"), "hello");
    assert_eq!(seen["regarding"]["name"], "p");
    assert_eq!(seen["deprecatedSource"], json!({"component": "kubelet", "host": "h"}));
    assert_eq!(field(&seen, "deprecatedCount"), 3);
    assert_eq!(field(&seen, "deprecatedLastTimestamp"), "2026-01-01T00:00:01Z");
    let (_, seen) = get(&chain, &format!("{OLD}/e2")).await;
    assert_eq!(field(&seen, "message"), "hi");
    assert_eq!(seen["involvedObject"]["name"], "q");
    assert_eq!(field(&seen, "reportingComponent"), "x.io/c");
    assert_eq!(field(&seen, "source"), json!({}));

    for (path, names) in [
        (format!("{OLD}?fieldSelector=involvedObject.name=q"), Some(vec!["e2"])),
        (format!("{NEW}?fieldSelector=regarding.name=q"), Some(vec!["e2"])),
        (format!("{NEW}?fieldSelector=reportingController=x.io/c"), Some(vec!["e2"])),
        (format!("{OLD}?fieldSelector=reportingComponent=x.io/c"), Some(vec!["e2"])),
        (format!("{OLD}?fieldSelector=source=kubelet"), Some(vec!["e1"])),
        (format!("{NEW}?fieldSelector=reason=R"), Some(vec!["e1"])),
        (format!("{NEW}?fieldSelector=involvedObject.name=q"), None),
        (format!("{NEW}?fieldSelector=source=kubelet"), None),
        (NEW.to_owned(), Some(vec!["e1", "e2"])),
    ] {
        let (code, list) = get(&chain, &path).await;
        let found = list["items"].as_array().map(|items| {
            items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(
            found,
            names.map(|names| names.into_iter().map(str::to_owned).collect()),
            "{path}: {code}"
        );
    }
    let event = watch.next().await.unwrap();
    assert_eq!(support::short(&event), "ADDED e2");
    assert_eq!(event["object"]["regarding"]["name"], "q");
    assert_eq!(call(&chain, "DELETE", &format!("{NEW}/e1"), None).await.0, 200);
    assert_eq!(get(&chain, &format!("{OLD}/e1")).await.0, 404);
}

/// Returns apiVersion and fields of a manager's entry; null without one.
fn owned(object: &Value, manager: &str) -> (Value, Value) {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == manager);
    entry.map_or_else(Default::default, |entry| (entry["apiVersion"].clone(), entry["fieldsV1"].clone()))
}

#[tokio::test]
async fn autoscaler_managed_fields_span_versions() {
    let (chain, _store) = server().await;
    let cpu = |share: u32| {
        json!([{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}}}])
    };
    let second = |share: u32| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 5, "scaleTargetRef": target(), "metrics": cpu(share)}})
    };
    assert_eq!(apply(&chain, &format!("{SECOND}/a?fieldManager=new"), &second(50)).await.0, 201);

    // An apply in v1 conflicts with the v2 owner.
    let first = |spec: Value| {
        json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": spec})
    };
    let most = first(json!({"maxReplicas": 9, "scaleTargetRef": target()}));
    let (code, refused) = apply(&chain, &format!("{FIRST}/a?fieldManager=old"), &most).await;
    assert_eq!(code, 409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"new\": .spec.maxReplicas");
    let least = first(json!({"minReplicas": 2, "scaleTargetRef": target(), "maxReplicas": 5}));
    let (code, object) = apply(&chain, &format!("{FIRST}/a?fieldManager=old"), &least).await;
    assert_eq!(code, 200, "{object}");
    let (version, fields) = owned(&object, "old");
    assert_eq!((version, &fields["f:spec"]["f:minReplicas"]), (json!("autoscaling/v1"), &json!({})));
    assert_eq!(owned(&object, "new").0, "autoscaling/v2");

    // An update in one version takes ownership of changed fields from an owner in the other.
    let change = json!({"spec": {"minReplicas": 3, "targetCPUUtilizationPercentage": 70}});
    let (code, _) = call(&chain, "PATCH", &format!("{FIRST}/a?fieldManager=hand"), Some(&change)).await;
    assert_eq!(code, 200);
    let (_, object) = get(&chain, &format!("{SECOND}/a")).await;
    assert_eq!((&object["spec"]["minReplicas"], &object["spec"]["metrics"]), (&json!(3), &cpu(70)));
    assert_eq!(owned(&object, "new").1["f:spec"].get("f:metrics"), None);
    assert_eq!(owned(&object, "old").1["f:spec"].get("f:minReplicas"), None);
    let (version, fields) = owned(&object, "hand");
    assert_eq!(version, "autoscaling/v1");
    assert_eq!(fields, json!({"f:spec": {"f:minReplicas": {}, "f:targetCPUUtilizationPercentage": {}}}));

    // Fields that are no longer applied and have no other owner are removed.
    let again = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"maxReplicas": 5, "scaleTargetRef": target(), "minReplicas": 3}});
    assert_eq!(apply(&chain, &format!("{SECOND}/a?fieldManager=new"), &again).await.0, 200);
    let mut without = again.clone();
    without["metadata"] = json!({"name": "a"});
    without["spec"].as_object_mut().unwrap().remove("minReplicas");
    let (code, object) = apply(&chain, &format!("{SECOND}/a?fieldManager=new"), &without).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(object["metadata"].get("labels"), None);
    assert_eq!(object["spec"]["minReplicas"], 3, "the first version's writer owns it still");
}

#[tokio::test]
async fn event_managed_fields_span_groups() {
    let (chain, _store) = server().await;
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "q", "namespace": "default"}, "reason": "R", "note": "hello",
        "reportingController": "x.io/c", "reportingInstance": "i", "action": "A", "type": "Warning",
        "eventTime": "2026-01-01T00:00:00.000001Z"});
    create(&chain, &format!("{NEW}?fieldManager=new"), &event).await;
    let change = json!({"message": "other", "metadata": {"labels": {"x": "1"}}});
    let (code, object) = call(&chain, "PATCH", &format!("{OLD}/e?fieldManager=old"), Some(&change)).await;
    assert_eq!(code, 200, "{object}");
    let labels = json!({".": {}, "f:x": {}});
    assert_eq!(
        owned(&object, "old"),
        (json!("v1"), json!({"f:message": {}, "f:metadata": {"f:labels": labels}}))
    );
    let (version, fields) = owned(&object, "new");
    assert_eq!((version, fields.get("f:note")), (json!("events.k8s.io/v1"), None));
    assert_eq!(fields["f:regarding"], json!({}));
    // And the other way round.
    let change = json!({"metadata": {"labels": {"x": "2"}}});
    let (code, object) = call(&chain, "PATCH", &format!("{NEW}/e?fieldManager=new"), Some(&change)).await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(owned(&object, "old").1["f:metadata"]["f:labels"], json!({}));
    assert_eq!(owned(&object, "old").1["f:message"], json!({}));
    assert_eq!(owned(&object, "new").1["f:metadata"]["f:labels"], json!({"f:x": {}}));
}
