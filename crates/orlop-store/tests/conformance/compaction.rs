//! Compaction: history before a revision is forgotten; the revision itself stays.

use std::time::Duration;

use orlop_store::{Error, KeyRange, Put, Read, Txn, Watch};

use crate::{database::Database, shorthand::*};

fn all_after(revision: i64) -> Watch {
    Watch::new(KeyRange::all()).previous().after(revision)
}

async fn reads_below_the_compacted_revision_expire(db: &Database) {
    let (store, peer) = db.pair().await;
    for number in 0..10 {
        put(&store, "a", format!("{number}")).await;
        put(&store, format!("b{number}"), "v").await;
    }
    let before = list_at(&peer, KeyRange::all(), 10).await.unwrap();
    compact(&store, 10).await;
    assert_eq!(peer.compacted().await.unwrap(), 10);
    for revision in 1..10 {
        let expired = list_at(&peer, KeyRange::all(), revision).await;
        assert_eq!(expired, Err(Error::Expired { compacted: 10 }), "at {revision}");
    }
    assert_eq!(list_at(&peer, KeyRange::all(), 10).await.unwrap(), before);
    for revision in 11..=21 {
        assert!(list_at(&peer, KeyRange::all(), revision).await.is_ok(), "at {revision}");
    }
    assert_eq!(peer.revision().await.unwrap(), 21, "compaction makes no revision");
    let inside = Read { revision: Some(5), ..Read::new(KeyRange::all()) };
    let inside = store.txn(Txn::of([orlop_store::Op::Read(inside)])).await;
    assert_eq!(inside, Err(Error::Expired { compacted: 10 }));
}

async fn watches_below_the_compacted_revision_expire(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let revision = put(&store, "a", format!("{number}")).await;
        expected.push((revision, format!("{revision}: ~a={number}({})", number - 1)));
    }
    compact(&store, 10).await;
    for after in 0..=8 {
        assert!(is_expired(&peer.watch(all_after(after)).await), "after {after}");
    }
    for after in 9..=21 {
        let mut watcher = peer.watch(all_after(after)).await.unwrap();
        let delivered = delivered_up_to(&mut watcher, 21).await.unwrap();
        let rest: Vec<_> =
            expected.iter().filter(|(r, _)| *r > after).map(|(_, delivered)| delivered.clone()).collect();
        assert_eq!(delivered, rest, "after {after}");
    }
}

async fn compaction_at_a_tombstone_keeps_its_event(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    put(&store, "b", "1").await;
    delete(&store, "a").await;
    put(&store, "c", "1").await;
    compact(&store, 4).await;
    let mut watcher = peer.watch(all_after(3)).await.unwrap();
    assert_eq!(delivered_up_to(&mut watcher, 5).await.unwrap(), ["4: -a(1)", "5: +c=1"]);
    assert_eq!(list_at(&peer, KeyRange::all(), 4).await.unwrap(), ["b=1"]);
}

async fn revisions_continue_after_the_last_tombstone_is_compacted(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    delete(&store, "a").await;
    compact(&store, 3).await;
    assert_eq!(peer.revision().await.unwrap(), 3);
    assert_eq!(put(&store, "a", "2").await, 4);
    compact(&store, 4).await;
    assert_eq!(peer.revision().await.unwrap(), 4);
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!((kv.create_revision, kv.revision, kv.version), (4, 4, 1));
}

async fn live_keys_survive_compaction(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "old", "1").await;
    for number in 0..2000 {
        if number % 100 == 0 {
            write(&store, (0..50).map(|n| put_op(format!("k{n}"), format!("{number}")))).await;
        }
    }
    write(&store, [delete_op(KeyRange::prefix("k4"))]).await;
    let before = list(&peer, KeyRange::all()).await;
    let newest = peer.revision().await.unwrap();
    compact(&store, newest).await;
    assert_eq!(list(&peer, KeyRange::all()).await, before);
    let old = get(&peer, "old").await.unwrap();
    assert_eq!((old.revision, old.version), (2, 1));
    let guarded = store.txn(Txn::replace(Put::new("old", "2"), 2)).await.unwrap();
    assert!(guarded.succeeded, "compares see what compaction has left");
}

async fn compaction_of_past_or_future_revisions_fails(db: &Database) {
    let (store, peer) = db.pair().await;
    for number in 0..5 {
        put(&store, "a", format!("{number}")).await;
    }
    compact(&store, 4).await;
    for again in [4, 3, 1] {
        assert_eq!(peer.compact(again).await, Err(Error::Expired { compacted: 4 }), "at {again}");
    }
    let future = Err(Error::FutureRevision { requested: 7, current: 6 });
    assert_eq!(peer.compact(7).await, future);
    assert_eq!(peer.compacted().await.unwrap(), 4);
    compact(&peer, 6).await;
    assert_eq!(store.compacted().await.unwrap(), 6);
}

