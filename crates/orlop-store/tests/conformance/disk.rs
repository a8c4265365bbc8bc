//! Disks that are full or read-only: clear errors, and recovery.
//!
//! Small tmpfs mounts stand in for disks. Only root may mount them; for others these tests are listed as not run.

use orlop_store::{Config, Delete, Endpoint, Error, KeyRange, Op, Store, Txn, Watch};
use orlop_testbed::Disk;

use crate::{database::Database, shorthand::*};

fn mount(db: &Database, size: &str) -> Option<Disk> {
    Disk::mount(&db.beside("disk"), size)
}

async fn open(disk: &Disk) -> Store {
    Store::open(config(disk)).await.unwrap()
}

fn config(disk: &Disk) -> Config {
    Config { retention: None, ..Config::new(Endpoint::Sqlite(disk.path().join("store.db"))) }
}

/// Puts values until one is refused. Returns the number of values written and the error.
async fn put_until_refused(store: &Store) -> (i64, Error) {
    for written in 0..500 {
        let txn = Txn::of([put_op(format!("{written:03}"), vec![b'x'; 50_000])]);
        if let Err(error) = store.txn(txn).await {
            return (written, error);
        }
    }
    panic!("never full");
}

async fn full_disk_refuses_puts_and_service_resumes(db: &Database) {
    let Some(disk) = mount(db, "24m") else { return };
    let store = open(&disk).await;
    let mut watcher = store.watch(Watch::new(KeyRange::all())).await.unwrap();
    put(&store, "before", "x").await;
    // Another process takes nearly all there is.
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 16 << 20]).unwrap();
    assert_eq!(store.health(), Ok(()));
    let (written, error) = put_until_refused(&store).await;
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(written > 0);
    assert_eq!(store.revision().await.unwrap(), 2 + written, "nothing is written partially");
    assert_eq!(list(&store, KeyRange::prefix("before")).await, ["before=x"], "reads work");
    std::fs::remove_file(filler).unwrap();
    let revision = put(&store, "after", "y").await;
    assert_eq!(revision, 3 + written, "no revision was used up");
    assert_eq!(store.health(), Ok(()));
    let delivered = delivered_up_to(&mut watcher, revision).await.unwrap();
    assert_eq!(delivered.len() as i64, written + 2);
    store.close().await;
    let store = open(&disk).await;
    assert_eq!(list(&store, KeyRange::all()).await.len() as i64, written + 2);
}

async fn full_disk_accepts_deletes_and_is_unhealthy(db: &Database) {
    let Some(disk) = mount(db, "24m") else { return };
    let store = open(&disk).await;
    for number in 0..20 {
        put(&store, format!("key-{number}"), vec![b'x'; 50_000]).await;
    }
    let filler = disk.fill("filler");
    let (_, error) = put_until_refused(&store).await;
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(matches!(store.health(), Err(Error::Full(_))), "{:?}", store.health());
    let before = store.revision().await.unwrap();
    for number in 0..20 {
        let delete = Delete { range: KeyRange::key(format!("key-{number}")), previous: false };
        store.txn(Txn::of([Op::Delete(delete)])).await.unwrap();
    }
    assert_eq!(store.revision().await.unwrap(), before + 20);
    assert_eq!(list(&store, KeyRange::prefix("key-")).await, [""; 0]);
    std::fs::remove_file(filler).unwrap();
    assert_eq!(store.health(), Ok(()));
    put(&store, "after", "y").await;
}

/// Deletes that append more to the write-ahead log than the reserve holds succeed, because the log can be copied.
async fn full_disk_accepts_any_number_of_deletes(db: &Database) {
    let Some(disk) = mount(db, "40m") else { return };
    let store = open(&disk).await;
    let (written, error) = put_until_refused(&store).await;
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    for number in 0..written {
        let delete = Delete { range: KeyRange::key(format!("{number:03}")), previous: false };
        store.txn(Txn::of([Op::Delete(delete)])).await.unwrap();
    }
    assert_eq!(list(&store, KeyRange::all()).await, [""; 0]);
}

