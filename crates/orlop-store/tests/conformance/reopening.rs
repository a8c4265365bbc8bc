//! State after a store is reopened.

use std::time::Duration;

use orlop_store::{
    Durability, Error, Filter, KeyRange, KeyValue, Op, Put, Read, Requirement, Store, Terms, Txn, Watch,
};

use crate::{database::Database, shorthand::*};

async fn everything_survives_reopening(db: &Database) {
    let store = db.open().await;
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    put(&store, "b", "3").await;
    delete(&store, "b").await;
    write(&store, [Op::Put(Put { terms: Terms::new([("x", "y")]), ..Put::new("c", "4") })]).await;
    store.compact(3).await.unwrap();
    store.close().await;
    let store = db.open().await;
    assert_eq!((store.revision().await.unwrap(), store.compacted().await.unwrap()), (6, 3));
    assert_eq!(list(&store, KeyRange::all()).await, ["a=2", "c=4"]);
    assert_eq!(list_at(&store, KeyRange::all(), 4).await.unwrap(), ["a=2", "b=3"]);
    assert!(is_expired(&list_at(&store, KeyRange::all(), 2).await));
    let filter = Filter(vec![Requirement::equals("x", "y")]);
    let found = store.read(Read { filter, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert_eq!(pairs(&found), ["c=4"]);
    let mut watcher = store.watch(Watch::new(KeyRange::all()).previous().after(3)).await.unwrap();
    assert_eq!(delivered_up_to(&mut watcher, 6).await.unwrap(), ["4: +b=3", "5: -b(3)", "6: +c=4"]);
    assert_eq!(put(&store, "d", "5").await, 7, "revisions go on");
}

async fn store_dropped_at_once_reopens_empty(db: &Database) {
    for _ in 0..3 {
        let store = db.open().await;
        assert_eq!(store.revision().await.unwrap(), 1);
        store.close().await;
    }
}

async fn leases_survive_with_their_time_to_live(db: &Database) {
    let store = db.open().await;
    store.grant(Some(1), Duration::from_secs(600)).await.unwrap();
    store.grant(Some(2), Duration::from_secs(1)).await.unwrap();
    for lease in [1, 2] {
        write(&store, [Op::Put(Put { lease, ..Put::new(format!("{lease}"), "v") })]).await;
    }
    store.close().await;
    let store = db.open().await;
    let lease = store.lease(1).await.unwrap();
    assert_eq!(lease.ttl_seconds, 600);
    // On SQLite nobody could keep it alive meanwhile, so that it has its whole time again.
    assert!((500_000..=600_000).contains(&lease.remaining_ms), "{lease:?}");
    assert_eq!(store.lease_keys(1).await.unwrap(), ["1"]);
    let mut watcher = store.watch(Watch::new(KeyRange::all()).after(3)).await.unwrap();
    assert_eq!(describe(&next(&mut watcher).await.unwrap()), "4: -2", "the one that ran out is revoked");
    assert_eq!(store.lease(2).await, Err(Error::LeaseNotFound { lease: 2 }));
}

async fn watch_ends_when_the_store_closes(db: &Database) {
    let store = db.open().await;
    let mut watcher = store.watch(Watch::new(KeyRange::all())).await.unwrap();
    let waiting = tokio::spawn(async move { watcher.next().await.map(|batch| batch.revision()) });
    store.close().await;
    assert!(matches!(waiting.await.unwrap(), Err(Error::Unavailable(_))));
}

async fn interrupted_compaction_is_finished_after_reopening(db: &Database) {
    let store = db.open().await;
    for round in 0..20 {
        write(&store, (0..100).map(|n| put_op(format!("{n}"), vec![round; 1000]))).await;
    }
    // Compacted, and closed before everything below is deleted.
    store.compact(21).await.unwrap();
    store.close().await;
    let store = db.open().await;
    assert_eq!(store.compacted().await.unwrap(), 21);
    assert!(is_expired(&list_at(&store, KeyRange::all(), 20).await));
    // What the compacted revision itself replaced is kept.
    eventually("the rest is forgotten", async || db.sql("SELECT count(*) FROM log") == "200").await;
    assert_eq!(list(&store, KeyRange::all()).await.len(), 100);
}

async fn index_declarations_survive_reopening(db: &Database) {
    let terms = |kv: &KeyValue| Terms::new([("v", String::from_utf8_lossy(&kv.value).into_owned())]);
    let store = db.open().await;
    put(&store, "a", "0").await;
    put(&store, "a", "1").await;
    store.declare_index(KeyRange::all(), "v", terms).await.unwrap();
    store.close().await;
    let store = db.open().await;
    let unexpected = |kv: &KeyValue| panic!("{kv:?} was indexed already");
    store.declare_index(KeyRange::all(), "v", unexpected).await.unwrap();
    let filter = Filter(vec![Requirement::equals("v", "1")]);
    let read = Read { filter, ..Read::new(KeyRange::all()) };
    assert_eq!(pairs(&store.read(read.clone()).await.unwrap()), ["a=1"]);
    let past = store.read(Read { revision: Some(2), ..read }).await;
    assert_eq!(past, Err(Error::NotIndexed("v".into())), "what cannot be filtered is remembered too");
}

async fn relaxed_durability_behaves_the_same(db: &Database) {
    let relaxed = || db.open_with(|config| config.durability = Durability::Relaxed);
    let store = relaxed().await;
    for number in 0..50 {
        put(&store, "a", format!("{number}")).await;
    }
    store.close().await;
    let store = relaxed().await;
    assert_eq!(
        (list(&store, KeyRange::all()).await, store.revision().await.unwrap()),
        (vec!["a=49".into()], 51)
    );
}

async fn close_answers_queued_callers(db: &Database) {
    let store = db.open().await;
    put(&store, "first", "").await;
    let writers = (0..50).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.txn(Txn::of([put_op(format!("{n}"), "")])).await })
    });
    let writers: Vec<_> = writers.collect();
    tokio::time::timeout(TIMEOUT, store.close()).await.unwrap();
    let mut acknowledged = 1;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(_) => acknowledged += 1,
            // Submitted after the store was closed.
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error}"),
        }
    }
    let store: Store = db.open().await;
    assert_eq!(list(&store, KeyRange::all()).await.len(), acknowledged);
}

on_durable_engines! {
    everything_survives_reopening,
    store_dropped_at_once_reopens_empty,
    leases_survive_with_their_time_to_live,
    watch_ends_when_the_store_closes,
    interrupted_compaction_is_finished_after_reopening,
    index_declarations_survive_reopening,
    relaxed_durability_behaves_the_same,
    close_answers_queued_callers,
}
