//! If every compare holds, then, else otherwise: atomically, and at one revision.

use bytes::Bytes;
use orlop_store::{
    Compare, Comparison, Delete, Error, KeyRange, Op, OpResult, Put, Read, Select, Store, Target, Txn,
    TxnResult,
};

use crate::{database::Database, shorthand::*};

use Comparison::{Equal, Greater, Less, NotEqual};

/// Returns true if a compare holds.
async fn holds(store: &Store, range: KeyRange, comparison: Comparison, target: Target) -> bool {
    let compares = vec![Compare::new(range, comparison, target)];
    store.txn(Txn { compares, ..Txn::default() }).await.unwrap().succeeded
}

fn reads(result: &TxnResult) -> Vec<Vec<String>> {
    let reads = result.results.iter().filter_map(|result| match result {
        OpResult::Read(read) => Some(pairs(read)),
        _ => None,
    });
    reads.collect()
}

async fn every_comparison_works_on_every_target(db: &Database) {
    let (store, peer) = db.pair().await;
    let lease = store.grant(Some(50), TIMEOUT).await.unwrap().id;
    put(&store, "a", "1").await;
    let created = put(&store, "k", "m").await;
    let revision = write(&store, [Op::Put(Put { lease, ..Put::new("k", "n") })]).await;
    // What the key's side is, and a target below it, at it and above it.
    let targets = [
        [Target::Value("m".into()), Target::Value("n".into()), Target::Value("na".into())],
        [Target::Version(1), Target::Version(2), Target::Version(3)],
        [created - 1, created, created + 1].map(Target::CreateRevision),
        [revision - 1, revision, revision + 1].map(Target::Revision),
        [lease - 1, lease, lease + 1].map(Target::Lease),
    ];
    for targets in targets {
        for (target, side) in targets.into_iter().zip([Greater, Equal, Less]) {
            for comparison in [Equal, NotEqual, Greater, Less] {
                let expected = if side == Equal {
                    comparison == Equal
                } else {
                    comparison == side || comparison == NotEqual
                };
                let held = holds(&peer, KeyRange::key("k"), comparison, target.clone()).await;
                assert_eq!(held, expected, "{comparison:?} {target:?}");
            }
        }
    }
}

async fn absent_key_compares_as_zero_except_to_values(db: &Database) {
    let (store, _) = db.pair().await;
    put(&store, "other", "x").await;
    for range in [KeyRange::key("k"), KeyRange::prefix("k"), KeyRange::between("z", "a")] {
        for target in [Target::Version(0), Target::CreateRevision(0), Target::Revision(0), Target::Lease(0)] {
            assert!(holds(&store, range.clone(), Equal, target.clone()).await, "{target:?}");
            assert!(!holds(&store, range.clone(), NotEqual, target.clone()).await, "{target:?}");
            assert!(!holds(&store, range.clone(), Greater, target.clone()).await, "{target:?}");
        }
        assert!(holds(&store, range.clone(), Less, Target::Revision(1)).await);
        for comparison in [Equal, NotEqual, Greater, Less] {
            assert!(!holds(&store, range.clone(), comparison, Target::Value(Bytes::new())).await);
        }
    }
}

async fn range_compare_must_hold_for_every_key(db: &Database) {
    let (store, peer) = db.pair().await;
    for key in ["r/1", "r/2", "r/3"] {
        put(&store, key, "same").await;
    }
    put(&store, "r0", "else").await;
    let last = put(&store, "r/3", "same").await;
    let range = KeyRange::prefix("r/");
    assert!(holds(&peer, range.clone(), Equal, Target::Value("same".into())).await);
    assert!(holds(&peer, range.clone(), Less, Target::Revision(last + 1)).await);
    assert!(!holds(&peer, range.clone(), Less, Target::Revision(last)).await, "one key is as new");
    assert!(!holds(&peer, range, Equal, Target::Version(1)).await);
    assert!(!holds(&peer, KeyRange::prefix("r"), Equal, Target::Value("same".into())).await);
    assert!(holds(&peer, KeyRange::all(), Greater, Target::CreateRevision(1)).await);
}

