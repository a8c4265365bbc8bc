//! A database file that is removed or replaced while it is open: writes fail, and the store is unhealthy.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use orlop_store::{Config, Durability, Endpoint, Error, Op, Put, Store, Txn};

async fn put(store: &Store) -> Result<(), Error> {
    store.txn(Txn::of([Op::Put(Put::new("key", "value"))])).await.map(drop)
}

async fn assert_writes_fail_after(damage: impl Fn(&Path)) {
    for durability in [Durability::Full, Durability::Relaxed] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let config = Config { durability, ..Config::new(Endpoint::Sqlite(path.clone())) };
        let store = Store::open(config).await.unwrap();
        put(&store).await.unwrap();
        assert_eq!(store.health(), Ok(()));
        damage(&path);
        let reason = store.health().unwrap_err().to_string();
        assert!(reason.contains("removed or replaced"), "{reason}");
        let error = put(&store).await.unwrap_err();
        assert!(matches!(error, Error::AmbiguousCommit(_) | Error::Unavailable(_)), "{error}");
        assert!(put(&store).await.is_err(), "it stays so");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_after_the_database_was_unlinked() {
    assert_writes_fail_after(|path| fs::remove_file(path).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_after_the_database_was_replaced() {
    assert_writes_fail_after(|path| {
        let other = path.with_extension("other");
        fs::copy(path, &other).unwrap();
        fs::rename(other, path).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_after_the_log_was_unlinked() {
    assert_writes_fail_after(|path| fs::remove_file(path.with_extension("db-wal")).unwrap()).await;
}
