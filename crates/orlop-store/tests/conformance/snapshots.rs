//! Online backup: a snapshot is a database file of its own.

use orlop_store::{Config, Endpoint, Error, Filter, KeyRange, Op, Put, Read, Requirement, Terms, Watch};

use crate::{database::Database, shorthand::*};

async fn snapshot_opens_as_a_store(db: &Database) {
    let (store, peer) = db.pair().await;
    store.grant(Some(5), std::time::Duration::from_secs(600)).await.unwrap();
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    write(&store, [Op::Put(Put { lease: 5, terms: Terms::new([("x", "y")]), ..Put::new("b", "3") })]).await;
    delete(&store, "a").await;
    store.compact(3).await.unwrap();
    let path = db.beside("snapshot.db");
    peer.snapshot(&path).await.unwrap();
    put(&store, "c", "after").await;
    let config = Config { retention: None, ..Config::new(Endpoint::Sqlite(path)) };
    let restored = orlop_store::Store::open(config).await.unwrap();
    assert_eq!((restored.revision().await.unwrap(), restored.compacted().await.unwrap()), (5, 3));
    assert_eq!(list(&restored, KeyRange::all()).await, ["b=3"]);
    assert_eq!(list_at(&restored, KeyRange::all(), 4).await.unwrap(), ["a=2", "b=3"]);
    assert_eq!(restored.lease_keys(5).await.unwrap(), ["b"]);
    let filter = Filter(vec![Requirement::equals("x", "y")]);
    let found = restored.read(Read { filter, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert_eq!(pairs(&found), ["b=3"]);
    let mut watcher = restored.watch(Watch::new(KeyRange::all()).previous().after(3)).await.unwrap();
    assert_eq!(delivered_up_to(&mut watcher, 5).await.unwrap(), ["4: +b=3", "5: -a(2)"]);
    assert_eq!(put(&restored, "d", "goes on").await, 6);
    assert_eq!(list(&store, KeyRange::all()).await, ["b=3", "c=after"], "they are two databases");
}

async fn snapshot_beside_writers_is_consistent(db: &Database) {
    let (store, peer) = db.pair().await;
    let writer = tokio::spawn(async move {
        for number in 0..300 {
            // Both keys always change together.
            write(&store, [put_op("a", format!("{number}")), put_op("b", format!("{number}"))]).await;
        }
    });
    let mut snapshots = Vec::new();
    while !writer.is_finished() && snapshots.len() < 5 {
        let path = db.beside(&format!("{}.db", snapshots.len()));
        let before = peer.revision().await.unwrap();
        peer.snapshot(&path).await.unwrap();
        snapshots.push((path, before, peer.revision().await.unwrap()));
    }
    writer.await.unwrap();
    assert!(!snapshots.is_empty());
    for (path, before, after) in snapshots {
        let copy = orlop_store::Store::open(Config::new(Endpoint::Sqlite(path))).await.unwrap();
        let revision = copy.revision().await.unwrap();
        assert!((before..=after).contains(&revision), "{before} {revision} {after}");
        let number = revision - 2;
        let expected = if number < 0 { vec![] } else { vec![format!("a={number}"), format!("b={number}")] };
        assert_eq!(list(&copy, KeyRange::all()).await, expected);
    }
}

async fn snapshot_does_not_overwrite_a_file(db: &Database) {
    let (store, _) = db.pair().await;
    put(&store, "a", "1").await;
    let path = db.beside("there.db");
    std::fs::write(&path, "mine").unwrap();
    let refused = store.snapshot(&path).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let nowhere = store.snapshot(&db.beside("no/such/folder.db")).await;
    assert!(nowhere.is_err());
    assert_eq!(put(&store, "a", "2").await, 3, "the store goes on");
}

on_every_engine! {
    snapshot_opens_as_a_store,
    snapshot_beside_writers_is_consistent,
    snapshot_does_not_overwrite_a_file,
}
