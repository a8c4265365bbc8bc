//! Shorthands for requests, and text forms of results.

use std::time::Duration;

use bytes::Bytes;
use orlop_store::{
    Delete, Error, KeyRange, KeyValue, Op, Put, Read, ReadResult, Result, Revision, Store, Txn, WatchBatch,
    Watcher,
};
use tokio::time::{Instant, timeout};

/// Deadline of everything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn put(store: &Store, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Revision {
    write(store, [Op::Put(Put::new(key, value))]).await
}

pub(crate) async fn delete(store: &Store, key: impl Into<Bytes>) -> Revision {
    write(store, [delete_op(KeyRange::key(key))]).await
}

/// Runs operations without compares. Returns their revision.
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

/// Formats the keys of a read as `key=value`.
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

/// Formats a batch as `5: +a=1 ~b=2 -c`, for created, updated and deleted.
pub(crate) fn describe(batch: &WatchBatch) -> String {
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

/// Returns the next batch.
pub(crate) async fn next(watcher: &mut Watcher) -> Result<WatchBatch> {
    timeout(TIMEOUT, watcher.next()).await.expect("the watch delivered nothing")
}

/// Returns everything that a watch delivers up to a revision, which it must reach.
pub(crate) async fn delivered_up_to(watcher: &mut Watcher, revision: Revision) -> Result<Vec<String>> {
    let deadline = Instant::now() + TIMEOUT;
    let mut all = Vec::new();
    loop {
        // One more poll after it reports that everything was delivered: there must not be more.
        let reached = watcher.progress() >= revision;
        match timeout(Duration::from_millis(5), watcher.next()).await {
            Ok(batch) => all.push(describe(&batch?)),
            Err(_) if reached => return Ok(all),
            Err(_) => assert!(Instant::now() < deadline, "the watch stopped after {all:?}"),
        }
    }
}

/// Waits for something that must become true.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !check().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Compacts and waits until the rows are deleted.
pub(crate) async fn compact(store: &Store, revision: Revision) {
    store.compact(revision).await.unwrap();
    store.wait_for_compaction().await.unwrap();
}

pub(crate) fn is_expired<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Expired { .. }))
}
