//! Disks that are full or read-only: clear errors, and recovery.
//!
//! Small tmpfs mounts stand in for disks. Only root may mount them; for others these tests print that they are skipped.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use orlop_store::{Config, Delete, Endpoint, Error, KeyRange, Op, Store, Txn, Watch};

use crate::{database::Database, shorthand::*};

/// A small disk, unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk; `None` without permission.
    fn mount(db: &Database, size: &str) -> Option<Self> {
        let folder = db.beside("disk");
        std::fs::create_dir(&folder).unwrap();
        let mounted = run(Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size}"))
            .args(["none"])
            .arg(&folder));
        if !mounted {
            println!("skipped: only root may mount a small disk");
        }
        mounted.then_some(Self(folder))
    }

    fn remount(&self, options: &str) {
        assert!(run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0)));
    }

    async fn store(&self) -> Store {
        Store::open(self.config()).await.unwrap()
    }

    fn config(&self) -> Config {
        Config { retention: None, ..Config::new(Endpoint::Sqlite(self.0.join("store.db"))) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Fills the disk to the last byte.
fn fill(disk: &Path, name: &str) -> PathBuf {
    let filler = disk.join(name);
    std::fs::write(&filler, vec![0; 64 << 20]).unwrap_err();
    filler
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
    let Some(disk) = Disk::mount(db, "24m") else { return };
    let store = disk.store().await;
    let mut watcher = store.watch(Watch::new(KeyRange::all())).await.unwrap();
    put(&store, "before", "x").await;
    // Another process takes nearly all there is.
    let filler = disk.0.join("filler");
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
    let store = disk.store().await;
    assert_eq!(list(&store, KeyRange::all()).await.len() as i64, written + 2);
}

async fn full_disk_accepts_deletes_and_is_unhealthy(db: &Database) {
    let Some(disk) = Disk::mount(db, "24m") else { return };
    let store = disk.store().await;
    for number in 0..20 {
        put(&store, format!("key-{number}"), vec![b'x'; 50_000]).await;
    }
    let filler = fill(&disk.0, "filler");
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

async fn store_starts_on_a_full_disk(db: &Database) {
    let Some(disk) = Disk::mount(db, "24m") else { return };
    let store = disk.store().await;
    put(&store, "a", "1").await;
    fill(&disk.0, "filler");
    put_until_refused(&store).await;
    // Another process takes what the reserve has released. The store is not closed cleanly.
    let left = fill(&disk.0, "another-filler");
    let restarted = disk.store().await;
    assert_eq!(list(&restarted, KeyRange::key("a")).await, ["a=1"]);
    std::fs::remove_file(left).unwrap();
    let delete = Delete { range: KeyRange::key("a"), previous: false };
    restarted.txn(Txn::of([Op::Delete(delete)])).await.unwrap();
}

async fn compaction_on_a_full_disk_is_retried(db: &Database) {
    let Some(disk) = Disk::mount(db, "16m") else { return };
    let store = disk.store().await;
    for number in 0..20_u8 {
        put(&store, "a", vec![number; 100_000]).await;
    }
    let used = store.size().await.unwrap().used;
    let filler = fill(&disk.0, "filler");
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
    let Some(disk) = Disk::mount(db, "8m") else { return };
    let store = disk.store().await;
    put(&store, "a", "1").await;
    store.close().await;
    disk.remount("ro");
    let refused = Store::open(disk.config()).await;
    let Err(Error::Unavailable(reason)) = &refused else { panic!("{refused:?}") };
    assert!(reason.contains("read-only") || reason.contains("cannot open"), "{reason}");
    disk.remount("rw");
    let store = disk.store().await;
    assert_eq!(list(&store, KeyRange::all()).await, ["a=1"]);
    assert_eq!(put(&store, "a", "2").await, 3);
}

on_sqlite_files! {
    full_disk_refuses_puts_and_service_resumes,
    full_disk_accepts_deletes_and_is_unhealthy,
    store_starts_on_a_full_disk,
    compaction_on_a_full_disk_is_retried,
    read_only_disk_is_reported_and_recovered_from,
}