async fn failed_compare_takes_the_else_branch(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    let compare =
        |key: &'static str, version| Compare::new(KeyRange::key(key), Equal, Target::Version(version));
    let txn = |compares| Txn {
        compares,
        then: vec![put_op("then", "1")],
        otherwise: vec![put_op("else", "1"), Op::Read(Read::new(KeyRange::key("a")))],
    };
    let first = store.txn(txn(vec![compare("a", 1), compare("b", 1)])).await.unwrap();
    assert!(!first.succeeded);
    assert_eq!(reads(&first), [["a=1"]]);
    assert_eq!(first.found().unwrap().value, "1");
    assert_eq!(list(&peer, KeyRange::all()).await, ["a=1", "else=1"]);
    let second = store.txn(txn(vec![compare("a", 1), compare("b", 0)])).await.unwrap();
    assert!(second.succeeded);
    assert_eq!(second.results, [OpResult::Put(None)]);
    assert_eq!(list(&peer, KeyRange::all()).await, ["a=1", "else=1", "then=1"]);
}

async fn transaction_has_one_revision(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "gone/1", "x").await;
    put(&store, "gone/2", "x").await;
    let result = store
        .txn(Txn::of([
            put_op("a", "1"),
            delete_op(KeyRange::prefix("gone/")),
            put_op("b", "2"),
            Op::Txn(Txn::of([put_op("c", "3")])),
        ]))
        .await
        .unwrap();
    assert_eq!(result.revision, 4);
    assert_eq!(result.results[1], OpResult::Delete { deleted: 2, previous: vec![] });
    let OpResult::Txn(inner) = &result.results[3] else { panic!("{result:?}") };
    assert_eq!((inner.revision, inner.succeeded), (4, true));
    let all = peer.read(Read::new(KeyRange::all())).await.unwrap();
    assert_eq!(pairs(&all), ["a=1", "b=2", "c=3"]);
    assert!(all.kvs.iter().all(|kv| kv.revision == 4 && kv.create_revision == 4 && kv.version == 1));
}

async fn operations_see_earlier_operations(db: &Database) {
    let (store, _) = db.pair().await;
    put(&store, "k/1", "old").await;
    put(&store, "k/2", "old").await;
    let all = || Op::Read(Read { count: true, ..Read::new(KeyRange::prefix("k/")) });
    let result = store
        .txn(Txn::of([
            all(),
            put_op("k/1", "new"),
            put_op("k/3", "new"),
            all(),
            delete_op(KeyRange::key("k/2")),
            all(),
            Op::Read(Read { limit: 1, count: true, ..Read::new(KeyRange::prefix("k/")) }),
            Op::Read(Read { select: Select::Keys, ..Read::new(KeyRange::key("k/1")) }),
            Op::Read(Read::count(KeyRange::all())),
            Op::Read(Read { revision: Some(3), ..Read::new(KeyRange::prefix("k/")) }),
        ]))
        .await
        .unwrap();
    let OpResult::Read(limited) = &result.results[6] else { panic!("{result:?}") };
    assert_eq!((limited.more, limited.count, limited.revision), (true, Some(2), 4));
    let OpResult::Read(counted) = &result.results[8] else { panic!("{result:?}") };
    assert_eq!((counted.count, counted.kvs.len()), (Some(2), 0));
    assert_eq!(
        reads(&result),
        [
            vec!["k/1=old", "k/2=old"],
            vec!["k/1=new", "k/2=old", "k/3=new"],
            vec!["k/1=new", "k/3=new"],
            vec!["k/1=new"],
            vec!["k/1="],
            vec![],
            vec!["k/1=old", "k/2=old"],
        ]
    );
}

async fn nested_compares_see_the_state_before_the_transaction(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "before").await;
    let inner = Txn {
        compares: vec![Compare::new(KeyRange::key("a"), Equal, Target::Value("before".into()))],
        then: vec![put_op("b", "inner then"), Op::Read(Read::new(KeyRange::key("a")))],
        otherwise: vec![put_op("b", "inner else")],
    };
    let result = store.txn(Txn::of([put_op("a", "after"), Op::Txn(inner)])).await.unwrap();
    let OpResult::Txn(inner) = &result.results[1] else { panic!("{result:?}") };
    assert!(inner.succeeded);
    assert_eq!(reads(inner), [["a=after"]], "its steps see the steps before them");
    assert_eq!(list(&peer, KeyRange::all()).await, ["a=after", "b=inner then"]);
}

