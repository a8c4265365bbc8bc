//! Watchers that resume far behind and stop reading: bounded memory, and no delay for others.
//!
//! A program of its own, because it measures the memory of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use orlop_store::{Config, Durability, Endpoint, KeyRange, Op, Put, Read, Store, Txn, Watch, Watcher};

const MIB: usize = 1 << 20;
const WATCHERS: usize = 10_000;
const COMMITS: usize = 20_000;
const KEYS: usize = 500;

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A store whose history is far longer than its ring buffer.
async fn store_with_history(config: Config) -> Store {
    let store = Store::open(Config {
        retention: None,
        ring_bytes: 64 << 10,
        durability: Durability::Relaxed,
        ..config
    })
    .await
    .unwrap();
    for number in 0..COMMITS {
        let put = Put::new(format!("key-{:04}", number % KEYS), vec![b'x'; 1024]);
        store.txn(Txn::of([Op::Put(put)])).await.unwrap();
    }
    store
}

/// Opens a watcher somewhere in the first half of history and takes a few commits.
async fn resume(store: &Store, number: usize) -> Watcher {
    let after = 1 + (number * 7919 % (COMMITS / 2)) as i64;
    let mut watcher = store.watch(Watch::new(KeyRange::all()).after(after)).await.unwrap();
    for offset in 1..=3 {
        assert_eq!(watcher.next().await.unwrap().revision(), after + offset);
    }
    watcher
}

fn percentile_99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

async fn time_reads(store: &Store, reads: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(reads);
    for number in 0..reads {
        let started = Instant::now();
        store.read(Read::new(KeyRange::key(format!("key-{:04}", number % KEYS)))).await.unwrap();
        times.push(started.elapsed());
        tokio::task::yield_now().await;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lagging_watchers_share_a_bounded_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = store_with_history(Config::new(Endpoint::Sqlite(path))).await;
    let before = resident_bytes();
    let alone = percentile_99(time_reads(&store, 2000).await);

    let reader = tokio::spawn({
        let store = store.clone();
        async move { time_reads(&store, 20_000).await }
    });
    let mut opening = tokio::task::JoinSet::new();
    let mut watchers = Vec::with_capacity(WATCHERS);
    for number in 0..WATCHERS {
        let store = store.clone();
        opening.spawn(async move { resume(&store, number).await });
        if opening.len() >= 500 {
            watchers.push(opening.join_next().await.unwrap().unwrap());
        }
    }
    while let Some(watcher) = opening.join_next().await {
        watchers.push(watcher.unwrap());
    }
    let beside = percentile_99(reader.await.unwrap());
    let used = resident_bytes().saturating_sub(before);
    assert!(used < 200 * MIB, "{WATCHERS} lagging watchers take {} MiB", used / MIB);
    println!("{WATCHERS} watchers: {} MiB; p99 of reads {alone:?} alone, {beside:?} beside", used / MIB);
    // Generous: the machine may be busy. Unbounded catch-up stalled reads for seconds.
    assert!(
        beside < alone * 2 + Duration::from_millis(50),
        "p99 of reads {alone:?} alone, {beside:?} beside"
    );
    // They continue where they are, without a gap.
    for number in [0, 1, WATCHERS - 1] {
        let watcher = &mut watchers[number];
        let mut last = watcher.progress();
        for _ in 0..600 {
            let revision = watcher.next().await.unwrap().revision();
            assert_eq!(revision, last + 1);
            last = revision;
        }
    }
}
