//! The store's history checker over gRPC: histories of clients of `orlop etcd` must be linearizable, with
//! concurrent compaction, watches around the current and the compacted revision, and kills of the process.

use std::{sync::Arc, time::Duration};

use orlop_check::{Workload, check, seed};
use orlop_testbed::Cluster;

use crate::{grpc::Grpc, process::Orlop, support::peer::free_port};

struct Place {
    address: String,
    endpoint: String,
}

impl Place {
    fn start(&self) -> Orlop {
        Orlop::start(&["--listen-address", &self.address, "--endpoint", &self.endpoint])
    }
}

/// Runs and checks a workload on a new SQLite file.
async fn check_on_sqlite(workload: Workload, kills: usize) {
    let folder = tempfile::tempdir().unwrap();
    check_history(workload, kills, format!("sqlite://{}", folder.path().join("state.db").display())).await;
}

/// Runs a workload, kills the process `kills` times, and checks the history.
async fn check_history(workload: Workload, kills: usize, endpoint: String) {
    let place = Place { address: format!("127.0.0.1:{}", free_port().unwrap()), endpoint };
    let mut orlop = Some(place.start());
    let url = orlop.as_ref().unwrap().url.clone();
    let mut clients: Vec<Arc<dyn orlop_check::Client>> = Vec::new();
    for _ in 0..3 {
        clients.push(Arc::new(Grpc::connect(&url).await));
    }
    let killer = tokio::task::spawn_blocking(move || {
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(400));
            orlop.take().unwrap().kill();
            orlop = Some(place.start());
        }
        orlop
    });
    let history = workload.run(&clients).await;
    let orlop = killer.await.unwrap();
    let (operations, watches) = (history.operations.len(), history.watches.len());
    let model = check(&history)
        .unwrap_or_else(|problem| panic!("{problem}\nreplay with ORLOP_SEED={}", workload.seed));
    println!("explained {operations} operations, {} revisions, {watches} watches", model.revision());
    assert!(model.revision() > 100, "too little happened");
    assert!(watches > 3, "too little was watched");
    drop(orlop);
}

fn workload() -> Workload {
    Workload { compact_every: Some(Duration::from_millis(200)), ..Workload::new(seed()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_history_is_linearizable() {
    check_on_sqlite(workload(), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_history_is_linearizable_under_kills() {
    check_on_sqlite(Workload { operations: 500, ..workload() }, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_history_is_linearizable_on_postgresql_under_kills() {
    let cluster = Cluster::shared().unwrap();
    let database = cluster.create_database().unwrap();
    check_history(Workload { operations: 500, ..workload() }, 3, cluster.url(&database)).await;
}
