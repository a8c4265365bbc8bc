//! Collections on their servers.

use bson::doc;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use slate_operator::api::{Collection, Phase, Server};
use slate_server::config::Config;

use crate::cluster::{Cluster, database, eventually, is_ready};

#[tokio::test(flavor = "multi_thread")]
async fn collections_follow_their_server_spec_and_restarts() {
    let first = database().await;
    let address = first.address();
    let cluster = Cluster::start(&[("acme/main-db", address.to_string())]).await;
    cluster.create_collection("accounts", &["status", "score"]).await;
    let waiting = cluster.collection_when("accounts", |collection| collection.status.is_some()).await;
    assert_eq!(waiting.status.expect("a status").conditions[0].reason, "ServerNotFound");
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    cluster.finish_rollout("main-db").await;
    let ready = cluster.collection_when("accounts", is_ready).await;
    let status = ready.status.expect("a status");
    assert_eq!((status.server_generation, status.indexes.as_deref()), (Some(1), Some("2/2")));

    // Editing the indexes takes effect without a new generation of the Server.
    first.engine().insert("slate.accounts", &doc! { "status": "active" }).expect("insert");
    let edit = json!({ "spec": { "indexes": ["status", "tags.[]"] } });
    cluster
        .api::<Collection>()
        .patch("accounts", &PatchParams::default(), &Patch::Merge(&edit))
        .await
        .expect("patch");
    let observed = |collection: &Collection| {
        is_ready(collection)
            && collection.status.as_ref().is_some_and(|status| status.observed_generation == Some(2))
    };
    cluster.collection_when("accounts", observed).await;
    let names = |engine: &slate_server::Server| -> Vec<String> {
        let collection = engine.engine().collection("slate.accounts").expect("the collection");
        collection.indexes.iter().map(|index| index.spec.name.clone()).collect()
    };
    assert_eq!(names(&first), ["status_1", "tags_1"]);

    // A crashed pod comes back empty at the same address and generation.
    let before = first.engine().boot_id().to_owned();
    first.stop().await;
    let mut config = Config::for_test();
    config.addr = address;
    let second = slate_server::Server::start(config).await.expect("a database");
    // A label: an annotation would count as a new generation of the Deployment.
    let nudge = json!({ "metadata": { "labels": { "test": "restarted" } } });
    cluster
        .api::<Deployment>()
        .patch("main-db", &PatchParams::default(), &Patch::Merge(&nudge))
        .await
        .expect("patch");
    let restarted = |server: &Server| {
        server.status.as_ref().is_some_and(|status| status.boot_id.as_deref().is_some_and(|id| id != before))
    };
    cluster.server_when("main-db", restarted).await;
    eventually(async || second.engine().collection("slate.accounts").ok()).await;
    assert_eq!(names(&second), ["status_1", "tags_1"]);

    // Deletion drops the data, unless the policy is Retain.
    cluster.create_collection("kept", &[]).await;
    let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
    cluster.collection_when("kept", is_ready).await;
    cluster
        .api::<Collection>()
        .patch("kept", &PatchParams::default(), &Patch::Merge(&retain))
        .await
        .expect("patch");
    for name in ["accounts", "kept"] {
        cluster.api::<Collection>().delete(name, &DeleteParams::default()).await.expect("delete");
        let collections = cluster.api::<Collection>();
        eventually(async || collections.get_opt(name).await.expect("get").is_none().then_some(())).await;
    }
    assert!(second.engine().collection("slate.accounts").is_err());
    assert!(second.engine().collection("slate.kept").is_ok());
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_index_builds_are_reported_and_back_off() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    cluster.finish_rollout("main-db").await;
    cluster.create_collection("accounts", &[]).await;
    cluster.collection_when("accounts", is_ready).await;
    // No compound index can hold two arrays of one document.
    let parallel = doc! { "_id": 1, "a": [1, 2], "b": [3, 4] };
    database.engine().insert("slate.accounts", &parallel).expect("insert");
    let edit = async |indexes: serde_json::Value| {
        let patch = json!({ "spec": { "indexes": indexes } });
        let collections = cluster.api::<Collection>();
        collections.patch("accounts", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patch");
    };
    edit(json!(["a,b"])).await;
    let has_reason = |collection: &Collection, reason: &str| {
        let status = collection.status.as_ref();
        status.is_some_and(|status| status.conditions.iter().any(|condition| condition.reason == reason))
    };
    let failed = cluster.collection_when("accounts", |found| has_reason(found, "IndexBuildFailed")).await;
    let status = failed.status.expect("a status");
    assert_eq!(status.indexes.as_deref(), Some("0/1 (a,b failed)"));
    assert_eq!(status.conditions[0].status, "False");
    assert!(status.conditions[0].message.contains("parallel arrays"), "{}", status.conditions[0].message);
    // The reconciliation that the new status caused has left it at that.
    let failures = || database.engine().failed_builds("slate.accounts").expect("failures").len();
    assert_eq!(failures(), 1);

    // A path that is none is an error of the spec, which the message names.
    edit(json!(["a..b"])).await;
    let invalid = cluster.collection_when("accounts", |found| has_reason(found, "InvalidSpec")).await;
    let message = &invalid.status.expect("a status").conditions[0].message;
    assert!(message.contains("a..b"), "{message}");
    edit(json!(["a,b"])).await;
    cluster.collection_when("accounts", |found| has_reason(found, "IndexBuildFailed")).await;

    // A change of the spec tries again at once; without the index, all is well.
    edit(json!([])).await;
    cluster.collection_when("accounts", |found| is_ready(found) && has_reason(found, "UpToDate")).await;
    assert_eq!(failures(), 0);
    database.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn example_ends_with_a_ready_server_and_two_indexed_collections() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slate/acme.yaml"))
            .expect("a file");
    let mut documents = text.split("---\n").skip(1);
    let server: Server = serde_saphyr::from_str(documents.next().expect("a Server")).expect("YAML");
    cluster.api::<Server>().create(&PostParams::default(), &server).await.expect("create");
    for collection in documents {
        let collection: Collection = serde_saphyr::from_str(collection).expect("YAML");
        cluster.api::<Collection>().create(&PostParams::default(), &collection).await.expect("create");
    }
    cluster.finish_rollout("main-db").await;
    cluster.server_when("main-db", |server| server.phase() == Some(Phase::Ready)).await;
    for (name, indexes) in [("accounts", vec!["status_1", "score_1"]), ("prospects", vec!["stage_1"])] {
        cluster.collection_when(name, is_ready).await;
        let collection = database.engine().collection(&format!("slate.{name}")).expect("the collection");
        let present: Vec<_> = collection.indexes.iter().map(|index| index.spec.name.as_str()).collect();
        assert_eq!(present, indexes);
    }
    database.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_server_does_not_block_other_reconciliations() {
    // Accepts connections and never answers, once it has been ready.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let database = database().await;
    let addresses = [("acme/main-db", database.address().to_string()), ("acme/dead-db", address)];
    let cluster = Cluster::start(&addresses).await;
    for name in ["dead-db", "main-db"] {
        cluster.create_server(name, json!({ "store": "memory" })).await;
        cluster.finish_rollout(name).await;
    }
    cluster.server_when("main-db", |server| server.phase() == Some(Phase::Ready)).await;
    let ready = json!({ "apiVersion": "slate.io/v1", "kind": "Server", "status": { "phase": "Ready", "ready_generation": 1 } });
    let servers = cluster.api::<Server>();
    let claim_ready = async || {
        servers.patch_status("dead-db", &PatchParams::default(), &Patch::Merge(&ready)).await.expect("patch");
    };
    claim_ready().await;
    for number in 0..8 {
        let spec = json!({ "server": "dead-db" });
        let collection = json!({ "metadata": { "name": format!("dead{number}") }, "spec": spec });
        let collection: Collection = serde_json::from_value(collection).expect("a Collection");
        cluster.api::<Collection>().create(&PostParams::default(), &collection).await.expect("create");
    }
    cluster.create_collection("accounts", &["status"]).await;
    cluster.collection_when("accounts", is_ready).await;
    // The others say why they are not.
    let reasons = ["ServerUnreachable", "ServerNotReady"];
    let explained = |collection: &Collection| {
        let status = collection.status.as_ref();
        status.is_some_and(|status| reasons.contains(&status.conditions[0].reason.as_str()))
    };
    for number in 0..8 {
        cluster.collection_when(&format!("dead{number}"), explained).await;
    }
    database.stop().await;
}
