//! The form in which objects are stored, which `orlop serve` shares.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use orlop_device::{Config, Server, server::Policy};
use orlop_device_client::{Connect, api::gpu_service_client::GpuServiceClient};
use orlop_store::{Endpoint, Filter, KeyRange, Put, Read, Requirement, Store, Terms, Txn};
use serde_json::{Value, json};
use support::{Calls, Fixture, MERGE_PATCH, Storage, labelled, meta, version};

const PREFIX: &str = "/registry/device.nvidia.com/gpus/";

async fn open(path: &std::path::Path) -> Store {
    Store::open(orlop_store::Config::new(Endpoint::Sqlite(path.to_owned()))).await.unwrap()
}

#[tokio::test]
async fn objects_are_stored_as_kubernetes_json_under_their_key_with_their_labels_indexed() {
    let f = Fixture::start(Storage::Disk).await;
    let made = f.client.clone().create(labelled("a", &[("tier", "gold")])).await.unwrap();
    let Fixture { server, folder, .. } = f;
    server.stop().await;

    let store = open(&folder.path().join("state.db")).await;
    let filter = Filter(vec![Requirement::equals("l:tier", "gold")]);
    let found = store.read(Read { filter, ..Read::new(KeyRange::prefix(PREFIX)) }).await.unwrap();
    let [kv] = &found.kvs[..] else { panic!("{found:?}") };
    assert_eq!(kv.key, format!("{PREFIX}default/a"));
    assert_eq!(kv.revision.to_string(), version(&made), "the row's revision is the resource version");
    assert!(kv.value.starts_with(b"{\"metadata\":{"), "metadata comes first");
    let stored: Value = serde_json::from_slice(&kv.value).unwrap();
    let expected = json!({
        "apiVersion": "device.nvidia.com/v1alpha1",
        "kind": "GPU",
        "metadata": {
            "name": "a", "namespace": "default", "uid": meta(&made).uid(), "generation": 1,
            "creationTimestamp": stored["metadata"]["creationTimestamp"], "labels": {"tier": "gold"},
        },
        "spec": {"uuid": "GPU-1234-abcd"},
    });
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn what_another_api_wrote_is_served_and_what_it_added_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (database, socket) = (folder.path().join("state.db"), folder.path().join("device.sock"));
    let store = open(&database).await;
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "default", "uid": "u-1", "generation": 4, "finalizers": ["example.com/wait"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "owner-1"}],
        },
        "apiVersion": "device.nvidia.com/v1alpha1", "kind": "GPU",
        "spec": {"uuid": "GPU-12", "later": "a field of a later version"},
    });
    let key = format!("{PREFIX}default/a");
    let terms = Terms::new([("o", "owner-1")]);
    store.txn(Txn::create(Put { terms, ..Put::new(key.clone(), object.to_string()) })).await.unwrap();
    // One that nobody can read does not keep the others from being read one by one, and can be deleted.
    store.txn(Txn::create(Put::new(format!("{PREFIX}default/broken"), "not JSON"))).await.unwrap();

    let config = Config {
        storage: Endpoint::Sqlite(database),
        socket: Some(socket.clone()),
        policy: Policy { any_process: true, ..Policy::default() },
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    let connection = Connect::to(format!("unix://{}", socket.display())).open().unwrap();
    let mut client = GpuServiceClient::new(connection);
    assert_eq!(client.get("a").await.unwrap().spec.unwrap().uuid, "GPU-12");
    support::refused(client.get("broken").await, tonic::Code::Internal, "cannot be read");
    client.delete("broken").await.unwrap();
    assert_eq!(client.list(Default::default()).await.unwrap().items.len(), 1);

    let patched = client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"x":"y"}}}"#, &[]).await.unwrap();
    assert_eq!(meta(&patched).generation(), 4, "the spec has not changed");
    // A finalizer asks to wait: the object is marked, and whoever waits removes it.
    client.delete("a").await.unwrap();
    client.delete("a").await.unwrap();
    let filter = Filter(vec![Requirement::equals("o", "owner-1"), Requirement::equals("l:x", "y")]);
    let found = store.read(Read { filter, ..Read::new(KeyRange::prefix(PREFIX)) }).await.unwrap();
    let stored: Value = serde_json::from_slice(&found.kvs[0].value).unwrap();
    assert_eq!(stored["metadata"]["finalizers"], object["metadata"]["finalizers"]);
    assert_eq!(stored["metadata"]["ownerReferences"], object["metadata"]["ownerReferences"]);
    assert_eq!(stored["spec"], object["spec"], "what this version does not know stays");
    assert!(stored["metadata"]["deletionTimestamp"].is_string());
    server.stop().await;
}