/// The space that the last checkpoint needs is set aside: a stop on a full disk leaves a database without a log.
async fn store_closes_cleanly_on_a_full_disk(db: &Database) {
    let Some(disk) = mount(db, "40m") else { return };
    let store = open(&disk).await;
    for number in 0..150 {
        put(&store, format!("key-{number:03}"), vec![b'x'; 50_000]).await;
    }
    disk.fill("filler");
    store.close().await;
    let log = disk.path().join("store.db-wal");
    assert_eq!(log.metadata().map_or(0, |log| log.len()), 0, "the log is copied");
    let restarted = open(&disk).await;
    assert_eq!(list(&restarted, KeyRange::prefix("key-")).await.len(), 150);
}

/// Room for the reserve is enough. The log that was to be copied when puts were refused has been copied since.
async fn full_disk_recovers_with_room_for_the_reserve(db: &Database) {
    let Some(disk) = mount(db, "60m") else { return };
    let store = open(&disk).await;
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 30 << 20]).unwrap();
    let (_, error) = put_until_refused(&store).await;
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    std::fs::File::options().write(true).open(&filler).unwrap().set_len(24 << 20).unwrap();
    eventually("puts are accepted", async || store.health().is_ok()).await;
    put(&store, "after", "y").await;
}

async fn store_starts_on_a_full_disk(db: &Database) {
    let Some(disk) = mount(db, "24m") else { return };
    let store = open(&disk).await;
    put(&store, "a", "1").await;
    disk.fill("filler");
    put_until_refused(&store).await;
    // Another process takes what the reserve has released. The store is not closed cleanly.
    let left = disk.fill("another-filler");
    let restarted = open(&disk).await;
    assert_eq!(list(&restarted, KeyRange::key("a")).await, ["a=1"]);
    std::fs::remove_file(left).unwrap();
    let delete = Delete { range: KeyRange::key("a"), previous: false };
    restarted.txn(Txn::of([Op::Delete(delete)])).await.unwrap();
}

async fn compaction_on_a_full_disk_is_retried(db: &Database) {
    let Some(disk) = mount(db, "16m") else { return };
    let store = open(&disk).await;
    for number in 0..20_u8 {
        put(&store, "a", vec![number; 100_000]).await;
    }
    let used = store.size().await.unwrap().used;
    let filler = disk.fill("filler");
    // Compaction may or may not find space; either way the store must be consistent and usable afterwards.
    let compacted = store.compact(21).await;
    assert!(matches!(compacted, Ok(()) | Err(Error::Full(_))), "{compacted:?}");
    let _ = store.wait_for_compaction().await;
    assert_eq!(get(&store, "a").await.unwrap().value.len(), 100_000);
    std::fs::remove_file(filler).unwrap();
    if compacted.is_err() {
        store.compact(21).await.unwrap();
    }
    eventually("it is compacted", async || store.wait_for_compaction().await.is_ok()).await;
    assert!(store.size().await.unwrap().used < used / 2);
    assert_eq!(put(&store, "a", "small").await, 22);
}

async fn read_only_disk_is_reported_and_recovered_from(db: &Database) {
    let Some(disk) = mount(db, "8m") else { return };
    let store = open(&disk).await;
    put(&store, "a", "1").await;
    store.close().await;
    disk.remount("ro");
    let refused = Store::open(config(&disk)).await;
    let Err(Error::Unavailable(reason)) = &refused else { panic!("{refused:?}") };
    assert!(reason.contains("read-only") || reason.contains("cannot open"), "{reason}");
    disk.remount("rw");
    let store = open(&disk).await;
    assert_eq!(list(&store, KeyRange::all()).await, ["a=1"]);
    assert_eq!(put(&store, "a", "2").await, 3);
}

on_sqlite_files! {
    full_disk_refuses_puts_and_service_resumes,
    full_disk_accepts_deletes_and_is_unhealthy,
    full_disk_accepts_any_number_of_deletes,
    store_closes_cleanly_on_a_full_disk,
    full_disk_recovers_with_room_for_the_reserve,
    store_starts_on_a_full_disk,
    compaction_on_a_full_disk_is_retried,
    read_only_disk_is_reported_and_recovered_from,
}
