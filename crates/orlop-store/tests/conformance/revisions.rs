//! One sequence of revisions, without gaps.

use orlop_store::{Error, KeyRange, Op, Read, Txn};

use crate::{database::Database, shorthand::*};

async fn new_store_is_empty_at_revision_one(db: &Database) {
    let (store, _) = db.pair().await;
    assert_eq!(store.revision().await.unwrap(), 1);
    let read = store.read(Read { count: true, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert_eq!((read.revision, read.kvs.len(), read.count), (1, 0, Some(0)));
    assert_eq!(store.compacted().await.unwrap(), 0);
}

async fn writes_have_consecutive_revisions(db: &Database) {
    let (store, peer) = db.pair().await;
    for expected in (2..20).step_by(2) {
        assert_eq!(put(&store, "a", "x").await, expected);
        assert_eq!(put(&peer, "a", "y").await, expected + 1);
    }
    assert_eq!(peer.revision().await.unwrap(), 19);
}

async fn concurrent_writes_have_consecutive_revisions(db: &Database) {
    let (store, peer) = db.pair().await;
    let writers = (0..16).map(|writer| {
        let store = if writer % 2 == 0 { store.clone() } else { peer.clone() };
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            for number in 0..10 {
                revisions.push(put(&store, format!("{writer}"), format!("{number}")).await);
            }
            assert!(revisions.is_sorted());
            revisions
        })
    });
    let mut all = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        all.extend(writer.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (2..=161).collect::<Vec<_>>());
}

async fn transaction_without_changes_keeps_the_revision(db: &Database) {
    let (store, _) = db.pair().await;
    let revision = put(&store, "a", "1").await;
    let nothing = [
        Txn::default(),
        Txn::of([delete_op(KeyRange::key("b"))]),
        Txn::of([delete_op(KeyRange::between("b", "z"))]),
        Txn::of([Op::Read(Read::new(KeyRange::all()))]),
        Txn::replace(orlop_store::Put::new("a", "2"), revision + 7),
        Txn::of([Op::Txn(Txn::create(orlop_store::Put::new("a", "2")))]),
    ];
    for txn in nothing {
        assert_eq!(store.txn(txn.clone()).await.unwrap().revision, revision, "{txn:?}");
    }
    let failed = store.txn(Txn::of([put_op("b", "1"), put_op("b", "2")])).await;
    assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(put(&store, "a", "1").await, revision + 1, "the same bytes are a write all the same");
}

async fn wait_for_revision_returns_when_it_is_observed(db: &Database) {
    let (store, peer) = db.pair().await;
    let early = peer.wait_for_revision(3, std::time::Duration::from_millis(20)).await;
    assert_eq!(early, Err(Error::FutureRevision { requested: 3, current: 1 }));
    let waiting = tokio::spawn({
        let peer = peer.clone();
        async move { peer.wait_for_revision(3, TIMEOUT).await }
    });
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    waiting.await.unwrap().unwrap();
    assert_eq!(peer.revision().await.unwrap(), 3);
    peer.wait_for_revision(2, std::time::Duration::ZERO).await.unwrap();
}

on_every_engine! {
    new_store_is_empty_at_revision_one,
    writes_have_consecutive_revisions,
    concurrent_writes_have_consecutive_revisions,
    transaction_without_changes_keeps_the_revision,
    wait_for_revision_returns_when_it_is_observed,
}
