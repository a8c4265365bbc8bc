//! The write-ahead log of a SQLite file is laid out ahead of the writers, brought home beside them, and stays short.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use orlop_store::{Config, Durability, Endpoint, KeyRange, Op, Put, Read, Store, Txn};

const MIB: u64 = 1 << 20;

async fn open(path: &Path) -> Store {
    Store::open(Config::new(Endpoint::Sqlite(path.to_owned()))).await.unwrap()
}

/// Writes values of 1 MiB over ten keys, without a pause.
async fn write(store: &Store, values: usize) {
    for n in 0..values {
        let put = Put::new(format!("key-{}", n % 10), vec![n as u8; MIB as usize]);
        store.txn(Txn::of([Op::Put(put)])).await.unwrap();
    }
}

fn log_bytes(path: &Path) -> u64 {
    std::fs::metadata(path.with_extension("db-wal")).map_or(0, |file| file.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn wal_is_restarted_under_continuous_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await;
    write(&store, 300).await;
    // It is long at 64 MiB; what is written while it is copied comes on top.
    let bytes = log_bytes(&path);
    assert!(bytes < 160 * MIB, "{} MiB of log after 300 MiB of writes", bytes / MIB);
    store.close().await;
    let store = open(&path).await;
    for n in 0..10 {
        let read = store.read(Read::new(KeyRange::key(format!("key-{n}")))).await.unwrap();
        assert_eq!(read.kvs[0].value[0], (290 + n) as u8, "key-{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wal_is_truncated_after_a_long_reader_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await;
    write(&store, 1).await;
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM live").unwrap();
    let begun = Instant::now();
    write(&store, 150).await;
    assert!(log_bytes(&path) > 140 * MIB, "the reader still needs its pages");
    assert!(begun.elapsed() < Duration::from_secs(60), "writers do not wait for a reader");
    reader.execute_batch("COMMIT").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while log_bytes(&path) > 64 * MIB {
        assert!(Instant::now() < deadline, "{} MiB of log stay", log_bytes(&path) / MIB);
        write(&store, 10).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wal_is_preallocated_for_many_commits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await;
    let mut lengths = BTreeSet::new();
    for n in 0..300 {
        let put = Put::new(format!("key-{}", n % 10), vec![b'x'; 1024]);
        store.txn(Txn::of([Op::Put(put)])).await.unwrap();
        lengths.insert(log_bytes(&path));
    }
    assert!(lengths.len() < 30, "300 commits at {} lengths", lengths.len());
    let log = std::fs::read(path.with_extension("db-wal")).unwrap();
    assert_eq!(log.last(), Some(&0), "laid out with zeros");
}

#[tokio::test(flavor = "multi_thread")]
async fn wal_of_a_seldom_written_store_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).await;
    for n in 0..10 {
        store.txn(Txn::of([Op::Put(Put::new(format!("key-{n}"), "value"))])).await.unwrap();
    }
    let bytes = log_bytes(&path);
    assert!(bytes < MIB, "{bytes} bytes of log after ten writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn relaxed_durability_does_not_preallocate_the_wal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let config = Config { durability: Durability::Relaxed, ..Config::new(Endpoint::Sqlite(path.clone())) };
    let store = Store::open(config).await.unwrap();
    write(&store, 1).await;
    let frames = log_bytes(&path) - 32;
    assert_eq!(frames % (24 + 4096), 0, "pages with their headers, and nothing else");
}
