//! Every input has a limit, and a request over one of them changes nothing.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use orlop_store::{
    Compare, Comparison, Delete, Error, KeyRange, Limits, Op, Put, Read, Store, Target, Terms, Txn, TxnResult,
};

use crate::{database::Database, shorthand::*};

async fn limited(db: &Database, limits: Limits) -> Store {
    db.open_with(|config| config.limits = limits).await
}

#[track_caller]
fn is_too_large(result: Result<TxnResult, Error>, expected_limit: u64) {
    match result {
        Err(Error::TooLarge { size, limit, .. }) => assert_eq!((limit, size > limit), (expected_limit, true)),
        other => panic!("{other:?}"),
    }
}

async fn keys_and_values_have_limits(db: &Database) {
    let store = limited(db, Limits { key_bytes: 10, value_bytes: 20, ..Limits::default() }).await;
    let put = |key: usize, value: usize| Txn::of([put_op(vec![0xff; key], vec![b'v'; value])]);
    assert_eq!(store.txn(put(10, 20)).await.unwrap().revision, 2);
    is_too_large(store.txn(put(11, 1)).await, 10);
    is_too_large(store.txn(put(1, 21)).await, 20);
    let nested = Txn { otherwise: vec![Op::Txn(put(11, 1))], ..Txn::default() };
    is_too_large(store.txn(nested).await, 10);
    let empty = store.txn(Txn::of([put_op("", "v")])).await;
    assert!(matches!(empty, Err(Error::Invalid(_))), "{empty:?}");
    assert_eq!(list(&store, KeyRange::all()).await.len(), 1, "the longest key is found");
    assert_eq!(list(&store, KeyRange::key(vec![0xff; 10])).await.len(), 1);
    let long = store.read(Read::new(KeyRange::key(vec![b'k'; 12]))).await;
    assert!(matches!(long, Err(Error::TooLarge { .. })), "{long:?}");
    assert_eq!(store.revision().await.unwrap(), 2);
}

async fn terms_have_a_limit(db: &Database) {
    let store = limited(db, Limits { terms_bytes: 100, ..Limits::default() }).await;
    let put = |size: usize| {
        Txn::of([Op::Put(Put { terms: Terms::new([("f", "x".repeat(size))]), ..Put::new("a", "v") })])
    };
    assert!(store.txn(put(80)).await.is_ok());
    is_too_large(store.txn(put(120)).await, 100);
}

async fn transactions_have_limits(db: &Database) {
    let limits =
        Limits { txn_operations: 10, txn_depth: 3, txn_bytes: 1000, txn_changes: 5, ..Limits::default() };
    let store = limited(db, limits).await;
    let reads = |n: usize| Txn::of((0..n).map(|_| Op::Read(Read::new(KeyRange::key("a")))));
    assert!(store.txn(reads(10)).await.is_ok());
    is_too_large(store.txn(reads(11)).await, 10);
    let compare = Compare::new(KeyRange::key("a"), Comparison::Equal, Target::Version(0));
    is_too_large(
        store.txn(Txn { compares: vec![compare; 6], otherwise: reads(5).then, ..Txn::default() }).await,
        10,
    );
    is_too_large(store.txn(Txn::of([Op::Txn(reads(5)), Op::Txn(reads(4))])).await, 10);
    let nested = |depth: usize| (1..depth).fold(Txn::default(), |inner, _| Txn::of([Op::Txn(inner)]));
    assert!(store.txn(nested(3)).await.is_ok());
    is_too_large(store.txn(nested(4)).await, 3);
    let bytes = |n: usize| Txn::of([put_op("a", vec![0; n / 2]), put_op("b", vec![0; n / 2])]);
    assert!(store.txn(bytes(900)).await.is_ok());
    is_too_large(store.txn(bytes(1100)).await, 1000);
    for number in 0..4 {
        put(&store, format!("more{number}"), "").await;
    }
    is_too_large(store.txn(Txn::of([delete_op(KeyRange::all())])).await, 5);
    assert_eq!(list(&store, KeyRange::all()).await.len(), 6, "nothing was cut short");
    assert!(store.txn(Txn::of([delete_op(KeyRange::prefix("more"))])).await.is_ok());
}

async fn response_of_a_transaction_is_bounded_over_all_its_operations(db: &Database) {
    let store = limited(db, Limits { txn_read_bytes: 4000, ..Limits::default() }).await;
    for key in ["a", "b"] {
        put(&store, key, vec![0; 1000]).await;
    }
    let revision = store.revision().await.unwrap();
    let read = |times: usize, revision| {
        let read = Read { revision, ..Read::new(KeyRange::all()) };
        Txn::of(vec![Op::Read(read); times])
    };
    let too_large = |result: Result<TxnResult, Error>| {
        assert!(matches!(result, Err(Error::ResponseTooLarge { limit: 4000, .. })), "{result:?}");
    };
    assert!(store.txn(read(1, None)).await.is_ok());
    too_large(store.txn(read(2, None)).await);
    put(&store, "b", vec![1; 1000]).await;
    assert!(store.txn(read(1, Some(revision))).await.is_ok());
    too_large(store.txn(read(2, Some(revision))).await);
    let delete = Delete { range: KeyRange::all(), previous: true };
    too_large(store.txn(Txn::of([Op::Read(Read::new(KeyRange::all())), Op::Delete(delete.clone())])).await);
    assert!(store.txn(Txn::of([Op::Delete(delete)])).await.is_ok(), "nothing had been deleted");
}

