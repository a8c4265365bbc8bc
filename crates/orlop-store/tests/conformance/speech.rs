//! Short ways to say what the behaviours need, and to write down what came back.

use std::time::Duration;

use bytes::Bytes;
use orlop_store::{
    Delete, Error, KeyRange, KeyValue, Op, Put, Read, ReadResult, Result, Revision, Store, Txn, WatchBatch,
    Watcher,
};
use tokio::time::{Instant, timeout};

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn put(store: &Store, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Revision {
    write(store, [Op::Put(Put::new(key, value))]).await
}

pub(crate) async fn delete(store: &Store, key: impl Into<Bytes>) -> Revision {
    write(store, [delete_op(KeyRange::key(key))]).await
}

/// Runs operations without a condition; their revision.
pub(crate) async fn write(store: &Store, ops: impl IntoIterator<Item = Op>) -> Revision {
    store.txn(Txn::of(ops)).await.unwrap().revision
}

pub(crate) fn delete_op(range: KeyRange) -> Op {
    Op::Delete(Delete { range, previous: false })
}

pub(crate) fn put_op(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Op {
    Op::Put(Put::new(key, value))
}

pub(crate) async fn get(store: &Store, key: impl Into<Bytes>) -> Option<KeyValue> {
    store.read(Read::new(KeyRange::key(key))).await.unwrap().kvs.pop()
}

/// `key=value` of everything a read brought, in its order.
pub(crate) fn pairs(result: &ReadResult) -> Vec<String> {
    result.kvs.iter().map(pair).collect()
}

pub(crate) fn pair(kv: &KeyValue) -> String {
    format!("{}={}", kv.key.escape_ascii(), kv.value.escape_ascii())
}

pub(crate) async fn list(store: &Store, range: KeyRange) -> Vec<String> {
    pairs(&store.read(Read::new(range)).await.unwrap())
}

pub(crate) async fn list_at(store: &Store, range: KeyRange, revision: Revision) -> Result<Vec<String>> {
    let read = Read { revision: Some(revision), ..Read::new(range) };
    Ok(pairs(&store.read(read).await?))
}

/// A batch in words: `5: +a=1 ~b=2 -c`, for created, updated and deleted.
pub(crate) fn told(batch: &WatchBatch) -> String {
    let events = batch.events().map(|seen| {
        let event = seen.event;
        let kv = &event.kv;
        assert_eq!(kv.revision, batch.revision());
        let previous = event.previous.as_ref().and_then(|previous| previous.kv(&kv.key));
        let was = previous.map(|kv| format!("({})", kv.value.escape_ascii())).unwrap_or_default();
        match (event.deleted, event.created()) {
            (true, _) => format!("-{}{was}", kv.key.escape_ascii()),
            (false, true) => format!("+{}{was}", pair(kv)),
            (false, false) => format!("~{}{was}", pair(kv)),
        }
    });
    format!("{}: {}", batch.revision(), events.collect::<Vec<_>>().join(" "))
}

/// What comes next, within reason.
pub(crate) async fn next(watcher: &mut Watcher) -> Result<WatchBatch> {
    timeout(PATIENCE, watcher.next()).await.expect("the watch says nothing")
}

/// Everything a watch tells up to a revision, which it must reach.
pub(crate) async fn told_up_to(watcher: &mut Watcher, revision: Revision) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    loop {
        // One more look after it says that it has told everything: it must not have more.
        let reached = watcher.progress() >= revision;
        match timeout(Duration::from_millis(5), watcher.next()).await {
            Ok(batch) => all.push(told(&batch?)),
            Err(_) if reached => return Ok(all),
            Err(_) => assert!(Instant::now() < deadline, "the watch got to {all:?} and no further"),
        }
    }
}

/// Waits for something that must become true.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Compacts and has the rows removed too.
pub(crate) async fn compact(store: &Store, revision: Revision) {
    store.compact(revision).await.unwrap();
    store.wait_for_compaction().await.unwrap();
}

pub(crate) fn is_expired<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Expired { .. }))
}
