//! PostgreSQL on a full disk: a clear error, nothing half written, and service again once there is room.
//!
//! A small file system in memory stands in for the disk, as a tablespace. Only root may mount one; for
//! others the test is listed as not run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod postgres_support;

use std::process::Command;

use orlop_store::{Error, KeyRange, Op, Put, Read, Store, Txn};
use orlop_testbed::{Cluster, Disk};
use postgres_support::{get, open, put};

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

async fn fill(store: &Store, written: &mut usize) -> Error {
    loop {
        // Not to be compressed away.
        let mut random = *written as u64;
        let value: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        })
        .take(20_000)
        .collect();
        match store.txn(Txn::of([Op::Put(Put::new(format!("{:04}", *written), value))])).await {
            Ok(_) => *written += 1,
            Err(error) => return error,
        }
        assert!(*written < 5_000, "never full");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_tablespace_refuses_writes_and_service_resumes() {
    let cluster = Cluster::start().unwrap();
    let Some(disk) = Disk::mount(&cluster.folder().join("disk"), "24m") else { return };
    let place = disk.path().join("space");
    std::fs::create_dir(&place).unwrap();
    assert!(run(Command::new("chown").arg("--reference").arg(cluster.folder().join("data")).arg(&place)));
    cluster.sql("postgres", &format!("create tablespace small location '{}'", place.display())).unwrap();
    let database = cluster.create_database().unwrap();
    cluster.sql("postgres", &format!("alter database \"{database}\" set tablespace small")).unwrap();
    let store = open(&cluster.url(&database)).await;
    put(&store, "before", "x").await;
    let mut written = 0;
    let error = fill(&store, &mut written).await;
    assert!(matches!(error, Error::Full(_)), "{error:?}");
    assert!(written > 0);
    assert_eq!(store.revision().await.unwrap(), 2 + written as i64, "nothing half written");
    assert_eq!(get(&store, "before").await.as_deref(), Some("x"), "reads work");
    disk.remount("size=64m");
    put(&store, "after", "y").await;
    let count = store.read(Read::count(KeyRange::all())).await.unwrap().count;
    assert_eq!(count, Some(2 + written as u64));
    drop(store);
    drop(cluster);
}
