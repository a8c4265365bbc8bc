//! Create: generated names, create on update, dry run.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use orlop_server::{
    auth::issuer::Issuer, chain::Chain, cluster::Cluster, registry::Kinds,
    storage::generated_name::NameSuffixSource,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{ask, call, config_map, create, server, started, version, whole},
};

#[tokio::test]
async fn generated_name_is_prefix_and_five_characters() {
    let (chain, _store) = server().await;
    let generated =
        |base: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": base}});
    let mut names = HashSet::new();
    for base in ["job-", "a".repeat(100).as_str()] {
        for _ in 0..3 {
            let (code, created) = call(&chain, "POST", MAPS, Some(&generated(base))).await;
            assert_eq!(code, 201, "{created}");
            let name = created["metadata"]["name"].as_str().unwrap().to_owned();
            let kept = &base[..base.len().min(58)];
            let letters = name.strip_prefix(kept).expect("it begins as asked");
            assert!(
                letters.len() == 5 && letters.chars().all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it)),
                "{name}"
            );
            assert!(names.insert(name), "a name came twice");
        }
    }
    // A name takes precedence over generateName.
    let mut both = generated("job-");
    both["metadata"]["name"] = "own".into();
    assert_eq!(call(&chain, "POST", MAPS, Some(&both)).await.1["metadata"]["name"], "own");
}

/// Name suffixes in a fixed order; the last repeats.
#[derive(Debug)]
struct FixedSuffixes(AtomicUsize, &'static [&'static str]);

impl NameSuffixSource for FixedSuffixes {
    fn next(&self) -> String {
        let Self(asked, suffixes) = self;
        suffixes[asked.fetch_add(1, Ordering::Relaxed) % suffixes.len()].to_owned()
    }
}

/// Starts a server with these name suffixes.
async fn server_with(suffixes: &Arc<FixedSuffixes>) -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    started(cluster.with_name_suffixes(suffixes.clone())).await
}

#[tokio::test]
async fn taken_generated_name_is_retried() {
    let suffixes = Arc::new(FixedSuffixes(AtomicUsize::new(0), &["aaaaa", "aaaaa", "aaaaa", "bbbbb"]));
    let chain = server_with(&suffixes).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "j-"},
        "spec": {"template": template}});
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let (_, first) = call(&chain, "POST", jobs, Some(&job)).await;
    assert_eq!(first["metadata"]["name"], "j-aaaaa");
    // Two more names are taken; the fourth is free.
    let (code, second) = call(&chain, "POST", jobs, Some(&job)).await;
    assert_eq!((code, &second["metadata"]["name"]), (201, &json!("j-bbbbb")), "{second}");
    assert_eq!(suffixes.0.load(Ordering::Relaxed), 4);
    // Labels are derived from the final name.
    let labels = &second["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/job-name"], "j-bbbbb");
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], second["metadata"]["uid"]);
}

#[tokio::test]
async fn eight_taken_generated_names_return_already_exists() {
    let suffixes = Arc::new(FixedSuffixes(AtomicUsize::new(0), &["aaaaa"]));
    let chain = server_with(&suffixes).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "m-"}});
    create(&chain, MAPS, &map).await;
    for query in ["", "?dryRun=All"] {
        let asked = suffixes.0.load(Ordering::Relaxed);
        let answer = ask(&chain, "POST", &format!("{MAPS}{query}"), &[], map.to_string()).await;
        let (code, headers, body) = whole(answer).await;
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((code, &headers["retry-after"]), (409, &"1".parse().unwrap()));
        assert_eq!(status["reason"], "AlreadyExists");
        let message = "configmaps \"m-aaaaa\" already exists, the server was not able to generate a unique name for the object";
        assert_eq!(status["message"], message);
        assert_eq!(
            status["details"],
            json!({"name": "m-aaaaa", "kind": "configmaps", "retryAfterSeconds": 1})
        );
        assert_eq!(suffixes.0.load(Ordering::Relaxed) - asked, 8, "names tried");
    }
    // The message is the same with a name and a generateName.
    let mut named = map;
    named["metadata"]["name"] = "m-aaaaa".into();
    let message = "configmaps \"m-aaaaa\" already exists, the server was not able to generate a unique name for the object";
    refused(&chain, "POST", MAPS, Some(&named), 409, message).await;
}

