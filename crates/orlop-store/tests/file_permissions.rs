//! Permissions of the files that a store on SQLite creates or finds.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use orlop_store::{Config, Endpoint, Op, Put, Store, Txn};

fn modes(directory: &Path) -> Vec<(String, u32)> {
    let mut modes: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    modes.sort();
    modes
}

async fn open(directory: &Path) -> Store {
    let store = Store::open(Config::new(Endpoint::Sqlite(directory.join("store.db")))).await.unwrap();
    store.txn(Txn::of([Op::Put(Put::new("key", "value"))])).await.unwrap();
    store
}

fn assert_private(directory: &Path) {
    let modes = modes(directory);
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert!(modes.iter().any(|(file, _)| file == name), "no {name} in {modes:?}");
    }
    assert!(modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
}

/// A umask belongs to the process, so another process has to set it: this test runs itself under each.
#[tokio::test]
async fn database_files_are_private_whatever_the_umask() {
    if let Ok(directory) = std::env::var("ORLOP_TEST_UMASK_DIRECTORY") {
        let _store = open(Path::new(&directory)).await;
        return assert_private(Path::new(&directory));
    }
    for umask in ["000", "022", "077", "777"] {
        let directory = tempfile::tempdir().unwrap();
        let run = Command::new("sh")
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" --exact database_files_are_private_whatever_the_umask"))
            .arg(std::env::current_exe().unwrap())
            .env("ORLOP_TEST_UMASK_DIRECTORY", directory.path())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && output.contains("1 passed"), "umask {umask}: {output}");
    }
}

#[tokio::test]
async fn existing_database_files_are_restricted_when_opened() {
    let directory = tempfile::tempdir().unwrap();
    let kept = open(directory.path()).await;
    for entry in fs::read_dir(directory.path()).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
    // The first store is still open, so that the log and its index exist when the second opens them.
    let _store = open(directory.path()).await;
    assert_private(directory.path());
    drop(kept);
}

#[tokio::test]
async fn snapshot_file_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let backups = tempfile::tempdir().unwrap();
    store.snapshot(&backups.path().join("copy.db")).await.unwrap();
    assert_eq!(modes(backups.path()), [("copy.db".to_owned(), 0o600)]);
}
