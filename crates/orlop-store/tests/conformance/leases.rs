//! Leases: keys that are deleted when nobody keeps them.

use std::time::Duration;

use orlop_store::{Error, KeyRange, LeaseId, Op, Put, Store, Txn, Watch};

use crate::{database::Database, shorthand::*};

const LONG: Duration = Duration::from_secs(600);

async fn put_on(store: &Store, key: &str, lease: LeaseId) -> i64 {
    write(store, [Op::Put(Put { lease, ..Put::new(key.to_owned(), "v") })]).await
}

async fn leases_have_chosen_or_generated_ids(db: &Database) {
    let (store, peer) = db.pair().await;
    let chosen = store.grant(Some(7), LONG).await.unwrap();
    assert_eq!((chosen.id, chosen.ttl_seconds), (7, 600));
    assert!((1..=600_000).contains(&chosen.remaining_ms), "{chosen:?}");
    let (first, second) = (store.grant(None, LONG).await.unwrap(), peer.grant(None, LONG).await.unwrap());
    assert!(first.id > 0 && second.id > 0 && first.id != second.id);
    assert_eq!(peer.grant(Some(7), LONG).await, Err(Error::LeaseExists { lease: 7 }));
    assert!(matches!(store.grant(Some(0), LONG).await, Err(Error::Invalid(_))), "0 is no lease");
    assert_eq!(store.grant(Some(-1), LONG).await.unwrap().id, -1, "etcd's clients choose any other");
    store.revoke(-1).await.unwrap();
    let mut ids: Vec<_> = peer.leases().await.unwrap().into_iter().map(|lease| lease.id).collect();
    ids.sort_unstable();
    let mut expected = vec![7, first.id, second.id];
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!(store.revision().await.unwrap(), 1, "leases make no revisions");
    assert_eq!(store.grant(Some(8), Duration::ZERO).await.unwrap().ttl_seconds, 1, "a second at least");
}

async fn leases_are_listed_by_expiry(db: &Database) {
    let (store, peer) = db.pair().await;
    for (id, seconds) in [(1, 300), (2, 100), (3, 200)] {
        store.grant(Some(id), Duration::from_secs(seconds)).await.unwrap();
    }
    let ids: Vec<_> = peer.leases().await.unwrap().into_iter().map(|lease| lease.id).collect();
    assert_eq!(ids, [2, 3, 1]);
    store.keep_alive(2).await.unwrap();
    assert_eq!(peer.lease(2).await.unwrap().ttl_seconds, 100);
}

async fn revoke_deletes_keys_at_one_revision(db: &Database) {
    let (store, peer) = db.pair().await;
    for id in [7, 8] {
        store.grant(Some(id), LONG).await.unwrap();
    }
    put_on(&store, "a", 7).await;
    put_on(&store, "b", 8).await;
    put_on(&store, "c", 7).await;
    put(&store, "d", "v").await;
    assert_eq!(peer.lease_keys(7).await.unwrap(), ["a", "c"]);
    let mut watcher = peer.watch(Watch::new(KeyRange::all()).previous().after(5)).await.unwrap();
    assert_eq!(peer.revoke(7).await.unwrap(), 6);
    assert_eq!(delivered_up_to(&mut watcher, 6).await.unwrap(), ["6: -a(v) -c(v)"]);
    assert_eq!(list(&store, KeyRange::all()).await, ["b=v", "d=v"]);
    for gone in [store.revoke(7).await.map(drop), store.keep_alive(7).await.map(drop)] {
        assert_eq!(gone, Err(Error::LeaseNotFound { lease: 7 }));
    }
    assert_eq!(store.lease(7).await, Err(Error::LeaseNotFound { lease: 7 }));
    assert_eq!(store.lease_keys(7).await.unwrap(), [""; 0]);
    store.grant(Some(7), LONG).await.unwrap();
    assert_eq!(store.revoke(7).await.unwrap(), 6, "without keys there is nothing to delete");
}

