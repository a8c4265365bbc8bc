//! StatefulSets and DaemonSets.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    fixture::{Cluster, template},
    support::eventually,
};

fn set(name: &str, replicas: i32, change: Value) -> Value {
    let mut spec = json!({"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
        "template": template(name, "local/one")});
    for (key, value) in change.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn is_done(set: &StatefulSet) -> bool {
    let (status, wanted) = (set.status.clone().unwrap_or_default(), set.spec.replicas.unwrap());
    status.observed_generation == set.metadata.generation
        && status.replicas == wanted
        && status.ready_replicas.unwrap_or(0) == wanted
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.current_revision == status.update_revision
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn pods_have_names_labels_and_order() {
    let cluster = Cluster::new().await;
    cluster.create::<StatefulSet>(set("db", 3, json!({}))).await;
    let db = cluster.wait("db", is_done).await;
    let pods = cluster.pods("app=db").await;
    assert_eq!(names(&pods), ["db-0", "db-1", "db-2"]);
    let revision = db.status.unwrap().current_revision.unwrap();
    for (ordinal, pod) in pods.iter().enumerate() {
        let labels = pod.labels();
        assert_eq!(labels["apps.kubernetes.io/pod-index"], ordinal.to_string());
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], pod.name_any());
        assert_eq!(labels["controller-revision-hash"], revision);
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!((spec.hostname.clone(), spec.subdomain.as_deref()), (Some(pod.name_any()), Some("db")));
    }
    cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for_pods("app=db", |pods| names(pods) == ["db-0"]).await;
}

#[tokio::test]
async fn rolling_update_partition_and_rollback_use_revisions() {
    let cluster = Cluster::new().await;
    cluster.create::<StatefulSet>(set("db", 3, json!({}))).await;
    let first = cluster.wait("db", is_done).await.status.unwrap().current_revision.unwrap();
    let mut canary = image("local/two");
    canary["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    cluster.patch::<StatefulSet>("db", canary).await;
    let image_of = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    cluster
        .wait_for_pods("app=db", |pods| {
            pods.iter().map(image_of).collect::<Vec<_>>() == ["local/one", "local/one", "local/two"]
                && pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none())
        })
        .await;
    let db =
        cluster.wait::<StatefulSet>("db", |db| db.status.as_ref().unwrap().updated_replicas == Some(1)).await;
    assert_eq!(db.status.unwrap().current_revision.as_ref(), Some(&first));
    let all = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    cluster.patch::<StatefulSet>("db", all).await;
    let db = cluster.wait::<StatefulSet>("db", is_done).await;
    assert_ne!(db.status.unwrap().current_revision.as_ref(), Some(&first));
    cluster.patch::<StatefulSet>("db", image("local/one")).await;
    let back = |db: &StatefulSet| {
        is_done(db) && db.status.as_ref().unwrap().current_revision.as_ref() == Some(&first)
    };
    cluster.wait("db", back).await;
    let revisions = cluster.api::<ControllerRevision>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(revisions.len(), 2, "the old revision is reused");
    assert_eq!(revisions.iter().map(|revision| revision.revision.unwrap()).max(), Some(3));
}

#[tokio::test]
async fn claims_are_made_and_kept_or_deleted_by_the_policy() {
    let cluster = Cluster::without("kube-scheduler").await.with_node("node-1").await;
    let change = json!({"podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]});
    cluster.create::<StatefulSet>(set("db", 2, change)).await;
    cluster.wait_for_pods("app=db", |pods| pods.len() == 2).await;
    let claim = cluster.wait::<PersistentVolumeClaim>("data-db-1", |_| true).await;
    assert_eq!(claim.labels()["app"], "db");
    let pods = cluster.pods("app=db").await;
    let volumes = pods[0].spec.as_ref().unwrap().volumes.clone().unwrap();
    assert!(volumes.iter().any(|volume| {
        volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == "data-db-0")
    }));
    cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    eventually("the claim of the pod that went", || async {
        claims.get_opt("data-db-1").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(claims.get_opt("data-db-0").await.unwrap().is_some());
}

#[tokio::test]
async fn pod_waits_until_the_claim_of_its_predecessor_is_gone() {
    // Without garbage collection the claim that goes with a scaled-down pod stays until the test deletes it.
    let cluster = Cluster::without("garbage-collector-controller").await;
    let change = json!({"podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]});
    cluster.create::<StatefulSet>(set("db", 2, change)).await;
    cluster.wait_for_pods("app=db", |pods| pods.len() == 2).await;
    let old = cluster.wait::<PersistentVolumeClaim>("data-db-1", |_| true).await;
    cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    cluster.wait_for_pods("app=db", |pods| names(pods) == ["db-0"]).await;
    let is_of_pod =
        |claim: &PersistentVolumeClaim| claim.owner_references().iter().any(|owner| owner.kind == "Pod");
    cluster.wait("data-db-1", is_of_pod).await;
    cluster.patch::<StatefulSet>("db", json!({"spec": {"replicas": 2}})).await;
    let has_observed =
        |db: &StatefulSet| db.status.as_ref().unwrap().observed_generation == db.metadata.generation;
    cluster.wait("db", has_observed).await;
    assert_eq!(names(&cluster.pods("app=db").await), ["db-0"], "its claim is about to be deleted");
    cluster.api::<PersistentVolumeClaim>().delete("data-db-1", &DeleteParams::default()).await.unwrap();
    cluster.wait_for_pods("app=db", |pods| pods.len() == 2).await;
    let new = cluster.wait::<PersistentVolumeClaim>("data-db-1", |_| true).await;
    assert_ne!(new.uid(), old.uid());
    assert!(!is_of_pod(&new));
}

#[tokio::test]
async fn adopted_pod_gets_the_labels_of_its_identity() {
    let cluster = Cluster::new().await;
    let mut pod = template("db", "local/one");
    pod["metadata"]["name"] = json!("db-0");
    cluster.create::<Pod>(pod).await;
    cluster.create::<StatefulSet>(set("db", 1, json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    let has_name =
        |pod: &Pod| pod.labels().get("statefulset.kubernetes.io/pod-name").is_some_and(|name| name == "db-0");
    cluster.wait("db-0", has_name).await;
    assert_eq!(cluster.event("db", "SuccessfulUpdate").await, "update Pod db-0 in StatefulSet db successful");
}

#[tokio::test]
async fn daemons_run_on_every_node_and_are_updated() {
    let cluster = Cluster::new().await.with_node("node-2").await;
    let daemon = json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}},
        "template": template("agent", "local/one")}});
    cluster.create::<DaemonSet>(daemon).await;
    let is_done = |wanted: i32| {
        move |set: &DaemonSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && status.desired_number_scheduled == wanted
                && status.number_ready == wanted
                && status.number_available == Some(wanted)
                && status.updated_number_scheduled == Some(wanted)
        }
    };
    cluster.wait("agent", is_done(2)).await;
    let cluster = cluster.with_node("node-3").await;
    cluster.wait("agent", is_done(3)).await;
    let nodes: std::collections::BTreeSet<String> = cluster
        .pods("app=agent")
        .await
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().node_name.clone().unwrap())
        .collect();
    assert_eq!(nodes.len(), 3);
    cluster.patch::<DaemonSet>("agent", image("local/two")).await;
    cluster
        .wait_for_pods("app=agent", |pods| {
            pods.len() == 3
                && pods
                    .iter()
                    .all(|pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("local/two"))
        })
        .await;
    cluster.wait("agent", is_done(3)).await;
}