async fn transactions_nest_to_either_branch(db: &Database) {
    let (store, peer) = db.pair().await;
    let exists = |key: &'static str| Compare::new(KeyRange::key(key), Greater, Target::Version(0));
    let leaf = |name: &'static str| Txn {
        compares: vec![exists("a")],
        then: vec![put_op(format!("{name}/then"), "")],
        otherwise: vec![put_op(format!("{name}/else"), "")],
    };
    let txn = Txn {
        compares: vec![exists("a")],
        then: vec![Op::Txn(leaf("unseen"))],
        otherwise: vec![Op::Txn(leaf("one")), Op::Txn(Txn::of([Op::Txn(leaf("two"))]))],
    };
    let result = store.txn(txn).await.unwrap();
    assert!(!result.succeeded);
    assert_eq!(list(&peer, KeyRange::all()).await, ["one/else=", "two/else="]);
}

async fn duplicate_key_in_one_transaction_fails(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "k/1", "old").await;
    let nested = |op| Op::Txn(Txn::of([op]));
    let twice = [
        [put_op("k/1", "1"), put_op("k/1", "2")],
        [put_op("k/1", "1"), delete_op(KeyRange::prefix("k/"))],
        [delete_op(KeyRange::key("k/1")), put_op("k/1", "2")],
        [put_op("k/1", "1"), nested(put_op("k/1", "2"))],
        [nested(delete_op(KeyRange::key("k/1"))), put_op("k/1", "2")],
    ];
    for ops in twice {
        let result = store.txn(Txn::of([put_op("other", "x")].into_iter().chain(ops.clone()))).await;
        assert_eq!(result, Err(Error::DuplicateKey { key: "k/1".into() }), "{ops:?}");
    }
    assert_eq!(list(&peer, KeyRange::all()).await, ["k/1=old"]);
    assert_eq!(peer.revision().await.unwrap(), 2);
    let both = [delete_op(KeyRange::prefix("k/")), delete_op(KeyRange::all())];
    assert_eq!(write(&store, both).await, 3, "deleting what is deleted already changes nothing twice");
}

async fn failed_transaction_writes_nothing(db: &Database) {
    let (store, peer) = db.pair().await;
    let mut watch = peer.watch(orlop_store::Watch::new(KeyRange::all())).await.unwrap();
    let failing = [
        Op::Put(Put { keep_value: true, ..Put::new("missing", "") }),
        Op::Put(Put { keep_lease: true, ..Put::new("missing", "v") }),
        Op::Put(Put { lease: 404, ..Put::new("b", "v") }),
        Op::Read(Read { revision: Some(100), ..Read::new(KeyRange::all()) }),
    ];
    let expected = [
        Error::NotFound { key: "missing".into() },
        Error::NotFound { key: "missing".into() },
        Error::LeaseNotFound { lease: 404 },
        // What the transaction itself would make is the future to it, as in etcd.
        Error::FutureRevision { requested: 100, current: 1 },
    ];
    for (op, error) in failing.into_iter().zip(expected) {
        assert_eq!(store.txn(Txn::of([put_op("a", "1"), op])).await, Err(error));
    }
    assert_eq!(peer.revision().await.unwrap(), 1);
    assert_eq!(list(&peer, KeyRange::all()).await, [""; 0]);
    put(&store, "a", "1").await;
    assert_eq!(describe(&next(&mut watch).await.unwrap()), "2: +a=1", "nothing was heard of the others");
}

async fn version_counts_writes_since_creation(db: &Database) {
    let (store, peer) = db.pair().await;
    put(&store, "a", "1").await;
    put(&store, "a", "2").await;
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!((kv.create_revision, kv.revision, kv.version), (2, 3, 2));
    delete(&store, "a").await;
    put(&store, "a", "3").await;
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!((kv.create_revision, kv.revision, kv.version), (5, 5, 1));
}

