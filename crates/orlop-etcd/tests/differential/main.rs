//! The same requests to Debian's etcd and to Orlop must have the same responses, errors and events.
//!
//! Seeded sequences of random requests run against both, so that every revision is the same on both sides and responses
//! compare as they are, except ids in headers and remaining TTLs. Deliberate differences are in COMPAT.md, and the
//! generator does not produce them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod compare;
mod generate;
mod watches;

use orlop_etcd::{Client, ClientTls, Options, Server};
use orlop_store::{Config, Endpoint, Store};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use self::{compare::Sides, generate::Generator, watches::Watches};

const REQUESTS: usize = 600;
const WATCHES: usize = 6;

async fn orlop(endpoint: Endpoint) -> Client {
    let mut config = Config::new(endpoint);
    config.retention = None;
    config.limits.txn_operations = 1 << 17;
    config.limits.txn_depth = 128;
    let store = Store::open(config).await.unwrap();
    Client::in_process(&Server::new(store, Options::default()).await.unwrap()).await.unwrap()
}

/// Runs one sequence against both and compares all responses.
async fn run(seed: u64, endpoint: Endpoint) {
    let peer = support::peer::Peer::start(&[]).unwrap();
    let etcd = Client::connect(&peer.url, &ClientTls::default()).await.unwrap();
    let mut sides = Sides { seed, etcd, orlop: orlop(endpoint).await, log: Vec::new() };
    let mut random = SmallRng::seed_from_u64(seed);
    let mut generator = Generator::new(random.random());
    let mut watches = Watches::default();
    for n in 0..REQUESTS {
        if n % (REQUESTS / WATCHES) == 20 {
            let watch = generator.watch();
            watches.open(&mut sides, watch).await;
        }
        let request = generator.request();
        let revision = sides.both(request).await;
        generator.saw(revision);
    }
    watches.compare(&mut sides, generator.revision()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_match_etcd_on_sqlite() {
    for seed in 1..=6 {
        let folder = tempfile::tempdir().unwrap();
        run(seed, Endpoint::Sqlite(folder.path().join("state.db"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_match_etcd_in_memory() {
    for seed in 100..=102 {
        run(seed, Endpoint::Memory).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_match_etcd_on_postgresql() {
    let cluster = orlop_testbed::Cluster::shared().unwrap();
    for seed in 200..=203 {
        let database = cluster.create_database().unwrap();
        run(seed, Endpoint::Postgres(cluster.url(&database))).await;
    }
}
