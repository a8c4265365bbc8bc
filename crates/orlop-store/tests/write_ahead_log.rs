//! The write-ahead log of a SQLite file is brought home beside the writers, and stays short.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use orlop_store::{Config, Endpoint, KeyRange, Op, Put, Read, Store, Txn};

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
async fn the_log_is_begun_anew_under_writes_without_a_pause() {
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
async fn a_log_that_grew_under_a_long_reader_shrinks_when_the_reader_is_gone() {
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
