//! Disruption budgets, taints and volumes.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

use crate::{
    fixture::{Cluster, template},
    support::eventually,
};

fn allowed(budget: &PodDisruptionBudget) -> Option<i32> {
    let status = budget.status.as_ref()?;
    status.disruptions_allowed.filter(|_| status.observed_generation == budget.metadata.generation)
}

#[tokio::test]
async fn eviction_honours_the_budget() {
    let cluster = Cluster::new().await;
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "local/pause")}});
    cluster.create::<Deployment>(web).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1,
        "selector": {"matchLabels": {"app": "web"}}}});
    cluster.create::<PodDisruptionBudget>(budget).await;
    let budget = cluster.wait::<PodDisruptionBudget>("web", |budget| allowed(budget) == Some(1)).await;
    let status = budget.status.unwrap();
    assert_eq!(
        (status.expected_pods, status.current_healthy, status.desired_healthy),
        (Some(2), Some(2), Some(1))
    );
    assert_eq!(status.conditions.unwrap()[0].reason, "SufficientPods");
    let strict = json!({"spec": {"maxUnavailable": 0}});
    cluster.patch::<PodDisruptionBudget>("web", strict).await;
    cluster.wait::<PodDisruptionBudget>("web", |budget| allowed(budget) == Some(0)).await;
    let pods = cluster.pods("app=web").await;
    let victim = pods[0].name_any();
    let refused = cluster.api::<Pod>().evict(&victim, &EvictParams::default()).await.unwrap_err();
    assert!(
        refused.to_string().contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
    cluster.patch::<PodDisruptionBudget>("web", json!({"spec": {"maxUnavailable": 1}})).await;
    cluster.wait::<PodDisruptionBudget>("web", |budget| allowed(budget) == Some(1)).await;
    cluster.api::<Pod>().evict(&victim, &EvictParams::default()).await.unwrap();
    cluster
        .wait_for_pods("app=web", |pods| pods.len() == 2 && pods.iter().all(|pod| pod.name_any() != victim))
        .await;
}

#[tokio::test]
async fn cordon_shows_as_a_taint_and_no_execute_drives_pods_out() {
    let cluster = Cluster::new().await.with_node("node-2").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let patch = |change| async {
        nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(change)).await.unwrap()
    };
    let pinned = json!({"metadata": {"name": "pinned"}, "spec": {"nodeName": "node-1",
        "containers": [{"name": "main", "image": "local/pause"}], "terminationGracePeriodSeconds": 1}});
    cluster.create::<Pod>(pinned).await;
    patch(json!({"spec": {"unschedulable": true}})).await;
    eventually("the taint", || async {
        let node = nodes.get("node-1").await.unwrap();
        let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
        taints.iter().any(|taint| taint.key == "node.kubernetes.io/unschedulable").then_some(())
    })
    .await;
    assert!(cluster.api::<Pod>().get_opt("pinned").await.unwrap().is_some());
    patch(json!({"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}})).await;
    eventually("no pod", || async {
        cluster.api::<Pod>().get_opt("pinned").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(
        cluster.event("pinned", "TaintManagerEviction").await,
        "Marking for deletion Pod default/pinned"
    );
}

#[tokio::test]
async fn budget_counts_the_scale_of_a_custom_controller() {
    let cluster = Cluster::new().await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
    let definition = |plural: &str, kind: &str, subresources: Value| {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": [{"name": "v1",
            "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": subresources}]}})
    };
    let scale =
        json!({"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for definition in [definition("fleets", "Fleet", scale), definition("herds", "Herd", json!({}))] {
        let definition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    for (kind, name) in [("Fleet", "fleet"), ("Herd", "herd")] {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
        let owners: Api<DynamicObject> = Api::default_namespaced_with(cluster.client.clone(), &kind);
        let owner = DynamicObject::new(name, &kind).data(json!({"spec": {"replicas": 5}}));
        let owner = owners.create(&PostParams::default(), &owner).await.unwrap();
        for number in 0..2 {
            let pod = json!({"metadata": {"name": format!("{name}-{number}"), "labels": {"app": name},
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": kind.kind, "name": name,
                    "uid": owner.metadata.uid, "controller": true}]},
                "spec": {"containers": [{"name": "main", "image": "local/pause"}]}});
            cluster.create::<Pod>(pod).await;
        }
        let budget = json!({"metadata": {"name": name}, "spec": {"maxUnavailable": "40%",
            "selector": {"matchLabels": {"app": name}}}});
        cluster.create::<PodDisruptionBudget>(budget).await;
    }
    let status = |budget: &PodDisruptionBudget| budget.status.clone().unwrap_or_default();
    let budget = cluster
        .wait::<PodDisruptionBudget>("fleet", |budget| {
            let status = status(budget);
            (status.expected_pods, status.current_healthy) == (Some(5), Some(2))
        })
        .await;
    assert_eq!((status(&budget).desired_healthy, status(&budget).disruptions_allowed), (Some(3), Some(0)));
    let failed = cluster
        .wait::<PodDisruptionBudget>("herd", |budget| {
            status(budget).conditions.iter().flatten().any(|condition| condition.reason == "SyncFailed")
        })
        .await;
    let message = &status(&failed).conditions.unwrap()[0].message;
    assert_eq!(message, "herds.example.com does not implement the scale subresource");
}

