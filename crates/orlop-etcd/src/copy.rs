//! Copies a whole key space from one endpoint to another: keys, values and leases.
//!
//! The source is read at one revision, page by page. Each page is compared with the target's and only the difference is
//! written, so a copy is idempotent: an interrupted one resumes when it is run again, and one whose revision is compacted
//! meanwhile restarts without writing anything twice. At the end both sides are read again and must agree.
//!
//! Revisions and history are not copied, and a lease's TTL starts anew. Stop writers first: later writes are not copied.

use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use crate::{
    client::Client,
    errors::{COMPACTED, LEASE_EXISTS},
    pb::{
        etcdserverpb::{
            DeleteRangeRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest,
            RequestOp, TxnRequest, request_op::Request,
        },
        mvccpb::KeyValue,
    },
};

/// Keys of one page.
const PAGE_KEYS: i64 = 1000;
/// Size of one transaction, within etcd's default limits.
const TXN_OPS: usize = 100;
const TXN_BYTES: usize = 1 << 20;
/// Attempts if the source compacts the copied revision.
const ATTEMPTS_MAX: usize = 5;
/// Keys listed in an error.
const LISTED_KEYS_MAX: usize = 10;

/// Failure of a copy. Running it again resumes it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A request to the source failed.
    #[error("source: {}", .0.message())]
    Source(Status),
    /// A request to the target failed.
    #[error("target: {}", .0.message())]
    Target(Status),
    /// The target has keys that the source does not have.
    #[error("the target has {count} keys that the source does not have, such as {}; they were left unchanged", names(.keys))]
    Extra {
        /// Number of keys.
        count: u64,
        /// Some of the keys.
        keys: Vec<Bytes>,
    },
    /// Verification failed: another client writes to the target.
    #[error("{count} keys differ after the copy, such as {}: is another client writing to the target?", names(.keys))]
    Differs {
        /// Number of keys.
        count: u64,
        /// Some of the keys.
        keys: Vec<Bytes>,
    },
}

fn names(keys: &[Bytes]) -> String {
    keys.iter().map(|key| format!("{}", key.escape_ascii())).collect::<Vec<_>>().join(", ")
}

/// Settings of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Deletes keys that only the target has, instead of failing.
    pub delete_extra: bool,
}

/// Progress of a copy, and its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Revision of the source that is copied.
    pub revision: i64,
    /// Keys to copy.
    pub total: u64,
    /// Keys compared so far.
    pub done: u64,
    /// Keys written, because they were missing or different.
    pub written: u64,
    /// Keys deleted because the source does not have them.
    pub deleted: u64,
    /// Keys whose lease expired during the copy. They are gone from the source, too.
    pub expired: u64,
    /// The copy is being verified.
    pub verifying: bool,
}

/// Copies everything from `source` to `target`, reports each page to `on_progress`, and verifies the result.
pub fn copy<'a>(
    source: &'a Client,
    target: &'a Client,
    options: Options,
    on_progress: impl FnMut(Progress) + Send + 'a,
) -> BoxFuture<'a, Result<Progress, CopyError>> {
    copy_all(source, target, options, Box::new(on_progress))
}

fn copy_all<'a>(
    source: &'a Client,
    target: &'a Client,
    options: Options,
    mut on_progress: Box<dyn FnMut(Progress) + Send + 'a>,
) -> BoxFuture<'a, Result<Progress, CopyError>> {
    Box::pin(async move {
        let mut copy = Copy {
            source: source.clone(),
            target: target.clone(),
            options,
            leases: HashMap::new(),
            progress: Progress::default(),
            mismatches: Mismatches::default(),
        };
        let mut attempts = 1;
        loop {
            match copy.run(&mut on_progress).await {
                Err(CopyError::Source(status))
                    if status.message() == COMPACTED.1 && attempts < ATTEMPTS_MAX =>
                {
                    attempts += 1;
                }
                ended => return ended.map(|()| copy.progress),
            }
        }
    })
}

/// Keys that differ.
#[derive(Default)]
struct Mismatches {
    count: u64,
    keys: Vec<Bytes>,
}

impl Mismatches {
    fn push(&mut self, key: Bytes) {
        self.count += 1;
        if self.keys.len() < LISTED_KEYS_MAX {
            self.keys.push(key);
        }
    }
}

struct Copy {
    source: Client,
    target: Client,
    options: Options,
    /// Leases seen, and if they were alive.
    leases: HashMap<i64, bool>,
    progress: Progress,
    mismatches: Mismatches,
}

impl Copy {
    async fn run(&mut self, on_progress: &mut impl FnMut(Progress)) -> Result<(), CopyError> {
        let everything = RangeRequest { count_only: true, ..range(vec![0].into(), vec![0].into()) };
        let counted = self.source.kv.range(everything).await.map_err(CopyError::Source)?.into_inner();
        self.progress.revision = counted.header.map_or(0, |header| header.revision);
        self.progress.total = counted.count.unsigned_abs();
        for verifying in [false, true] {
            (self.progress.verifying, self.progress.done, self.mismatches) =
                (verifying, 0, Mismatches::default());
            let mut from = Some(Bytes::from_static(&[0]));
            while let Some(start) = from {
                from = self.page(start).await?;
                on_progress(self.progress);
            }
            let Mismatches { count, keys } = std::mem::take(&mut self.mismatches);
            match (count, verifying) {
                (0, _) => {}
                (_, false) => return Err(CopyError::Extra { count, keys }),
                (_, true) => return Err(CopyError::Differs { count, keys }),
            }
        }
        Ok(())
    }

