//! Disks that are full or read-only: clear errors, and service again as soon as they are not.
//!
//! Small file systems in memory stand in for disks. Only root may mount them; for anybody else these tests
//! say that they were left out.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use orlop_store::{Config, Endpoint, Error, KeyRange, Store, Watch};

use crate::{database::Database, speech::*};

/// A small disk, gone with its value.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this process may not mount.
    fn mount(db: &Database, size: &str) -> Option<Self> {
        let folder = db.beside("disk");
        std::fs::create_dir(&folder).unwrap();
        let mounted = run(Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size}"))
            .args(["none"])
            .arg(&folder));
        if !mounted {
            println!("left out: only root may mount a small disk");
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

fn filler(disk: &Path) -> PathBuf {
    disk.join("filler")
}

async fn a_full_disk_loses_nothing_and_service_resumes(db: &Database) {
    let Some(disk) = Disk::mount(db, "8m") else { return };
    let store = disk.store().await;
    let mut watcher = store.watch(Watch::new(KeyRange::all())).await.unwrap();
    put(&store, "before", "x").await;
    // Somebody else takes nearly all there is.
    std::fs::write(filler(&disk.0), vec![0; 5 << 20]).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        let txn = orlop_store::Txn::of([put_op(format!("{acknowledged:03}"), vec![b'x'; 50_000])]);
        match store.txn(txn).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 500, "never full");
    };
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(acknowledged > 0);
    assert_eq!(store.revision().await.unwrap(), 2 + acknowledged, "nothing half written");
    assert_eq!(list(&store, KeyRange::prefix("before")).await, ["before=x"], "reads work");
    std::fs::remove_file(filler(&disk.0)).unwrap();
    let revision = put(&store, "after", "y").await;
    assert_eq!(revision, 3 + acknowledged, "no revision was used up");
    let told = told_up_to(&mut watcher, revision).await.unwrap();
    assert_eq!(told.len() as i64, acknowledged + 2);
    store.close().await;
    let store = disk.store().await;
    assert_eq!(list(&store, KeyRange::all()).await.len() as i64, acknowledged + 2);
}

async fn compaction_on_a_full_disk_is_tried_again(db: &Database) {
    let Some(disk) = Disk::mount(db, "8m") else { return };
    let store = disk.store().await;
    for number in 0..20_u8 {
        put(&store, "a", vec![number; 100_000]).await;
    }
    let used = store.size().await.unwrap().used;
    std::fs::write(filler(&disk.0), vec![0; 16 << 20]).unwrap_err();
    // Marking may or may not find room; either way the store must be whole and usable afterwards.
    let compacted = store.compact(21).await;
    assert!(matches!(compacted, Ok(()) | Err(Error::Full(_))), "{compacted:?}");
    let _ = store.wait_for_compaction().await;
    assert_eq!(get(&store, "a").await.unwrap().value.len(), 100_000);
    std::fs::remove_file(filler(&disk.0)).unwrap();
    if compacted.is_err() {
        store.compact(21).await.unwrap();
    }
    eventually("it is compacted", async || store.wait_for_compaction().await.is_ok()).await;
    assert!(store.size().await.unwrap().used < used / 2);
    assert_eq!(put(&store, "a", "small").await, 22);
}

async fn a_disk_that_turns_read_only_is_told_and_recovered_from(db: &Database) {
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
    a_full_disk_loses_nothing_and_service_resumes,
    compaction_on_a_full_disk_is_tried_again,
    a_disk_that_turns_read_only_is_told_and_recovered_from,
}
