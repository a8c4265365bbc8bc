//! Several processes on one file.
//!
//! The second process is this test program itself, asked to run one test that does what its environment
//! says.

use std::process::{Child, Command, Stdio};

use orlop_store::{Config, Endpoint, KeyRange, Op, Put, Store, Watch};

use crate::{database::Database, shorthand::*};

const FILE: &str = "ORLOP_TEST_OTHER_PROCESS_FILE";

/// Starts another process that writes 50 times to `theirs` in the same file.
fn other_process(db: &Database) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::as_another_process_write_to_a_file", "--nocapture"])
        .env(FILE, db.file())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Body of the other process; run by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_another_process_write_to_a_file() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let config = Config { retention: None, ..Config::new(Endpoint::Sqlite(file.into())) };
    let store = Store::open(config).await.unwrap();
    let mut watcher = store.watch(Watch::new(KeyRange::prefix("ours"))).await.unwrap();
    for number in 0..50 {
        put(&store, "theirs", format!("{number}")).await;
    }
    // It sees what the first process does, too.
    next(&mut watcher).await.unwrap();
    store.close().await;
}

async fn processes_share_one_revision_sequence(db: &Database) {
    let store = db.open().await;
    let mut watcher = store.watch(Watch::new(KeyRange::all()).previous()).await.unwrap();
    let mut other = other_process(db);
    let mut ours = 0;
    while other.try_wait().unwrap().is_none() {
        put(&store, "ours", format!("{ours}")).await;
        ours += 1;
    }
    assert!(other.wait().unwrap().success());
    let last = store.revision().await.unwrap();
    assert_eq!(last, 1 + 50 + ours, "every write has a revision of its own");
    let delivered = delivered_up_to(&mut watcher, last).await.unwrap();
    let revisions: Vec<i64> =
        delivered.iter().map(|line| line.split(':').next().unwrap().parse().unwrap()).collect();
    assert_eq!(revisions, (2..=last).collect::<Vec<_>>(), "every one is delivered, once, in order");
    let of = |name: &str| delivered.iter().filter(|line| line.contains(name)).count() as i64;
    assert_eq!((of("theirs"), of("ours")), (50, ours));
    assert_eq!(list(&store, KeyRange::all()).await, [format!("ours={}", ours - 1), "theirs=49".into()]);
}

async fn new_file_can_be_opened_concurrently(db: &Database) {
    let opening = (0..8).map(|_| tokio::spawn(Store::open(db.config())));
    let mut stores = Vec::new();
    for opened in opening.collect::<Vec<_>>() {
        stores.push(opened.await.unwrap().unwrap());
    }
    for (number, store) in stores.iter().enumerate() {
        assert_eq!(put(store, "a", format!("{number}")).await, 2 + number as i64);
    }
    assert_eq!(list(&stores[0], KeyRange::all()).await, ["a=7"]);
}

async fn stores_on_one_file_deliver_each_others_events(db: &Database) {
    let mut stores = Vec::new();
    let mut watchers = Vec::new();
    for _ in 0..4 {
        let store = db.open().await;
        watchers.push(store.watch(Watch::new(KeyRange::all())).await.unwrap());
        stores.push(store);
    }
    let writers = stores.iter().cloned().enumerate().map(|(number, store)| {
        tokio::spawn(async move {
            for count in 0..25 {
                put(&store, format!("{number}"), format!("{count}")).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let first = delivered_up_to(&mut watchers[0], 101).await.unwrap();
    assert_eq!(first.len(), 100);
    for watcher in &mut watchers[1..] {
        assert_eq!(delivered_up_to(watcher, 101).await.unwrap(), first, "all get the same events");
    }
}

async fn lease_is_shared_between_processes(db: &Database) {
    let (one, two) = (db.open().await, db.open().await);
    one.grant(Some(1), std::time::Duration::from_secs(600)).await.unwrap();
    write(&two, [Op::Put(Put { lease: 1, ..Put::new("a", "v") })]).await;
    two.keep_alive(1).await.unwrap();
    assert_eq!(one.lease_keys(1).await.unwrap(), ["a"]);
    assert_eq!(two.revoke(1).await.unwrap(), 3);
    assert_eq!(get(&one, "a").await, None);
}

on_sqlite_files! {
    processes_share_one_revision_sequence,
    new_file_can_be_opened_concurrently,
    stores_on_one_file_deliver_each_others_events,
    lease_is_shared_between_processes,
}
