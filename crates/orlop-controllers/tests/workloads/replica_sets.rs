//! ReplicaSets and ReplicationControllers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Pod, ReplicationController},
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    fixture::{Cluster, template},
    support::failing,
};

fn set(name: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}}, "template": template(name, "local/pause")}})
}

fn ready(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
}

#[tokio::test]
async fn replicas_follow_the_wanted_number() {
    let cluster = Cluster::new().await;
    cluster.create::<ReplicaSet>(set("web", 3)).await;
    let web: ReplicaSet = cluster.wait("web", |web| ready(web) == 3).await;
    let status = web.status.unwrap();
    assert_eq!(
        (status.replicas, status.available_replicas, status.observed_generation),
        (3, Some(3), Some(1))
    );
    for pod in cluster.pods("app=web").await {
        assert!(pod.name_any().starts_with("web-"), "{}", pod.name_any());
        let owner = &pod.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.controller), ("ReplicaSet", Some(true)));
        assert_eq!(owner.block_owner_deletion, Some(true));
    }
    assert!(cluster.event("web", "SuccessfulCreate").await.starts_with("Created pod: web-"));
    cluster.patch::<ReplicaSet>("web", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for_pods("app=web", |pods| pods.len() == 1).await;
    cluster.wait::<ReplicaSet>("web", |web| web.status.as_ref().unwrap().replicas == 1).await;
    assert!(cluster.event("web", "SuccessfulDelete").await.starts_with("Deleted pod: web-"));
    let victim = cluster.pods("app=web").await[0].name_any();
    cluster.api::<Pod>().delete(&victim, &DeleteParams::default()).await.unwrap();
    cluster
        .wait_for_pods("app=web", |pods| pods.len() == 1 && pods.iter().all(|pod| pod.name_any() != victim))
        .await;
}

#[tokio::test]
async fn many_replicas_are_created_once() {
    let cluster = Cluster::new().await;
    cluster.create::<ReplicaSet>(set("web", 150)).await;
    cluster.wait::<ReplicaSet>("web", |web| ready(web) == 150).await;
    // Surplus pods would have been deleted with this event.
    assert_eq!(cluster.pods("app=web").await.len(), 150);
    let events = cluster.api::<k8s_openapi::api::core::v1::Event>();
    let events = events.list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("SuccessfulDelete")));
}

#[tokio::test]
async fn orphans_are_adopted_and_relabelled_pods_released() {
    let cluster = Cluster::new().await;
    let mut orphan = template("web", "local/pause");
    orphan["metadata"]["name"] = json!("orphan");
    cluster.create::<Pod>(orphan).await;
    cluster.create::<ReplicaSet>(set("web", 1)).await;
    cluster.wait::<Pod>("orphan", |pod| !pod.owner_references().is_empty()).await;
    cluster.wait::<ReplicaSet>("web", |web| ready(web) == 1).await;
    assert_eq!(cluster.pods("app=web").await.len(), 1);
    cluster.patch::<Pod>("orphan", json!({"metadata": {"labels": {"app": "other"}}})).await;
    cluster.wait::<Pod>("orphan", |pod| pod.owner_references().is_empty()).await;
    cluster.wait_for_pods("app=web", |pods| pods.len() == 1).await;
}

#[tokio::test]
async fn failure_to_create_shows_as_a_condition_and_goes_away() {
    const NAME: &str = "replicationcontroller-controller";
    let cluster = Cluster::without(NAME).await.with_node("node-1").await;
    let pods = Arc::new(AtomicUsize::new(0));
    let (client, _) = failing(cluster.client.clone(), move |request| {
        let is_create = request.method() == "POST" && request.uri().path().ends_with("/pods");
        is_create && pods.fetch_add(1, Ordering::Relaxed) >= 2
    });
    let options = orlop_controllers::Options::default();
    let controller = tokio::spawn(async move {
        orlop_controllers::run(orlop_test::for_controllers(client), &[NAME], options).await;
    });
    let mut web = set("web", 3);
    web["spec"]["selector"] = json!({"app": "web"});
    cluster.create::<ReplicationController>(web).await;
    let failure = |web: &ReplicationController| {
        let conditions = web.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure").cloned()
    };
    let web = cluster.wait::<ReplicationController>("web", |web| failure(web).is_some()).await;
    let condition = failure(&web).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("FailedCreate")));
    cluster.patch::<ReplicationController>("web", json!({"spec": {"replicas": 2}})).await;
    cluster.wait::<ReplicationController>("web", |web| failure(web).is_none()).await;
    let message = cluster.event("web", "FailedCreate").await;
    assert!(message.starts_with("Error creating: "), "{message}");
    controller.abort();
}