#[tokio::test]
async fn claims_are_bound_to_volumes_and_released() {
    let cluster = Cluster::new().await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    for (name, size) in [("large", "5Gi"), ("small", "2Gi")] {
        let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "hostPath": {"path": "/tmp/x"}}});
        volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    }
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual", "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    let phase =
        |claim: &PersistentVolumeClaim| claim.status.clone().unwrap_or_default().phase.unwrap_or_default();
    let claim = cluster.wait::<PersistentVolumeClaim>("data", |claim| phase(claim) == "Bound").await;
    assert_eq!(claim.spec.unwrap().volume_name.as_deref(), Some("small"));
    assert!(
        claim.metadata.finalizers.unwrap_or_default().contains(&"kubernetes.io/pvc-protection".to_owned())
    );
    let unused = |claim: &PersistentVolumeClaim, status: &str, reason: &str| {
        let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut found = conditions.filter(|condition| condition.type_ == "Unused");
        found.any(|found| found.status == status && found.reason.as_deref() == Some(reason))
    };
    cluster.wait("data", |claim| unused(claim, "True", "NoPodsUsingPVC")).await;
    let volume_phase = |name: &'static str, wanted: &'static str| {
        let volumes = volumes.clone();
        async move {
            eventually(wanted, || async {
                let volume = volumes.get(name).await.unwrap();
                (volume.status.unwrap_or_default().phase.as_deref() == Some(wanted)).then_some(())
            })
            .await;
        }
    };
    volume_phase("small", "Bound").await;
    volume_phase("large", "Available").await;
    let user = json!({"metadata": {"name": "user"}, "spec": {"containers": [{"name": "main", "image": "local/pause"}],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.create::<Pod>(user).await;
    cluster.wait::<Pod>("user", |pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running")).await;
    cluster.wait("data", |claim| unused(claim, "False", "PodUsingPVC")).await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    cluster.wait::<PersistentVolumeClaim>("data", |claim| claim.metadata.deletion_timestamp.is_some()).await;
    cluster.api::<Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    eventually("no claim", || async { claims.get_opt("data").await.unwrap().is_none().then_some(()) }).await;
    volume_phase("small", "Released").await;
}

#[tokio::test]
async fn local_volumes_are_made_where_the_pod_goes() {
    let cluster = Cluster::without("local-path-provisioner").await.with_node("node-1").await;
    let options = orlop_controllers::Options {
        local_volumes: Some("/tmp/orlop-volumes-of-a-test".into()),
        ..orlop_controllers::Options::default()
    };
    let client = cluster.client.clone();
    let provisioner = tokio::spawn(async move {
        orlop_controllers::run(orlop_test::for_controllers(client), &["local-path-provisioner"], options)
            .await;
    });
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 1, "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "local/pause"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    cluster.create::<StatefulSet>(set).await;
    cluster
        .wait::<StatefulSet>("db", |db| {
            db.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1))
        })
        .await;
    let claim = cluster.api::<PersistentVolumeClaim>().get("data-db-0").await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let volume = volumes.get(&claim.spec.unwrap().volume_name.unwrap()).await.unwrap().spec.unwrap();
    assert!(volume.host_path.unwrap().path.starts_with("/tmp/orlop-volumes-of-a-test/pvc-"));
    assert_eq!(volume.storage_class_name.as_deref(), Some("local-path"));
    provisioner.abort();
}

#[tokio::test]
async fn volume_that_nobody_deletes_fails() {
    let cluster = Cluster::empty().await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let volume = json!({"metadata": {"name": "old"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "hostPath": {"path": "/srv/x"},
        "persistentVolumeReclaimPolicy": "Delete"}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual", "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create::<PersistentVolumeClaim>(claim).await;
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    cluster.wait("data", is_bound).await;
    cluster.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    let status = eventually("a failed volume", || async {
        let status = volumes.get("old").await.unwrap().status.unwrap_or_default();
        (status.phase.as_deref() == Some("Failed")).then_some(status)
    })
    .await;
    assert_eq!(
        status.message.as_deref(),
        Some("error getting deleter volume plugin for volume \"old\": no deletable volume plugin matched")
    );
}

#[tokio::test]
async fn pod_of_two_budgets_is_reported() {
    let cluster = Cluster::empty().await;
    for name in ["one", "two"] {
        let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1,
            "selector": {"matchLabels": {"app": "web"}}}});
        cluster.create::<PodDisruptionBudget>(budget).await;
        cluster.event(name, "NoPods").await;
    }
    let mut pod = template("web", "local/pause");
    pod["metadata"]["name"] = json!("web");
    cluster.create::<Pod>(pod).await;
    let text = cluster.event("web", "MultiplePodDisruptionBudgets").await;
    assert_eq!(
        text,
        "Pod \"default\"/\"web\" matches multiple PodDisruptionBudgets.  Chose \"one\" arbitrarily."
    );
}

