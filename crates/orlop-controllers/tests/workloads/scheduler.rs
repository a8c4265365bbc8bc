//! The scheduler.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::Cluster;

fn pod(name: &str, change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "main", "image": "local/pause"}]});
    for (key, value) in change.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

fn cpu(amount: &str) -> Value {
    json!([{"name": "main", "image": "local/pause", "resources": {"requests": {"cpu": amount}}}])
}

fn scheduled(pod: &Pod) -> (String, String) {
    let conditions = pod.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
    found.map(|found| (found.status, found.reason.unwrap_or_default())).unwrap_or_default()
}

#[tokio::test]
async fn pod_waits_says_why_and_is_bound_when_a_node_comes() {
    let cluster = Cluster::empty().await;
    cluster.create::<Pod>(pod("web", json!({}))).await;
    let web = cluster.wait::<Pod>("web", |web| scheduled(web).0 == "False").await;
    assert_eq!(scheduled(&web).1, "Unschedulable");
    assert_eq!(cluster.event("web", "FailedScheduling").await, "no nodes available to schedule pods");
    let cluster = cluster.with_node("node-1").await;
    let web = cluster.wait::<Pod>("web", |web| scheduled(web).0 == "True").await;
    assert_eq!(web.spec.unwrap().node_name.as_deref(), Some("node-1"));
    assert_eq!(cluster.event("web", "Scheduled").await, "Successfully assigned default/web to node-1");
}

#[tokio::test]
async fn resources_selectors_and_taints_are_honoured() {
    let cluster = Cluster::new().await;
    let tainted = json!({"metadata": {"name": "node-2", "labels": {"disk": "ssd"}},
        "spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}});
    let cluster = cluster.with_node_of("node-2", tainted, |_| None).await;
    cluster.create::<Pod>(pod("large", json!({"containers": cpu("9")}))).await;
    // The first attempt may come before node-1 has lost the taint of a node that is not ready.
    let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes \
         are available: 2 Preemption is not helpful for scheduling.";
    cluster.event_with_message("large", "FailedScheduling", message).await;
    let ssd = json!({"nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}]});
    cluster.create::<Pod>(pod("ssd", ssd)).await;
    let ssd = cluster.wait::<Pod>("ssd", |pod| scheduled(pod).0 == "True").await;
    assert_eq!(ssd.spec.unwrap().node_name.as_deref(), Some("node-2"));
}

#[tokio::test]
async fn important_pod_preempts_another() {
    let cluster = Cluster::new().await;
    cluster
        .create::<Pod>(pod("low", json!({"containers": cpu("6"), "terminationGracePeriodSeconds": 1})))
        .await;
    cluster.wait::<Pod>("low", |pod| scheduled(pod).0 == "True").await;
    let high = json!({"containers": cpu("6"), "priorityClassName": "system-cluster-critical"});
    cluster.create::<Pod>(pod("high", high)).await;
    let high = cluster.wait::<Pod>("high", |pod| scheduled(pod).0 == "True").await;
    assert!(cluster.api::<Pod>().get_opt("low").await.unwrap().is_none());
    let preempted = cluster.event("low", "Preempted").await;
    assert_eq!(preempted, format!("Preempted by pod {} on node node-1", high.uid().unwrap()));
}

#[tokio::test]
async fn gated_pods_and_those_of_other_schedulers_are_left_alone() {
    let cluster = Cluster::new().await;
    cluster.create::<Pod>(pod("gated", json!({"schedulingGates": [{"name": "example.com/a"}]}))).await;
    cluster.create::<Pod>(pod("other", json!({"schedulerName": "mine"}))).await;
    cluster.create::<Pod>(pod("ours", json!({}))).await;
    cluster.wait::<Pod>("ours", |pod| scheduled(pod).0 == "True").await;
    for name in ["gated", "other"] {
        let pod = cluster.api::<Pod>().get(name).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name, None, "{name}");
    }
    cluster.patch::<Pod>("gated", json!({"spec": {"schedulingGates": null}})).await;
    cluster.wait::<Pod>("gated", |pod| scheduled(pod).0 == "True").await;
}