    /// Copies or verifies a page. Returns the start of the next one.
    async fn page(&mut self, start: Bytes) -> Result<Option<Bytes>, CopyError> {
        let revision = self.progress.revision;
        let wanted = RangeRequest { limit: PAGE_KEYS, revision, ..range(start.clone(), vec![0].into()) };
        let wanted = self.source.kv.range(wanted).await.map_err(CopyError::Source)?.into_inner();
        let next = wanted.kvs.last().filter(|_| wanted.more).map(|last| {
            let mut next = last.key.to_vec();
            next.push(0);
            Bytes::from(next)
        });
        let mut target = self.read_target(start, next.clone().unwrap_or_else(|| vec![0].into())).await?;
        self.progress.done += wanted.kvs.len() as u64;
        let mut writes = Vec::new();
        for kv in wanted.kvs {
            let found = target.remove(&kv.key);
            if !self.copy_lease(kv.lease).await? {
                self.progress.expired += u64::from(!self.progress.verifying);
                continue;
            }
            if found.is_some_and(|found| found.value == kv.value && found.lease == kv.lease) {
                continue;
            }
            if self.progress.verifying {
                self.mismatches.push(kv.key);
            } else {
                writes.push(put(kv));
            }
        }
        for key in target.into_keys() {
            if self.progress.verifying || !self.options.delete_extra {
                self.mismatches.push(key);
            } else {
                self.progress.deleted += 1;
                let delete = DeleteRangeRequest { key, ..DeleteRangeRequest::default() };
                writes.push(RequestOp { request: Some(Request::RequestDeleteRange(delete)) });
            }
        }
        self.write(writes).await?;
        Ok(next)
    }

    /// Reads the target's keys in a range.
    async fn read_target(
        &mut self,
        start: Bytes,
        end: Bytes,
    ) -> Result<BTreeMap<Bytes, KeyValue>, CopyError> {
        let (mut found, mut from, mut revision) = (BTreeMap::new(), start, 0);
        loop {
            let read = RangeRequest { limit: PAGE_KEYS, revision, ..range(from, end.clone()) };
            let page = self.target.kv.range(read).await.map_err(CopyError::Target)?.into_inner();
            revision = page.header.map_or(0, |header| header.revision).max(revision);
            let last = page.kvs.last().map(|kv| kv.key.clone());
            found.extend(page.kvs.into_iter().map(|kv| (kv.key.clone(), kv)));
            match last.filter(|_| page.more) {
                Some(last) => from = [&last[..], &[0]].concat().into(),
                None => return Ok(found),
            }
        }
    }

    /// Copies a lease. Returns `false` if it has expired in the source.
    async fn copy_lease(&mut self, id: i64) -> Result<bool, CopyError> {
        if id == 0 {
            return Ok(true);
        }
        if let Some(alive) = self.leases.get(&id) {
            return Ok(*alive);
        }
        let asked = LeaseTimeToLiveRequest { id, keys: false };
        let lease =
            self.source.lease.lease_time_to_live(asked).await.map_err(CopyError::Source)?.into_inner();
        let alive = lease.ttl > 0;
        if alive {
            let grant = LeaseGrantRequest { id, ttl: lease.granted_ttl };
            match self.target.lease.lease_grant(grant).await {
                Ok(_) => {}
                // From an interrupted copy.
                Err(status) if status.message() == LEASE_EXISTS.1 => {}
                Err(status) => return Err(CopyError::Target(status)),
            }
        }
        self.leases.insert(id, alive);
        Ok(alive)
    }

    async fn write(&mut self, writes: Vec<RequestOp>) -> Result<(), CopyError> {
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let mut txn = TxnRequest::default();
            let mut bytes = 0;
            while let Some(write) = writes.next_if(|write| {
                txn.success.is_empty()
                    || (txn.success.len() < TXN_OPS && bytes + write.encoded_len() <= TXN_BYTES)
            }) {
                bytes += write.encoded_len();
                self.progress.written += u64::from(matches!(write.request, Some(Request::RequestPut(_))));
                txn.success.push(write);
            }
            self.target.kv.txn(txn).await.map_err(|status| match status.code() {
                // The transaction wrote nothing.
                Code::NotFound => CopyError::Target(Status::not_found(format!(
                    "{}: a lease expired while its keys were copied; run the copy again",
                    status.message()
                ))),
                _ => CopyError::Target(status),
            })?;
        }
        Ok(())
    }
}

fn range(key: Bytes, range_end: Bytes) -> RangeRequest {
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

fn put(kv: KeyValue) -> RequestOp {
    let put = PutRequest { key: kv.key, value: kv.value, lease: kv.lease, ..PutRequest::default() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}
