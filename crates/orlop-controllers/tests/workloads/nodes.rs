//! Controllers of nodes, bootstrap tokens and attachments.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
    storage::v1::{CSIDriver, VolumeAttachment, VolumeAttributesClass},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use orlop_controllers::NodeRanges;
use serde_json::json;

use crate::{fixture::Cluster, support::eventually};

#[tokio::test]
async fn nodes_get_a_part_of_the_cluster_range_and_a_ttl() {
    let cluster = Cluster::without("node-ipam-controller").await;
    let range = "10.244.0.0/23".parse().unwrap();
    let options = orlop_controllers::Options {
        node_ranges: Some(NodeRanges::new(&[range], 24, 64).unwrap()),
        ..orlop_controllers::Options::default()
    };
    let client = orlop_test::for_controllers(cluster.client.clone());
    let allocator =
        tokio::spawn(async move { orlop_controllers::run(client, &["node-ipam-controller"], options).await });
    let cluster = cluster.with_node("node-1").await.with_node("node-2").await.with_node("node-3").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let ranges = eventually("two ranges", || async {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        let mut ranges: Vec<String> = nodes.into_iter().filter_map(|node| node.spec?.pod_cidr).collect();
        ranges.sort();
        (ranges.len() == 2).then_some(ranges)
    })
    .await;
    assert_eq!(ranges, ["10.244.0.0/24", "10.244.1.0/24"]);
    let ttl = eventually("a ttl", || async {
        nodes.get("node-1").await.unwrap().annotations().get("node.alpha.kubernetes.io/ttl").cloned()
    })
    .await;
    assert_eq!(ttl, "0");
    allocator.abort();
}

#[tokio::test]
async fn older_labels_of_a_node_follow_the_newer_ones() {
    let labels = json!({"metadata": {"name": "node-1",
        "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}}});
    let cluster = Cluster::empty().await.with_node_of("node-1", labels, |_| None).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    eventually("the labels", || async {
        let node = nodes.get("node-1").await.unwrap();
        let label = |name: &str| node.labels().get(name).cloned().unwrap_or_default();
        let found = (label("beta.kubernetes.io/os"), label("beta.kubernetes.io/arch"));
        (found == ("linux".to_owned(), "arm64".to_owned())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn cluster_info_is_signed_and_expired_tokens_go() {
    let cluster = Cluster::empty().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-public");
    let info: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": "apiVersion: v1\nkind: Config\n"}}))
    .unwrap();
    maps.create(&PostParams::default(), &info).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "kube-system");
    let token = |id: &str, expiration: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "expiration": expiration,
                "usage-bootstrap-signing": "true"}}))
        .unwrap()
    };
    secrets.create(&PostParams::default(), &token("abcdef", "2999-01-01T00:00:00Z")).await.unwrap();
    let signature = eventually("a signature", || async {
        maps.get("cluster-info").await.unwrap().data.unwrap().get("jws-kubeconfig-abcdef").cloned()
    })
    .await;
    assert!(signature.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9.."), "{signature}");
    secrets.create(&PostParams::default(), &token("ghijkl", "2020-01-01T00:00:00Z")).await.unwrap();
    eventually("no expired token", || async {
        secrets.get_opt("bootstrap-token-ghijkl").await.unwrap().is_none().then_some(())
    })
    .await;
    secrets.delete("bootstrap-token-abcdef", &DeleteParams::default()).await.unwrap();
    eventually("no signature", || async {
        let data = maps.get("cluster-info").await.unwrap().data.unwrap();
        (data.len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn class_of_attributes_stays_while_a_claim_uses_it() {
    let cluster = Cluster::empty().await;
    let classes: Api<VolumeAttributesClass> = Api::all(cluster.client.clone());
    let class: VolumeAttributesClass =
        serde_json::from_value(json!({"metadata": {"name": "fast"}, "driverName": "d.example.com",
            "parameters": {"iops": "1"}}))
        .unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    cluster
        .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "fast", "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    eventually("a finalizer", || async {
        (!classes.get("fast").await.unwrap().finalizers().is_empty()).then_some(())
    })
    .await;
    classes.delete("fast", &DeleteParams::default()).await.unwrap();
    assert!(classes.get("fast").await.unwrap().metadata.deletion_timestamp.is_some());
    cluster.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    eventually("no class", || async { classes.get_opt("fast").await.unwrap().is_none().then_some(()) }).await;
}

#[tokio::test]
async fn volumes_of_csi_drivers_are_attached_while_a_pod_needs_them() {
    let cluster = Cluster::new().await;
    let drivers: Api<CSIDriver> = Api::all(cluster.client.clone());
    let driver: CSIDriver =
        serde_json::from_value(json!({"metadata": {"name": "d.example.com"}, "spec": {}})).unwrap();
    drivers.create(&PostParams::default(), &driver).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "csi": {"driver": "d.example.com", "volumeHandle": "h"}}}))
    .unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    cluster
        .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}}}}))
        .await;
    cluster
        .create::<Pod>(json!({"metadata": {"name": "user"}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "local/pause"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}))
        .await;
    let attachments: Api<VolumeAttachment> = Api::all(cluster.client.clone());
    let attachment = eventually("an attachment", || async {
        attachments.list(&ListParams::default()).await.unwrap().items.pop()
    })
    .await;
    assert_eq!(attachment.spec.attacher, "d.example.com");
    assert_eq!(attachment.spec.node_name, "node-1");
    assert_eq!(attachment.spec.source.persistent_volume_name.as_deref(), Some("v"));
    let attached = Patch::Merge(json!({"status": {"attached": true}}));
    attachments.patch_status(&attachment.name_any(), &PatchParams::default(), &attached).await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let name = eventually("an attached volume", || async {
        nodes.get("node-1").await.unwrap().status?.volumes_attached?.pop().map(|volume| volume.name)
    })
    .await;
    assert_eq!(name, "kubernetes.io/csi/d.example.com^h");
    cluster.api::<Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    eventually("no attachment", || async {
        attachments.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}