async fn put_and_delete_return_previous_versions_on_request(db: &Database) {
    let (store, _) = db.pair().await;
    let asking = |value: &'static str| Op::Put(Put { previous: true, ..Put::new("a", value) });
    let first = store.txn(Txn::of([asking("1")])).await.unwrap();
    assert_eq!(first.results, [OpResult::Put(None)]);
    let second = store.txn(Txn::of([asking("2")])).await.unwrap();
    let OpResult::Put(Some(previous)) = &second.results[0] else { panic!("{second:?}") };
    assert_eq!((pair(previous), previous.revision), ("a=1".into(), 2));
    put(&store, "b", "3").await;
    let range = KeyRange::all();
    let deleted = store.txn(Txn::of([Op::Delete(Delete { range, previous: true })])).await.unwrap();
    let OpResult::Delete { deleted: 2, previous } = &deleted.results[0] else { panic!("{deleted:?}") };
    assert_eq!(previous.iter().map(pair).collect::<Vec<_>>(), ["a=2", "b=3"]);
}

async fn put_can_keep_value_or_lease(db: &Database) {
    let (store, peer) = db.pair().await;
    let lease = store.grant(None, TIMEOUT).await.unwrap().id;
    write(&store, [Op::Put(Put { lease, ..Put::new("a", "1") })]).await;
    write(&store, [Op::Put(Put { keep_lease: true, ..Put::new("a", "2") })]).await;
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!((pair(&kv), kv.lease, kv.version), ("a=2".into(), lease, 2));
    write(&store, [Op::Put(Put { keep_value: true, ..Put::new("a", "ignored") })]).await;
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!((pair(&kv), kv.lease, kv.version), ("a=2".into(), 0, 3));
}

async fn create_replace_and_remove_are_compare_and_swap(db: &Database) {
    let (store, peer) = db.pair().await;
    let created = store.txn(Txn::create(Put::new("a", "1"))).await.unwrap();
    assert!(created.succeeded);
    let again = store.txn(Txn::create(Put::new("a", "2"))).await.unwrap();
    assert!(!again.succeeded);
    assert_eq!(again.found().map(pair).unwrap(), "a=1");
    let replaced = store.txn(Txn::replace(Put::new("a", "2"), created.revision)).await.unwrap();
    assert!(replaced.succeeded);
    let stale = store.txn(Txn::replace(Put::new("a", "3"), created.revision)).await.unwrap();
    assert!(!stale.succeeded);
    assert_eq!(stale.found().unwrap().revision, replaced.revision);
    assert!(!store.txn(Txn::remove("a", created.revision)).await.unwrap().succeeded);
    let removed = store.txn(Txn::remove("a", replaced.revision)).await.unwrap();
    assert!(removed.succeeded);
    assert_eq!(removed.revision, 4, "a deletion has a revision of its own");
    assert_eq!(get(&peer, "a").await, None);
}

async fn one_of_many_concurrent_creates_succeeds(db: &Database) {
    let (store, peer) = db.pair().await;
    let revision = put(&store, "a", "start").await;
    let racers = (0..16).map(|racer| {
        let store = if racer % 2 == 0 { store.clone() } else { peer.clone() };
        tokio::spawn(async move {
            store.txn(Txn::replace(Put::new("a", format!("{racer}")), revision)).await.unwrap().succeeded
        })
    });
    let mut winners = Vec::new();
    for (racer, won) in racers.collect::<Vec<_>>().into_iter().enumerate() {
        if won.await.unwrap() {
            winners.push(racer);
        }
    }
    let kv = get(&peer, "a").await.unwrap();
    assert_eq!(winners.iter().map(|winner| format!("a={winner}")).collect::<Vec<_>>(), [pair(&kv)]);
    assert_eq!(kv.revision, revision + 1);
}

on_every_engine! {
    every_comparison_works_on_every_target,
    absent_key_compares_as_zero_except_to_values,
    range_compare_must_hold_for_every_key,
    failed_compare_takes_the_else_branch,
    transaction_has_one_revision,
    operations_see_earlier_operations,
    nested_compares_see_the_state_before_the_transaction,
    transactions_nest_to_either_branch,
    duplicate_key_in_one_transaction_fails,
    failed_transaction_writes_nothing,
    version_counts_writes_since_creation,
    put_and_delete_return_previous_versions_on_request,
    put_can_keep_value_or_lease,
    create_replace_and_remove_are_compare_and_swap,
    one_of_many_concurrent_creates_succeeds,
}
