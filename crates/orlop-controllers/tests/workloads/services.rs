//! Endpoints and EndpointSlices.

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::{
    fixture::{Cluster, template},
    support::eventually,
};

async fn slices(cluster: &Cluster, service: &str) -> Vec<EndpointSlice> {
    let labels = format!("kubernetes.io/service-name={service}");
    cluster.api::<EndpointSlice>().list(&ListParams::default().labels(&labels)).await.unwrap().items
}

fn addresses(slices: &[EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints.filter(|endpoint| endpoint.conditions.as_ref().unwrap().ready == Some(true)).count()
}

#[tokio::test]
async fn addresses_follow_pods() {
    let cluster = Cluster::new().await;
    let service = json!({"metadata": {"name": "web", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    cluster.create::<Service>(service).await;
    let empty = eventually("an empty slice", || async {
        Some(slices(&cluster, "web").await).filter(|slices| slices.len() == 1)
    })
    .await;
    assert_eq!(addresses(&empty), 0);
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3,
        "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "local/pause")}});
    cluster.create::<ReplicaSet>(set).await;
    let full = eventually("three addresses", || async {
        Some(slices(&cluster, "web").await).filter(|slices| addresses(slices) == 3)
    })
    .await;
    let slice = &full[0];
    assert_eq!(slice.labels()["endpointslice.kubernetes.io/managed-by"], "endpointslice-controller.k8s.io");
    assert_eq!(slice.labels()["team"], "a");
    assert_eq!(slice.owner_references()[0].kind, "Service");
    assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(8080));
    let endpoints = cluster
        .wait::<Endpoints>("web", |endpoints| {
            let subsets = endpoints.subsets.iter().flatten();
            subsets.flat_map(|subset| subset.addresses.iter().flatten()).count() == 3
        })
        .await;
    assert_eq!(endpoints.labels()["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    cluster.patch::<ReplicaSet>("web", json!({"spec": {"replicas": 1}})).await;
    eventually("one address", || async { (addresses(&slices(&cluster, "web").await) == 1).then_some(()) })
        .await;
    cluster.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    eventually("no slices", || async { slices(&cluster, "web").await.is_empty().then_some(()) }).await;
    eventually("no endpoints", || async {
        cluster.api::<Endpoints>().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn endpoints_of_a_service_without_selector_are_mirrored() {
    let cluster = Cluster::empty().await;
    cluster.create::<Service>(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})).await;
    let endpoints = json!({"metadata": {"name": "db"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}],
        "ports": [{"port": 5432}]}]});
    cluster.create::<Endpoints>(endpoints).await;
    let mirrored = eventually("a slice", || async {
        Some(slices(&cluster, "db").await).filter(|slices| addresses(slices) == 1)
    })
    .await;
    assert_eq!(
        mirrored[0].labels()["endpointslice.kubernetes.io/managed-by"],
        "endpointslicemirroring-controller.k8s.io"
    );
    assert_eq!(slices(&cluster, "kubernetes").await.len(), 1, "the API server's own is not mirrored");
    let changed = json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}],
        "ports": [{"port": 5432}]}]});
    cluster.patch::<Endpoints>("db", changed).await;
    eventually("two addresses", || async { (addresses(&slices(&cluster, "db").await) == 2).then_some(()) })
        .await;
    cluster.api::<Endpoints>().delete("db", &DeleteParams::default()).await.unwrap();
    eventually("no slices", || async { slices(&cluster, "db").await.is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn endpoints_go_with_their_service_whoever_wrote_them() {
    let cluster = Cluster::empty().await;
    let endpoints = |name: &str| {
        json!({"metadata": {"name": name}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}],
        "ports": [{"port": 5432}]}]})
    };
    cluster.create::<Endpoints>(endpoints("alone")).await;
    cluster.create::<Service>(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})).await;
    cluster.create::<Endpoints>(endpoints("db")).await;
    eventually("a slice", || async { (addresses(&slices(&cluster, "db").await) == 1).then_some(()) }).await;
    cluster.api::<Service>().delete("db", &DeleteParams::default()).await.unwrap();
    let api = cluster.api::<Endpoints>();
    eventually("no endpoints", || async { api.get_opt("db").await.unwrap().is_none().then_some(()) }).await;
    assert!(api.get_opt("alone").await.unwrap().is_some(), "it never had a service");
}