async fn compaction_does_not_affect_watchers_that_keep_up(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut watcher = peer.watch(all_after(1)).await.unwrap();
    let mut delivered = Vec::new();
    for number in 0..100 {
        let revision = put(&store, "a", format!("{number}")).await;
        delivered.extend(delivered_up_to(&mut watcher, revision).await.unwrap());
        if number % 5 == 4 {
            compact(&store, revision).await;
        }
    }
    let expected = (1..100).map(|number| format!("{}: ~a={number}({})", number + 2, number - 1));
    assert_eq!(delivered[1..], expected.collect::<Vec<_>>());
}

async fn history_older_than_the_retention_is_compacted(db: &Database) {
    let retention = Some(Duration::from_millis(300));
    let (store, peer) = db.pair_with(|config| config.retention = retention).await;
    for number in 0..5 {
        put(&store, "a", format!("{number}")).await;
    }
    assert_eq!(list_at(&peer, KeyRange::all(), 3).await.unwrap(), ["a=1"], "what is young is kept");
    eventually("the past is compacted", async || peer.compacted().await.unwrap() == 6).await;
    assert!(is_expired(&list_at(&peer, KeyRange::all(), 3).await));
    assert_eq!(list(&peer, KeyRange::all()).await, ["a=4"]);
}

async fn compaction_runs_beside_writers_and_readers(db: &Database) {
    let (store, peer) = db.pair().await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..600 {
                put(&store, format!("k{}", number % 10), format!("{number}")).await;
            }
        }
    });
    let mut compacted = 0;
    while !writer.is_finished() {
        let read = peer.read(Read::new(KeyRange::all())).await.unwrap();
        let newest = read.kvs.iter().map(|kv| kv.revision).max().unwrap_or(1);
        assert_eq!(newest, read.revision, "a list has everything up to its revision");
        if read.revision > compacted + 20 {
            compacted = read.revision;
            compact(&store, compacted).await;
        }
    }
    writer.await.unwrap();
    assert!(compacted > 1);
    let expected: Vec<_> = (590..600).map(|number| format!("k{}={number}", number % 10)).collect();
    assert_eq!(list(&peer, KeyRange::all()).await, expected);
}

async fn compacted_rows_are_deleted_from_all_tables(db: &Database) {
    let store = db.open().await;
    for round in 0..30 {
        write(&store, (0..50).map(|n| put_op(format!("{n}"), format!("{round}")))).await;
    }
    write(&store, [delete_op(KeyRange::prefix("1"))]).await;
    put(&store, "0", "last").await;
    compact(&store, 33).await;
    assert_eq!(db.sql("SELECT count(*) FROM live"), "39");
    // What the compacted revision itself replaced stays for watches that begin right there.
    assert_eq!(db.sql("SELECT count(*) FROM history WHERE superseded_at < 33"), "0");
    assert_eq!(db.sql("SELECT count(*) FROM log"), "40");
}

async fn free_space_is_returned_to_the_file_system(db: &Database) {
    let (store, _) = db.pair().await;
    for number in 0..40_u8 {
        put(&store, "a", vec![number; 400_000]).await;
    }
    let before = store.size().await.unwrap();
    assert!(before.used > 14_000_000, "{before:?}");
    compact(&store, 41).await;
    let after = store.size().await.unwrap();
    assert!(after.used < 2_000_000, "{after:?}");
    assert!(after.total < before.total / 4, "{before:?} became {after:?}");
    if let Ok(file) = std::fs::metadata(db.file()) {
        let len = || std::fs::metadata(db.file()).unwrap().len();
        eventually("the file shrinks", async || len() < before.total / 4).await;
        assert!(file.len() > 0);
    }
    assert_eq!(get(&store, "a").await.unwrap().value.len(), 400_000);
}

async fn compaction_reduces_used_bytes(db: &Database) {
    let (store, _) = db.pair().await;
    for round in 0..4 {
        let value = vec![b'a' + round; 2_000];
        write(&store, (0..100).map(|n| put_op(format!("{n:03}"), value.clone()))).await;
    }
    // The version that the newest revision superseded stays for watches from there.
    put(&store, "newest", "x").await;
    let before = store.size().await.unwrap();
    assert!(before.used >= 400 * 2_000 && before.used <= before.total, "{before:?}");
    store.compact(store.revision().await.unwrap()).await.unwrap();
    store.wait_for_compaction().await.unwrap();
    let after = store.size().await.unwrap();
    assert!(after.used < before.used / 2, "{before:?} then {after:?}");
}

on_every_engine! {
    compaction_reduces_used_bytes,
    reads_below_the_compacted_revision_expire,
    watches_below_the_compacted_revision_expire,
    compaction_at_a_tombstone_keeps_its_event,
    revisions_continue_after_the_last_tombstone_is_compacted,
    live_keys_survive_compaction,
    compaction_of_past_or_future_revisions_fails,
    compaction_does_not_affect_watchers_that_keep_up,
    history_older_than_the_retention_is_compacted,
    compaction_runs_beside_writers_and_readers,
}

on_sqlite! {
    free_space_is_returned_to_the_file_system,
}

on_durable_engines! {
    compacted_rows_are_deleted_from_all_tables,
}