#[tokio::test]
async fn toleration_counts_from_when_the_pod_and_the_taint_meet() {
    let cluster = Cluster::new().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let taint = |taints: Value| {
        let (nodes, change) = (nodes.clone(), Patch::Merge(json!({"spec": {"taints": taints}})));
        async move { nodes.patch("node-1", &PatchParams::default(), &change).await.unwrap() }
    };
    // As `kubectl taint` adds it one taint does not say since when it is there; the other says that it is there for long.
    taint(json!([{"key": "new", "effect": "NoExecute"},
        {"key": "old", "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z"}]))
    .await;
    for (name, seconds) in [("short", 2), ("long", 3600)] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "node-1",
            "containers": [{"name": "main", "image": "local/pause"}], "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]}});
        cluster.create::<Pod>(pod).await;
    }
    let created = cluster.wait::<Pod>("short", |_| true).await.metadata.creation_timestamp.unwrap().0;
    assert_eq!(
        cluster.event("short", "TaintManagerEviction").await,
        "Marking for deletion Pod default/short"
    );
    let waited = k8s_openapi::jiff::Timestamp::now().duration_since(created);
    assert!(waited.as_secs_f64() >= 1.9, "evicted after {waited:?}");
    eventually("no pod", || async {
        cluster.api::<Pod>().get_opt("short").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(cluster.wait::<Pod>("long", |_| true).await.metadata.deletion_timestamp.is_none());
    taint(json!([])).await;
    assert_eq!(
        cluster.event("long", "TaintManagerEviction").await,
        "Cancelling deletion of Pod default/long"
    );
}