async fn key_is_attached_to_the_lease_of_its_last_put(db: &Database) {
    let (store, peer) = db.pair().await;
    for id in [7, 8] {
        store.grant(Some(id), LONG).await.unwrap();
    }
    put_on(&store, "a", 7).await;
    put_on(&store, "b", 7).await;
    put_on(&store, "c", 7).await;
    put_on(&store, "a", 8).await; // moves
    put(&store, "b", "v").await; // lets go
    delete(&store, "c").await;
    put(&store, "c", "v").await; // is another key by now
    assert_eq!(peer.lease_keys(7).await.unwrap(), [""; 0]);
    assert_eq!(peer.lease_keys(8).await.unwrap(), ["a"]);
    let before = store.revision().await.unwrap();
    assert_eq!(store.revoke(7).await.unwrap(), before);
    assert_eq!(store.revoke(8).await.unwrap(), before + 1);
    assert_eq!(list(&peer, KeyRange::all()).await, ["b=v", "c=v"]);
}

async fn put_with_unknown_lease_fails(db: &Database) {
    let (store, peer) = db.pair().await;
    let put = Put { lease: 9, ..Put::new("a", "v") };
    assert_eq!(store.txn(Txn::of([Op::Put(put)])).await, Err(Error::LeaseNotFound { lease: 9 }));
    assert_eq!(get(&peer, "a").await, None);
}

async fn expired_lease_deletes_its_keys(db: &Database) {
    let (store, peer) = db.pair().await;
    store.grant(Some(1), Duration::from_secs(1)).await.unwrap();
    store.grant(Some(2), LONG).await.unwrap();
    put_on(&store, "a", 1).await;
    put_on(&store, "b", 2).await;
    put_on(&store, "c", 1).await;
    let mut watcher = peer.watch(Watch::new(KeyRange::all()).after(4)).await.unwrap();
    assert_eq!(describe(&next(&mut watcher).await.unwrap()), "5: -a -c");
    assert_eq!(list(&peer, KeyRange::all()).await, ["b=v"]);
    assert_eq!(peer.lease(1).await, Err(Error::LeaseNotFound { lease: 1 }));
    assert!(peer.lease(2).await.is_ok());
}

async fn renewed_lease_does_not_expire(db: &Database) {
    let (store, peer) = db.pair().await;
    for id in [1, 2] {
        store.grant(Some(id), Duration::from_secs(2)).await.unwrap();
        put_on(&store, &format!("{id}"), id).await;
    }
    let mut watcher = peer.watch(Watch::new(KeyRange::all()).after(3)).await.unwrap();
    // The second is kept alive until the first, as old, has run out.
    let first_gone = loop {
        assert_eq!(store.keep_alive(2).await.unwrap().ttl_seconds, 2);
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(200), watcher.next()).await {
            break describe(&batch.unwrap());
        }
    };
    assert_eq!(first_gone, "4: -1");
    assert!(peer.lease(2).await.unwrap().remaining_ms > 0);
    assert_eq!(list(&peer, KeyRange::all()).await, ["2=v"]);
}

async fn recently_renewed_lease_can_be_revoked(db: &Database) {
    let (store, peer) = db.pair().await;
    store.grant(Some(7), LONG).await.unwrap();
    put_on(&store, "a", 7).await;
    for _ in 0..100 {
        assert_eq!(store.keep_alive(7).await.unwrap().ttl_seconds, 600);
    }
    assert!(peer.lease(7).await.unwrap().remaining_ms > 590_000);
    store.revoke(7).await.unwrap();
    assert_eq!(store.keep_alive(7).await, Err(Error::LeaseNotFound { lease: 7 }));
    assert_eq!(get(&peer, "a").await, None);
    // Of another process's revocation it hears within a moment.
    store.grant(Some(8), LONG).await.unwrap();
    store.keep_alive(8).await.unwrap();
    peer.revoke(8).await.unwrap();
    let heard = async {
        while store.keep_alive(8).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), heard).await.expect("a revoked lease lives on");
}

on_every_engine! {
    leases_have_chosen_or_generated_ids,
    leases_are_listed_by_expiry,
    revoke_deletes_keys_at_one_revision,
    key_is_attached_to_the_lease_of_its_last_put,
    put_with_unknown_lease_fails,
    expired_lease_deletes_its_keys,
    renewed_lease_does_not_expire,
    recently_renewed_lease_can_be_revoked,
}
