//! HorizontalPodAutoscalers, resource quotas and ephemeral volumes.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{PersistentVolumeClaim, Pod, ResourceQuota},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::fixture::{Cluster, template};

fn deployment(name: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": template(name, "local/pause")}})
}

#[tokio::test]
async fn replicas_are_kept_within_the_limits_without_metrics() {
    let cluster = Cluster::new().await;
    cluster.create::<Deployment>(deployment("web", 1)).await;
    let autoscaler = json!({"metadata": {"name": "web"}, "spec": {"minReplicas": 2, "maxReplicas": 4,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    cluster.create::<HorizontalPodAutoscaler>(autoscaler).await;
    cluster.wait::<Deployment>("web", |web| web.spec.replicas == Some(2)).await;
    let message = cluster.event("web", "SuccessfulRescale").await;
    assert_eq!(message, "New size: 2; reason: Current number of replicas below Spec.MinReplicas");
    let autoscaler = cluster
        .wait::<HorizontalPodAutoscaler>("web", |web| {
            web.status.as_ref().is_some_and(|status| status.desired_replicas == 2)
        })
        .await;
    let conditions = autoscaler.status.unwrap().conditions.unwrap();
    let able = conditions.iter().find(|condition| condition.type_ == "AbleToScale").unwrap();
    assert_eq!((able.status.as_str(), able.reason.as_deref()), ("True", Some("SucceededRescale")));
}

#[tokio::test]
async fn autoscaler_that_cannot_decide_says_why() {
    let cluster = Cluster::new().await;
    cluster.create::<Deployment>(deployment("web", 2)).await;
    let autoscaler = |target: Value| {
        json!({"metadata": {"name": target["name"]}, "spec": {"minReplicas": 1, "maxReplicas": 4, "scaleTargetRef": target,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
    };
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    cluster.create::<HorizontalPodAutoscaler>(autoscaler(web)).await;
    let message = cluster.event("web", "FailedComputeMetricsReplicas").await;
    let begin = "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: \
                 failed to get cpu utilization: unable to get metrics for resource cpu";
    assert!(message.starts_with(begin), "{message}");
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
    let definition = json!({"metadata": {"name": "fleets.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"}, "versions": [{"name": "v1",
        "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"scale":
            {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Fleet"));
    let fleets: Api<DynamicObject> = Api::default_namespaced_with(cluster.client.clone(), &kind);
    let fleet = DynamicObject::new("fleet", &kind).data(json!({"spec": {"replicas": 2}}));
    fleets.create(&PostParams::default(), &fleet).await.unwrap();
    let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "name": "fleet"});
    cluster.create::<HorizontalPodAutoscaler>(autoscaler(fleet)).await;
    assert_eq!(cluster.event("fleet", "SelectorRequired").await, "selector is required");
    let autoscaler = cluster
        .wait::<HorizontalPodAutoscaler>("fleet", |fleet| {
            fleet.status.as_ref().is_some_and(|status| status.current_replicas == Some(2))
        })
        .await;
    let conditions = autoscaler.status.unwrap().conditions.unwrap();
    let active = conditions.iter().find(|condition| condition.type_ == "ScalingActive").unwrap();
    assert_eq!((active.status.as_str(), active.reason.as_deref()), ("False", Some("InvalidSelector")));
}

#[tokio::test]
async fn autoscalers_of_the_same_pods_do_nothing() {
    let cluster = Cluster::new().await;
    cluster.create::<Deployment>(deployment("web", 2)).await;
    cluster
        .wait::<Deployment>("web", |web| web.status.as_ref().and_then(|status| status.replicas) == Some(2))
        .await;
    for name in ["one", "two"] {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let autoscaler = json!({"metadata": {"name": name}, "spec": {"minReplicas": 1, "maxReplicas": 4,
            "scaleTargetRef": target, "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
        cluster.create::<HorizontalPodAutoscaler>(autoscaler).await;
        let reason = if name == "one" { "FailedGetResourceMetric" } else { "AmbiguousSelector" };
        let autoscaler = cluster
            .wait::<HorizontalPodAutoscaler>(name, |autoscaler| {
                let status = autoscaler.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
                conditions.clone().any(|condition| condition.reason.as_deref() == Some(reason))
            })
            .await;
        assert_eq!(autoscaler.status.unwrap().current_replicas, Some(2));
    }
    let message = cluster.event("two", "AmbiguousSelector").await;
    assert_eq!(
        message,
        "pods by selector app=web are controlled by more than one HPA (e.g. [{one default} {two default}])"
    );
}

#[tokio::test]
async fn quota_status_follows_usage() {
    let cluster = Cluster::new().await;
    let hard = json!({"pods": "10", "requests.cpu": "4", "count/deployments.apps": "5", "configmaps": "9"});
    cluster.create::<ResourceQuota>(json!({"metadata": {"name": "all"}, "spec": {"hard": hard}})).await;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "250m"}});
    cluster.create::<Deployment>(web).await;
    let used = |quota: &ResourceQuota, name: &str| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
        used.and_then(|used| used.get(name)).map(|quantity| quantity.0.clone()).unwrap_or_default()
    };
    let quota = cluster.wait::<ResourceQuota>("all", |quota| used(quota, "pods") == "2").await;
    assert_eq!(used(&quota, "requests.cpu"), "500m");
    assert_eq!(used(&quota, "count/deployments.apps"), "1");
    cluster.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
    cluster.wait::<ResourceQuota>("all", |quota| used(quota, "pods") == "0").await;
}

#[tokio::test]
async fn ephemeral_volume_has_a_claim_that_its_pod_owns() {
    let cluster = Cluster::new().await;
    let claim =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let pod = json!({"metadata": {"name": "scratch"}, "spec": {"containers": [{"name": "main", "image": "local/pause"}],
        "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": claim}}]}});
    cluster.create::<Pod>(pod).await;
    let claim = cluster.wait::<PersistentVolumeClaim>("scratch-data", |_| true).await;
    assert_eq!(claim.owner_references()[0].name, "scratch");
    let waits = cluster.event("scratch", "FailedScheduling").await;
    assert!(
        waits.contains("unbound immediate PersistentVolumeClaims")
            || waits.contains("waiting for ephemeral volume controller to create"),
        "{waits}"
    );
}

#[tokio::test]
async fn claim_of_somebody_else_is_not_taken_for_an_ephemeral_volume() {
    let cluster = Cluster::new().await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "scratch-data"}, "spec": spec.clone()});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    let pod = json!({"metadata": {"name": "scratch"}, "spec": {"containers": [{"name": "main", "image": "local/pause"}],
        "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]}});
    cluster.create::<Pod>(pod).await;
    let refused = "PVC default/scratch-data was not created for pod default/scratch (pod is not owner)";
    assert_eq!(cluster.event("scratch", "FailedBinding").await, format!("ephemeral volume data: {refused}"));
    let waits = cluster.event("scratch", "FailedScheduling").await;
    assert!(waits.contains(refused), "{waits}");
}
