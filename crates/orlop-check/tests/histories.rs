//! Random histories of several clients on one store, explained or refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use orlop_check::{Client, Workload, check, seed};
use orlop_store::{Config, Endpoint, Store};
use orlop_testbed::Cluster;

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
    explained_with(&clients(configs).await, workload).await;
}

async fn explained_with(clients: &[Arc<dyn Client>], workload: Workload) {
    let history = workload.run(clients).await;
    let (operations, watches) = (history.operations.len(), history.watches.len());
    let model = check(&history).unwrap_or_else(|problem| {
        panic!("{problem}\nreplay with ORLOP_SEED={}", workload.seed);
    });
    println!("explained {operations} operations, {} revisions, {watches} watches", model.revision());
    assert!(model.revision() > 100, "too little happened");
    assert!(watches > workload.watchers as usize / 2, "too little was watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_store_is_linearizable() {
    explained(&[config(Endpoint::Memory)], Workload::new(seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_store_is_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Sqlite(folder.path().join("store.db"));
    explained(&[config(endpoint)], Workload::new(seed())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_on_one_file_are_linearizable() {
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
async fn store_with_large_buffers_is_linearizable() {
    let config = Config { retention: None, ..Config::new(Endpoint::Memory) };
    explained(&[config], Workload { compact_every: None, ..Workload::new(seed()) }).await;
}

/// An empty database on PostgreSQL.
fn postgres(cluster: &Cluster) -> (String, Config) {
    let name = cluster.create_database().unwrap();
    let config = config(Endpoint::parse(&cluster.url(&name)).unwrap());
    (name, config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_store_is_linearizable() {
    let (_, config) = postgres(Cluster::shared().unwrap());
    explained(&[config], Workload { operations: 120, ..Workload::new(seed()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_on_one_postgresql_database_are_linearizable() {
    let (_, one) = postgres(Cluster::shared().unwrap());
    explained(&[one.clone(), one.clone(), one], Workload { operations: 80, ..Workload::new(seed()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_linearizable_while_connections_are_cut() {
    let cluster = Cluster::shared().unwrap();
    let (name, one) = postgres(cluster);
    faulty(&[one.clone(), one], Duration::from_millis(50), 60, move |_| {
        cluster.terminate_connections(&name).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_linearizable_while_its_server_is_killed() {
    let cluster = Arc::new(Cluster::start().unwrap());
    let (_, one) = postgres(&cluster);
    let fault = cluster.clone();
    faulty(&[one.clone(), one], Duration::from_millis(150), 4, move |round| match round % 3 {
        0 => fault.restart().unwrap(),
        _ => fault.kill().and_then(|()| fault.start_again()).unwrap(),
    })
    .await;
}

/// Runs a workload while a fault happens again and again, `most` times if it takes that long.
async fn faulty(configs: &[Config], pause: Duration, most: u32, fault: impl Fn(u32) + Send + 'static) {
    let clients = clients(configs).await;
    let over = Arc::new(AtomicBool::new(false));
    let faults = tokio::task::spawn_blocking({
        let over = over.clone();
        move || {
            let mut round = 0;
            while round < most && !(over.load(Ordering::Relaxed) && round > 0) {
                std::thread::sleep(pause);
                fault(round);
                round += 1;
            }
            round
        }
    });
    let workload = Workload { operations: 150, writers: 4, watchers: 4, ..Workload::new(seed()) };
    explained_with(&clients, workload).await;
    over.store(true, Ordering::Relaxed);
    println!("{} faults", faults.await.unwrap());
}
