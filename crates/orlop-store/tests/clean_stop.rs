//! A clean stop leaves a SQLite file that is complete without its write-ahead log.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use orlop_store::{Config, Endpoint, Error, KeyRange, Op, Put, Read, Store, Txn};

async fn open(path: &Path) -> Store {
    Store::open(Config::new(Endpoint::Sqlite(path.to_owned()))).await.unwrap()
}

async fn put(store: &Store, key: String) -> Result<(), Error> {
    store.txn(Txn::of([Op::Put(Put::new(key, "value"))])).await.map(drop)
}

async fn count(store: &Store) -> Option<u64> {
    store.read(Read::count(KeyRange::all())).await.unwrap().count
}

#[tokio::test(flavor = "multi_thread")]
async fn database_file_alone_is_complete_after_close() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = open(&path).await;
    for number in 0..50 {
        put(&store, format!("key-{number}")).await.unwrap();
    }
    // A request that is still under way holds the store.
    let clone = store.clone();
    store.close().await;
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(count(&open(&copy).await).await, Some(50));
    assert_eq!(count(&clone).await, Some(50), "reads still work");
}

/// A store that has just been opened checkpoints in the background. SQLite does not wait for another checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn database_file_alone_is_complete_after_close_during_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    for number in 0..40 {
        let path = directory.path().join(format!("store-{number}.db"));
        let store = open(&path).await;
        put(&store, "key".into()).await.unwrap();
        let clone = store.clone();
        store.close().await;
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(count(&open(&copy).await).await, Some(1));
        drop(clone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_after_close_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store.db")).await;
    let clone = store.clone();
    store.close().await;
    assert!(matches!(put(&clone, "late".into()).await, Err(Error::Unavailable(_))));
    assert!(matches!(clone.set_metadata("late", "").await, Err(Error::Unavailable(_))));
    clone.close().await;
}