async fn abandoned_transaction_is_dropped_from_the_queue(db: &Database) {
    // Committed on the caller's thread, a transaction would not be queued.
    let store = db.open_with(|config| config.commit_on_caller = false).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    for attempt in 0.. {
        assert!(Instant::now() < deadline, "every abandoned transaction was committed: {attempt}");
        let key = format!("abandoned{attempt}");
        let large = store.txn(Txn::of([put_op("large", vec![0; 4 << 20])]));
        // Queued behind the large one, then given up.
        let abandon = async { store.txn(Txn::of([put_op(key.clone(), "")])).now_or_never() };
        let (large, _) = tokio::join!(large, abandon);
        large.unwrap();
        if list(&store, KeyRange::key(key)).await.is_empty() {
            return;
        }
    }
}

async fn compare_over_too_many_keys_is_too_large(db: &Database) {
    let store = limited(db, Limits { txn_changes: 3, ..Limits::default() }).await;
    for key in ["a", "b", "c", "d"] {
        put(&store, key, if key == "d" { "other" } else { "same" }).await;
    }
    let compare = |range| Txn {
        compares: vec![Compare::new(range, Comparison::Equal, Target::Value("same".into()))],
        ..Txn::default()
    };
    assert!(store.txn(compare(KeyRange::between("a", "d"))).await.unwrap().succeeded);
    is_too_large(store.txn(compare(KeyRange::all())).await, 3);
}

async fn unlimited_read_is_bounded(db: &Database) {
    let store = limited(db, Limits { read_keys: 3, ..Limits::default() }).await;
    for key in ["a", "b", "c", "d"] {
        put(&store, key, "").await;
    }
    let read = store.read(Read { count: true, ..Read::new(KeyRange::all()) }).await.unwrap();
    assert_eq!((read.kvs.len(), read.more, read.count), (3, true, Some(4)));
    let exact = store.read(Read::new(KeyRange::between("a", "d"))).await.unwrap();
    assert_eq!((exact.kvs.len(), exact.more), (3, false));
}

async fn write_queue_applies_back_pressure(db: &Database) {
    let store = limited(db, Limits { queue: 4, ..Limits::default() }).await;
    let writers = (0..100).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move { put(&store, format!("{writer}"), "").await })
    });
    for writer in writers.collect::<Vec<_>>() {
        tokio::time::timeout(Duration::from_secs(20), writer).await.unwrap().unwrap();
    }
    assert_eq!(store.revision().await.unwrap(), 101);
}

/// Bytes that do not get smaller by compression.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    bytes.take(length).collect()
}

fn large() -> Txn {
    Txn::of([put_op("large", noise(400_000))])
}

/// Opens a store with room for 3 MB and fills it.
async fn filled(db: &Database) -> Store {
    let bytes = store_size(db).await + 3_000_000;
    let store = limited(db, Limits { database_bytes: bytes, ..Limits::default() }).await;
    let mut written = 0;
    let full = loop {
        match store.txn(large()).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 2000, "never full");
    };
    assert!(matches!(full, Error::Full(_)), "{full:?}");
    assert!(written >= 5, "{written}");
    store
}

async fn quota_refuses_puts_and_accepts_reads_and_deletes(db: &Database) {
    let store = filled(db).await;
    assert!(get(&store, "large").await.is_some());
    let revision = store.revision().await.unwrap();
    let guarded = store.txn(Txn::create(Put::new("small", ""))).await;
    assert!(matches!(guarded, Err(Error::Full(_))), "{guarded:?}");
    assert_eq!(delete(&store, "large").await, revision + 1);
}

async fn compaction_brings_the_database_below_its_quota(db: &Database) {
    let store = filled(db).await;
    let revision = delete(&store, "large").await;
    store.compact(revision).await.unwrap();
    store.wait_for_compaction().await.unwrap();
    eventually("there is room again", async || store.txn(large()).await.is_ok()).await;
}

async fn store_size(db: &Database) -> u64 {
    let store = db.open().await;
    let size = store.size().await.unwrap().used;
    store.close().await;
    size
}

on_every_engine! {
    keys_and_values_have_limits,
    terms_have_a_limit,
    transactions_have_limits,
    response_of_a_transaction_is_bounded_over_all_its_operations,
    abandoned_transaction_is_dropped_from_the_queue,
    compare_over_too_many_keys_is_too_large,
    unlimited_read_is_bounded,
    write_queue_applies_back_pressure,
    quota_refuses_puts_and_accepts_reads_and_deletes,
}

on_sqlite! {
    compaction_brings_the_database_below_its_quota,
}
