//! Deployments.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::fixture::{Cluster, template};

const REVISION: &str = "deployment.kubernetes.io/revision";

fn deployment(name: &str, replicas: i32, change: Value) -> Value {
    let mut deployment = json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}}, "template": template(name, "local/one")}});
    for (key, value) in change.as_object().into_iter().flatten() {
        deployment["spec"][key] = value.clone();
    }
    deployment
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

fn is_done(deployment: &Deployment) -> bool {
    let (status, wanted) = (deployment.status.clone().unwrap_or_default(), deployment.spec.replicas);
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
}

fn reason(deployment: &Deployment, type_: &str) -> String {
    let conditions = deployment.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let mut found = conditions.into_iter().filter(|condition| condition.type_.as_deref() == Some(type_));
    found.next().and_then(|condition| condition.reason).unwrap_or_default()
}

async fn sets(cluster: &Cluster) -> Vec<ReplicaSet> {
    let mut sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items;
    sets.sort_by_key(|set| set.annotations().get(REVISION).cloned());
    sets
}

#[tokio::test]
async fn rolling_update_replaces_pods_within_its_limits() {
    let cluster = Cluster::new().await;
    let strategy = json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}});
    cluster.create::<Deployment>(deployment("web", 4, strategy)).await;
    let web = cluster.wait("web", is_done).await;
    assert_eq!(web.annotations().get(REVISION).unwrap(), "1");
    assert_eq!(reason(&web, "Available"), "MinimumReplicasAvailable");
    assert_eq!(reason(&web, "Progressing"), "NewReplicaSetAvailable");
    assert_eq!(web.metadata.generation, Some(1), "the revision is not a change of the spec");
    let first = sets(&cluster).await.remove(0);
    let hash = first.labels().get("pod-template-hash").cloned().unwrap();
    assert_eq!(first.name_any(), format!("web-{hash}"));
    assert_eq!(first.annotations().get("deployment.kubernetes.io/max-replicas").unwrap(), "5");

    cluster.patch::<Deployment>("web", image("local/two")).await;
    let web =
        cluster.wait::<Deployment>("web", |web| is_done(web) && web.metadata.generation == Some(2)).await;
    assert_eq!(web.annotations().get(REVISION).unwrap(), "2");
    let sets = sets(&cluster).await;
    assert_eq!(sets.iter().map(|set| set.spec.replicas.unwrap()).collect::<Vec<_>>(), [0, 4]);
    cluster
        .wait_for_pods("app=web", |pods| {
            pods.len() == 4
                && pods
                    .iter()
                    .all(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("local/two"))
        })
        .await;
    let scaled = cluster.event("web", "ScalingReplicaSet").await;
    assert!(scaled.starts_with("Scaled "), "{scaled}");
}

#[tokio::test]
async fn recreate_never_has_old_and_new_pods_together() {
    let cluster = Cluster::new().await;
    cluster.create::<Deployment>(deployment("web", 3, json!({"strategy": {"type": "Recreate"}}))).await;
    cluster.wait("web", is_done).await;
    cluster.patch::<Deployment>("web", image("local/two")).await;
    loop {
        let pods = cluster.pods("app=web").await;
        let images: std::collections::BTreeSet<String> = pods
            .iter()
            .map(|pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap())
            .collect();
        assert!(images.len() <= 1, "{images:?}");
        if images.contains("local/two") && pods.len() == 3 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    cluster.wait("web", is_done).await;
}

#[tokio::test]
async fn stuck_rollout_times_out_scales_in_proportion_and_rolls_back() {
    let cluster = Cluster::empty()
        .await
        .with_node_of("node-1", json!({}), |pod| {
            let is_bad = pod.spec.as_ref()?.containers[0].image.as_deref() == Some("local/bad");
            is_bad.then(|| json!({"phase": "Pending", "reason": "ErrImagePull"}))
        })
        .await;
    let change = json!({"progressDeadlineSeconds": 2, "revisionHistoryLimit": 1,
        "strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}});
    cluster.create::<Deployment>(deployment("web", 10, change)).await;
    cluster.wait("web", is_done).await;
    cluster.patch::<Deployment>("web", image("local/bad")).await;
    let sizes = |sets: &[ReplicaSet]| sets.iter().map(|set| set.spec.replicas.unwrap()).collect::<Vec<_>>();
    let web = cluster
        .wait::<Deployment>("web", |web| reason(web, "Progressing") == "ProgressDeadlineExceeded")
        .await;
    assert_eq!(reason(&web, "Available"), "MinimumReplicasAvailable");
    assert_eq!(sizes(&sets(&cluster).await), [8, 5]);
    cluster.patch::<Deployment>("web", json!({"spec": {"replicas": 30}})).await;
    crate::support::eventually("20 and 13", || async {
        (sizes(&sets(&cluster).await) == [20, 13]).then_some(())
    })
    .await;
    // kubectl rollout undo writes the old template.
    cluster.patch::<Deployment>("web", image("local/one")).await;
    let web = cluster.wait::<Deployment>("web", |web| is_done(web) && web.spec.replicas == Some(30)).await;
    assert_eq!(web.annotations().get(REVISION).unwrap(), "3");
    assert_eq!(sizes(&sets(&cluster).await), [0, 30]);
}

#[tokio::test]
async fn paused_deployment_only_scales_and_history_is_cut() {
    let cluster = Cluster::new().await;
    cluster.create::<Deployment>(deployment("web", 1, json!({"revisionHistoryLimit": 1}))).await;
    cluster.wait("web", is_done).await;
    cluster.patch::<Deployment>("web", json!({"spec": {"paused": true}})).await;
    cluster.wait::<Deployment>("web", |web| reason(web, "Progressing") == "DeploymentPaused").await;
    let mut change = image("local/two");
    change["spec"]["replicas"] = json!(2);
    cluster.patch::<Deployment>("web", change).await;
    cluster
        .wait::<Deployment>("web", |web| {
            let status = web.status.clone().unwrap_or_default();
            status.available_replicas == Some(2) && status.updated_replicas.is_none()
        })
        .await;
    assert_eq!(sets(&cluster).await.len(), 1);
    cluster.patch::<Deployment>("web", json!({"spec": {"paused": false}})).await;
    cluster
        .wait::<Deployment>("web", |web| {
            is_done(web) && reason(web, "Progressing") == "NewReplicaSetAvailable"
        })
        .await;
    for next in ["local/three", "local/four"] {
        cluster.patch::<Deployment>("web", image(next)).await;
        let wanted = cluster.api::<Deployment>().get("web").await.unwrap().metadata.generation;
        cluster.wait::<Deployment>("web", |web| is_done(web) && web.metadata.generation == wanted).await;
    }
    crate::support::eventually("old sets deleted", || async {
        let sets = sets(&cluster).await;
        (sets.len() == 2).then_some(())
    })
    .await;
}
