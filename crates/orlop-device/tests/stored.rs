//! The form in which objects are stored, which `orlop serve` shares.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use orlop_device::{Config, Server, server::WritePolicy};
use orlop_device_client::{
    Connect,
    api::{Gpu, GpuList, ListGpusRequest, ListOptions, gpu_service_client::GpuServiceClient},
};
use orlop_store::{Endpoint, Filter, KeyRange, Op, Put, Read, Requirement, Store, Terms, Txn};
use serde_json::{Value, json};
use support::{Calls, Fixture, MERGE_PATCH, Storage, labelled, meta, version};

const PREFIX: &str = "/registry/device.nvidia.com/gpus/";

async fn open(path: &std::path::Path) -> Store {
    Store::open(orlop_store::Config::new(Endpoint::Sqlite(path.to_owned()))).await.unwrap()
}

#[tokio::test]
async fn objects_are_stored_as_kubernetes_json_with_indexed_labels() {
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
async fn objects_of_another_api_are_served_and_their_fields_kept() {
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
        policy: WritePolicy { any_process: true, ..WritePolicy::default() },
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

/// More than one page of keys.
const MANY: usize = 600;

fn stored_gpu(number: usize, uuid: &str) -> Op {
    let name = format!("g{number:03}");
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": "u", "generation": 1},
        "apiVersion": "device.nvidia.com/v1alpha1", "kind": "GPU", "spec": {"uuid": uuid},
    });
    Op::Put(Put::new(format!("{PREFIX}default/{name}"), object.to_string()))
}

fn uuids(list: &GpuList) -> Vec<String> {
    list.items.iter().map(|gpu| gpu.spec.clone().unwrap().uuid).collect()
}

#[tokio::test]
async fn list_is_complete_and_at_one_revision_under_concurrent_writes() {
    let f = Fixture::start(Storage::Disk).await;
    let mut client = f.client.clone();
    let other = open(&f.folder.path().join("state.db")).await;
    let mut expected = vec!["GPU-0".to_owned(); MANY];
    other.txn(Txn::of((0..MANY).map(|number| stored_gpu(number, "GPU-0")))).await.unwrap();
    let before = client.list(Default::default()).await.unwrap();
    assert_eq!(uuids(&before), expected);
    let version = before.list_meta.unwrap().resource_version().to_owned();

    // Some are changed by this server, which knows how they are now, and some by another, neighbours and not.
    for number in [0, 7, 8, 9, 300, 599] {
        let patch = r#"{"spec":{"uuid":"GPU-1"}}"#;
        client.patch(&format!("g{number:03}"), MERGE_PATCH, patch, &[]).await.unwrap();
        expected[number] = "GPU-1".to_owned();
    }
    let theirs = [1, 2, 8, 100, 301, 512, 513];
    other.txn(Txn::of(theirs.map(|number| stored_gpu(number, "GPU-2")))).await.unwrap();
    for number in theirs {
        expected[number] = "GPU-2".to_owned();
    }
    let after = client.list(Default::default()).await.unwrap();
    assert_eq!(uuids(&after), expected);
    let newest = after.items.iter().map(version_of).max();
    assert_eq!(newest, Some(after.list_meta.unwrap().resource_version().parse().unwrap()));

    let exactly = ListOptions {
        resource_version: Some(version),
        resource_version_match: Some("Exact".into()),
        ..ListOptions::default()
    };
    assert_eq!(uuids(&client.list(exactly).await.unwrap()), vec!["GPU-0"; MANY]);
}

fn version_of(gpu: &Gpu) -> u64 {
    version(gpu).parse().unwrap()
}

#[tokio::test]
async fn list_over_the_message_limit_fails_and_a_selection_of_it_does_not() {
    let f = Fixture::start(Storage::Disk).await;
    let mut client = f.client.clone();
    let other = open(&f.folder.path().join("state.db")).await;
    // Seventeen of a MiB where sixteen may be sent; what is so large is kept by nobody.
    let large = format!("GPU-{}", "a".repeat(1 << 20));
    for number in 0..17 {
        other.txn(Txn::of([stored_gpu(number, &large)])).await.unwrap();
    }
    let name = "g999";
    let small = json!({
        "metadata": {"name": name, "namespace": "other", "uid": "u", "generation": 1},
        "apiVersion": "device.nvidia.com/v1alpha1", "kind": "GPU", "spec": {"uuid": "GPU-0"},
    });
    other
        .txn(Txn::of([Op::Put(Put::new(format!("{PREFIX}other/{name}"), small.to_string()))]))
        .await
        .unwrap();
    support::refused(client.list(Default::default()).await, tonic::Code::ResourceExhausted, "narrow it");
    let request = ListGpusRequest { namespace: Some("other".into()), opts: None };
    let part = client.list_gpus(request).await.unwrap().into_inner().gpu_list.unwrap();
    assert_eq!(uuids(&part), ["GPU-0"]);
    for number in 3..17 {
        client.delete(&format!("g{number:03}")).await.unwrap();
    }
    for _ in 0..2 {
        let rest = client.list(Default::default()).await.unwrap();
        assert_eq!(uuids(&rest), [large.as_str(), &large, &large, "GPU-0"]);
    }
}
