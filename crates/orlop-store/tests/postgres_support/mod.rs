//! Support for tests of the PostgreSQL engine.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{future::Future, time::Duration};

use orlop_store::{Config, Endpoint, KeyRange, Put, Read, Store, Txn, TxnResult, Watcher};
use orlop_testbed::Cluster;
use prometheus_client::{encoding::text::encode, registry::Registry};

/// Deadline of every wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The cluster that the tests of this program share, and a new database in it.
pub(crate) fn database() -> (&'static Cluster, String) {
    let cluster = Cluster::shared().unwrap();
    (cluster, cluster.create_database().unwrap())
}

/// Opens a store that compacts only on request.
pub(crate) async fn open(url: &str) -> Store {
    Store::open(config(url)).await.unwrap()
}

pub(crate) fn config(url: &str) -> Config {
    // Whatever a busy machine takes, a write is answered when its fate is known.
    Config { retention: None, commit_timeout: 2 * DEADLINE, ..Config::new(Endpoint::parse(url).unwrap()) }
}

pub(crate) async fn put(store: &Store, key: &str, value: &str) -> TxnResult {
    let put = Put::new(key.to_owned(), value.to_owned());
    store.txn(Txn::of([orlop_store::Op::Put(put)])).await.unwrap()
}

pub(crate) async fn get(store: &Store, key: &str) -> Option<String> {
    let read = store.read(Read::new(KeyRange::key(key.to_owned()))).await.unwrap();
    read.kvs.first().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap())
}

/// Returns a store's metrics, as `/metrics` shows them.
pub(crate) fn metrics(store: &Store) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    store.metrics().register(&mut registry);
    encode(&mut text, &registry).unwrap();
    text
}

/// The next `count` events of a watch, as (revision, key, value).
pub(crate) async fn events(watcher: &mut Watcher, count: usize) -> Vec<(i64, String, String)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let batch = within("the next event", watcher.next()).await.unwrap();
        for found in batch.events() {
            let kv = &found.event.kv;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            seen.push((kv.revision, text(&kv.key), text(&kv.value)));
        }
    }
    seen
}

/// Waits, but fails the test in the end.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}