#[tokio::test]
async fn create_on_update_follows_the_strategy() {
    let (chain, _store) = server().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"}});
    let (code, tried) = call(&chain, "PUT", &format!("{leases}?dryRun=All"), Some(&lease)).await;
    assert_eq!((code, version(&tried)), (201, String::new()), "a dry run creates nothing");
    let (code, created) = call(&chain, "PUT", leases, Some(&lease)).await;
    assert_eq!((code, &created["spec"]["holderIdentity"]), (201, &json!("a")), "{created}");
    let mut renewed = lease;
    renewed["metadata"]["resourceVersion"] = version(&created).into();
    renewed["spec"]["holderIdentity"] = "b".into();
    assert_eq!(call(&chain, "PUT", leases, Some(&renewed)).await.0, 200);
    let message = "configmaps \"none\" not found";
    refused(&chain, "PUT", &format!("{MAPS}/none"), Some(&config_map("none", &json!({}))), 404, message)
        .await;
}

#[tokio::test]
async fn dry_run_of_any_write_stores_nothing() {
    let (chain, _store) = server().await;
    let first = create(&chain, MAPS, &config_map("a", &json!({"l": "1"}))).await;
    let (item, dry) = (format!("{MAPS}/a?dryRun=All"), format!("{MAPS}?dryRun=All"));
    let changed = config_map("a", &json!({"l": "2"}));
    let labels = |object: &Value| object["metadata"]["labels"]["l"].clone();
    let (code, replaced) = call(&chain, "PUT", &item, Some(&changed)).await;
    assert_eq!((code, labels(&replaced)), (200, json!("2")));
    let patch = json!({"metadata": {"labels": {"l": "3"}}});
    let (code, patched) = call(&chain, "PATCH", &item, Some(&patch)).await;
    assert_eq!((code, labels(&patched)), (200, json!("3")));
    let (code, created) = call(&chain, "POST", &dry, Some(&config_map("b", &json!({})))).await;
    assert!(
        code == 201 && created["metadata"]["uid"].is_string() && version(&created).is_empty(),
        "{created}"
    );
    refused(&chain, "POST", &dry, Some(&changed), 409, "configmaps \"a\" already exists").await;
    // A dry run does not reach the resourceVersion check of storage.
    let mut versioned = config_map("c", &json!({}));
    versioned["metadata"]["resourceVersion"] = "5".into();
    assert_eq!(call(&chain, "POST", &dry, Some(&versioned)).await.0, 201);
    let message = "resourceVersion should not be set on objects to be created";
    refused(&chain, "POST", MAPS, Some(&versioned), 500, message).await;
    assert_eq!(call(&chain, "DELETE", &item, None).await.0, 200);
    assert_eq!(call(&chain, "DELETE", &dry, None).await.0, 200);
    let (_, list) = call(&chain, "GET", MAPS, None).await;
    let left: Vec<(&str, String)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| (object["metadata"]["name"].as_str().unwrap(), version(object)))
        .collect();
    assert_eq!(left, [("a", first)]);
}

#[tokio::test]
async fn events_expire_after_an_hour() {
    let (chain, store) = server().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    create(&chain, "/api/v1/namespaces/default/events", &event).await;
    let mut held = Vec::new();
    for lease in store.leases().await.unwrap() {
        let keys = store.lease_keys(lease.id).await.unwrap();
        held.extend(
            keys.into_iter().map(|key| (String::from_utf8_lossy(&key).into_owned(), lease.ttl_seconds)),
        );
    }
    let [(key, seconds)] = held.as_slice() else { panic!("{held:?}") };
    assert!(key.ends_with("/events/default/e"), "{key}");
    // Events share leases.
    assert!((3600..=3600 + 600).contains(seconds), "{seconds} seconds");
}
