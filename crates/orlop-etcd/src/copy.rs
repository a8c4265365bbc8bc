//! Copying a whole key space from one endpoint to another: keys, values and leases.
//!
//! The source is read at one revision, page by page; each page is compared with what the target has there
//! and only the difference is written. So a copy that was cut short is resumed by running it again, and one
//! whose revision is compacted away under it begins anew without writing anything twice. At the end both
//! sides are read once more and must agree.
//!
//! What does not come along: revisions and history, which are each database's own, and what was left of a
//! lease's time: it starts anew. Writers must be stopped, or what they write meanwhile is not copied.

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
const PAGE: i64 = 1000;
/// What one transaction writes: within every etcd's default bounds.
const TXN_OPS: usize = 100;
const TXN_BYTES: usize = 1 << 20;
/// How often a copy begins anew when the source compacts faster than it can be read.
const ATTEMPTS: usize = 5;
/// Keys named in an error.
const NAMED: usize = 10;

/// Why a copy did not come to its end. Run again, it goes on.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source refused something.
    #[error("the source: {}", .0.message())]
    Source(Status),
    /// The target refused something.
    #[error("the target: {}", .0.message())]
    Target(Status),
    /// The target holds keys that the source does not.
    #[error("the target holds {count} keys that the source does not, such as {}; nothing of them was touched", names(.keys))]
    Extra {
        /// How many.
        count: u64,
        /// Some of them.
        keys: Vec<Bytes>,
    },
    /// After the copy the two sides do not agree: somebody else has written to the target.
    #[error("{count} keys differ after the copy, such as {}: is somebody writing to the target?", names(.keys))]
    Differs {
        /// How many.
        count: u64,
        /// Some of them.
        keys: Vec<Bytes>,
    },
}

fn names(keys: &[Bytes]) -> String {
    keys.iter().map(|key| format!("{}", key.escape_ascii())).collect::<Vec<_>>().join(", ")
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Delete what the target holds and the source does not, instead of refusing to go on.
    pub delete_extra: bool,
}

/// How far a copy has come, and what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The source's revision that is copied.
    pub revision: i64,
    /// Keys there are to copy.
    pub total: u64,
    /// Keys looked at.
    pub done: u64,
    /// Keys written, because they were missing or different.
    pub written: u64,
    /// Keys deleted that the source does not have.
    pub deleted: u64,
    /// Keys whose lease ran out while they were copied: they are gone from the source, too.
    pub expired: u64,
    /// Whether the keys are being read once more to see that both sides agree.
    pub verifying: bool,
}

/// Copies everything from `source` to `target`, tells `tell` of each page, and checks the result.
pub async fn copy(
    source: &Client,
    target: &Client,
    options: Options,
    mut tell: impl FnMut(Progress),
) -> Result<Progress, CopyError> {
    let mut copy = Copy {
        source: source.clone(),
        target: target.clone(),
        options,
        leases: HashMap::new(),
        progress: Progress::default(),
        odd: Odd::default(),
    };
    let mut attempts = 1;
    loop {
        match copy.once(&mut tell).await {
            Err(CopyError::Source(status)) if status.message() == COMPACTED.1 && attempts < ATTEMPTS => {
                attempts += 1;
            }
            ended => return ended.map(|()| copy.progress),
        }
    }
}

/// Keys that are not as they should be.
#[derive(Default)]
struct Odd {
    count: u64,
    keys: Vec<Bytes>,
}

impl Odd {
    fn push(&mut self, key: Bytes) {
        self.count += 1;
        if self.keys.len() < NAMED {
            self.keys.push(key);
        }
    }
}

struct Copy {
    source: Client,
    target: Client,
    options: Options,
    /// Leases met, and whether they were still alive.
    leases: HashMap<i64, bool>,
    progress: Progress,
    odd: Odd,
}

impl Copy {
    async fn once(&mut self, tell: &mut impl FnMut(Progress)) -> Result<(), CopyError> {
        let everything = RangeRequest { count_only: true, ..range(vec![0].into(), vec![0].into()) };
        let counted = self.source.kv.range(everything).await.map_err(CopyError::Source)?.into_inner();
        self.progress.revision = counted.header.map_or(0, |header| header.revision);
        self.progress.total = counted.count.unsigned_abs();
        for verifying in [false, true] {
            (self.progress.verifying, self.progress.done, self.odd) = (verifying, 0, Odd::default());
            let mut from = Some(Bytes::from_static(&[0]));
            while let Some(start) = from {
                from = self.page(start).await?;
                tell(self.progress);
            }
            let Odd { count, keys } = std::mem::take(&mut self.odd);
            match (count, verifying) {
                (0, _) => {}
                (_, false) => return Err(CopyError::Extra { count, keys }),
                (_, true) => return Err(CopyError::Differs { count, keys }),
            }
        }
        Ok(())
    }

    /// Copies or verifies a page; where the next one begins.
    async fn page(&mut self, start: Bytes) -> Result<Option<Bytes>, CopyError> {
        let revision = self.progress.revision;
        let wanted = RangeRequest { limit: PAGE, revision, ..range(start.clone(), vec![0].into()) };
        let wanted = self.source.kv.range(wanted).await.map_err(CopyError::Source)?.into_inner();
        let next = wanted.kvs.last().filter(|_| wanted.more).map(|last| {
            let mut next = last.key.to_vec();
            next.push(0);
            Bytes::from(next)
        });
        let mut there = self.there(start, next.clone().unwrap_or_else(|| vec![0].into())).await?;
        self.progress.done += wanted.kvs.len() as u64;
        let mut writes = Vec::new();
        for kv in wanted.kvs {
            let found = there.remove(&kv.key);
            if !self.alive(kv.lease).await? {
                self.progress.expired += u64::from(!self.progress.verifying);
                continue;
            }
            if found.is_some_and(|found| found.value == kv.value && found.lease == kv.lease) {
                continue;
            }
            if self.progress.verifying {
                self.odd.push(kv.key);
            } else {
                writes.push(put(kv));
            }
        }
        for key in there.into_keys() {
            if self.progress.verifying || !self.options.delete_extra {
                self.odd.push(key);
            } else {
                self.progress.deleted += 1;
                let delete = DeleteRangeRequest { key, ..DeleteRangeRequest::default() };
                writes.push(RequestOp { request: Some(Request::RequestDeleteRange(delete)) });
            }
        }
        self.write(writes).await?;
        Ok(next)
    }

    /// What the target holds in a range, by key.
    async fn there(&mut self, start: Bytes, end: Bytes) -> Result<BTreeMap<Bytes, KeyValue>, CopyError> {
        let (mut found, mut from, mut revision) = (BTreeMap::new(), start, 0);
        loop {
            let read = RangeRequest { limit: PAGE, revision, ..range(from, end.clone()) };
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

    /// Whether a lease is alive in the source; then the target gets it, too.
    async fn alive(&mut self, id: i64) -> Result<bool, CopyError> {
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
                // Left from a copy that was cut short.
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
                // Nothing was written: say what to do about it.
                Code::NotFound => CopyError::Target(Status::not_found(format!(
                    "{}: a lease ran out while its keys were copied; run again",
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
