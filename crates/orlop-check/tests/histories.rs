//! Random histories of several clients on one store, explained or refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use orlop_check::{Client, Workload, check, seed};
use orlop_store::{Config, Endpoint, Store};

/// History goes only when the workload compacts it; rings and queues are so small that watchers overflow.
fn config(endpoint: Endpoint) -> Config {
    Config { retention: None, ring_bytes: 40_000, watcher_queue: 8, ..Config::new(endpoint) }
}

async fn clients(configs: &[Config]) -> Vec<Arc<dyn Client>> {
    let mut clients: Vec<Arc<dyn Client>> = Vec::new();
    for config in configs {
        clients.push(Arc::new(Store::open(config.clone()).await.unwrap()));
    }
    clients
}

/// Runs a workload and explains its history.
async fn explained(configs: &[Config], workload: Workload) {
    let history = workload.run(&clients(configs).await).await;
    let (operations, watches) = (history.operations.len(), history.watches.len());
    let model = check(&history).unwrap_or_else(|problem| {
        panic!("{problem}\nreplay with ORLOP_SEED={}", workload.seed);
    });
    println!("explained {operations} operations, {} revisions, {watches} watches", model.revision());
    assert!(model.revision() > 100, "too little happened");
    assert!(watches > workload.watchers as usize / 2, "too little was watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_is_linearizable_and_its_watches_keep_their_promises() {
    explained(&[config(Endpoint::Memory)], Workload::new(seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_a_file_is_linearizable_and_its_watches_keep_their_promises() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Sqlite(folder.path().join("store.db"));
    explained(&[config(endpoint)], Workload::new(seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_stores_on_one_file_are_one_linearizable_store() {
    let folder = tempfile::tempdir().unwrap();
    let one = config(Endpoint::Sqlite(folder.path().join("store.db")));
    let workload = Workload {
        operations: 120,
        compact_every: Some(Duration::from_millis(100)),
        ..Workload::new(seed())
    };
    explained(&[one.clone(), one.clone(), one], workload).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_watchers_have_all_the_room_they_need_is_the_same() {
    let config = Config { retention: None, ..Config::new(Endpoint::Memory) };
    explained(&[config], Workload { compact_every: None, ..Workload::new(seed()) }).await;
}
