//! Watchers that do not keep up: nobody waits for them, and they lose their queue, not their place.

use std::time::Duration;

use orlop_store::{Config, KeyRange, Store, Watch};
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::{database::Database, shorthand::*};

/// Little room: a queue of four commits and a ring of about ten.
fn small_buffers(config: &mut Config) {
    config.watcher_queue = 4;
    config.ring_bytes = 4096;
}

/// The value of one of the store's counters or gauges.
fn metric(store: &Store, name: &str) -> f64 {
    let mut registry = Registry::default();
    store.metrics().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

async fn lagging_watcher_blocks_nobody_and_catches_up(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    let mut asleep = Vec::new();
    for _ in 0..50 {
        asleep.push(peer.watch(Watch::new(KeyRange::all()).previous()).await.unwrap());
    }
    let mut awake = peer.watch(Watch::new(KeyRange::all()).previous()).await.unwrap();
    for number in 0..200 {
        put(&store, "a", format!("{number}")).await;
        if number % 10 == 0 {
            // The one that reads gets events while the others lag.
            next(&mut awake).await.unwrap();
        }
    }
    let rest = delivered_up_to(&mut awake, 201).await.unwrap();
    assert_eq!(rest.last().unwrap(), "201: ~a=199(198)");
    for watcher in &mut asleep[..5] {
        let delivered = delivered_up_to(watcher, 201).await.unwrap();
        assert_eq!(delivered.len(), 200);
        assert_eq!((&delivered[0][..], &delivered[1][..]), ("2: +a=0", "3: ~a=1(0)"));
    }
}

async fn watcher_behind_compaction_expires_without_gap(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    let mut asleep = peer.watch(Watch::new(KeyRange::all())).await.unwrap();
    for number in 0..100 {
        put(&store, "a", format!("{number}")).await;
    }
    store.compact(90).await.unwrap();
    store.wait_for_compaction().await.unwrap();
    let mut delivered = Vec::new();
    let error = loop {
        match next(&mut asleep).await {
            Ok(batch) => delivered.push(batch.revision()),
            Err(error) => break error,
        }
    };
    assert_eq!(error, orlop_store::Error::Expired { compacted: 90 });
    assert_eq!(
        delivered,
        (2..2 + delivered.len() as i64).collect::<Vec<_>>(),
        "what came, came without a gap"
    );
    assert!(delivered.len() < 88, "{delivered:?}");
    assert!(is_expired(&next(&mut asleep).await), "it stays over");
}

async fn burst_of_other_keys_does_not_expire_an_idle_watch(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    let mut quiet = peer.watch(Watch::new(KeyRange::prefix("quiet/"))).await.unwrap();
    for number in 0..100 {
        put(&store, "loud", format!("{number}")).await;
    }
    assert_eq!(delivered_up_to(&mut quiet, 101).await.unwrap(), [""; 0]);
    store.compact(100).await.unwrap();
    store.wait_for_compaction().await.unwrap();
    // More than its queue holds, and more than the ring: it must read on from where it was.
    for number in 0..30 {
        put(&store, format!("quiet/{number:02}"), "x").await;
        put(&store, "loud", vec![b'x'; 600]).await;
    }
    let delivered = delivered_up_to(&mut quiet, 161).await.unwrap();
    let expected: Vec<_> = (0..30).map(|n| format!("{}: +quiet/{n:02}=x", 102 + 2 * n)).collect();
    assert_eq!(delivered, expected);
}

async fn next_up_to_delivers_history_and_stops(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    for number in 0..50 {
        put(&store, "a", format!("{number}")).await;
        put(&store, "b", format!("{number}")).await;
    }
    let newest = peer.revision().await.unwrap();
    let mut watcher = peer.watch(Watch::new(KeyRange::key("a")).after(1).previous()).await.unwrap();
    let mut revisions = Vec::new();
    let all = async {
        while let Some(batch) = watcher.next_up_to(newest).await.unwrap() {
            revisions.push(batch.revision());
        }
    };
    tokio::time::timeout(TIMEOUT, all).await.expect("it stops");
    assert_eq!(revisions, (0..50).map(|number| 2 + 2 * number).collect::<Vec<_>>());
    assert!(watcher.progress() >= newest);
}

async fn commits_larger_than_the_ring_buffer_are_delivered(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    let mut watcher = peer.watch(Watch::new(KeyRange::all())).await.unwrap();
    let mut quiet = peer.watch(Watch::new(KeyRange::key("b"))).await.unwrap();
    for number in 0..10_u8 {
        put(&store, "a", vec![number; 20_000]).await;
    }
    put(&store, "b", "small").await;
    for revision in 2..=11 {
        let batch = next(&mut watcher).await.unwrap();
        let event = batch.events().next().unwrap().event;
        assert_eq!((batch.revision(), event.kv.value.len()), (revision, 20_000));
    }
    assert_eq!(delivered_up_to(&mut quiet, 12).await.unwrap(), ["12: +b=small"]);
}

async fn write_wakes_only_matching_watchers(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut watchers = Vec::new();
    for number in 0..1000 {
        watchers.push(peer.watch(Watch::new(KeyRange::prefix(format!("/{number}/")))).await.unwrap());
    }
    assert_eq!(metric(&peer, "orlop_store_watchers"), 1000.0);
    let before = metric(&peer, "orlop_store_watch_wakes_total");
    for number in [7, 70, 700] {
        put(&store, format!("/{number}/x"), "v").await;
    }
    put(&store, "/nobody", "v").await;
    for (number, revision) in [(7, 2), (70, 3), (700, 4)] {
        let delivered = describe(&next(&mut watchers[number]).await.unwrap());
        assert_eq!(delivered, format!("{revision}: +/{number}/x=v"));
    }
    eventually("everything is dispatched", async || watchers[0].progress() == 5).await;
    assert_eq!(metric(&peer, "orlop_store_watch_wakes_total") - before, 3.0);
    drop(watchers);
    assert_eq!(metric(&peer, "orlop_store_watchers"), 0.0);
}

async fn writers_do_not_wait_for_watchers(db: &Database) {
    let (store, peer) = db.pair_with(small_buffers).await;
    let mut asleep = Vec::new();
    for _ in 0..300 {
        asleep.push(peer.watch(Watch::new(KeyRange::all())).await.unwrap());
    }
    let writing = async {
        for _ in 0..50 {
            put(&store, "a", vec![0; 1000]).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), writing).await.expect("writers wait for watchers");
    assert_eq!(store.revision().await.unwrap(), 51);
}

on_every_engine! {
    lagging_watcher_blocks_nobody_and_catches_up,
    watcher_behind_compaction_expires_without_gap,
    burst_of_other_keys_does_not_expire_an_idle_watch,
    next_up_to_delivers_history_and_stops,
    commits_larger_than_the_ring_buffer_are_delivered,
    write_wakes_only_matching_watchers,
    writers_do_not_wait_for_watchers,
}
