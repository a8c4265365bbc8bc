//! Random requests over a small key space, so that they meet each other.

use bytes::Bytes;
use orlop_etcd::pb::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseLeasesRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest, compare::TargetUnion, request_op,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Twelve at most: sorting more than that, etcd puts keys that compare the same in an order of its own.
const KEYS: [&str; 11] = ["a", "b", "b/", "b/1", "b/2", "b/\u{ff}", "c", "c/1", "d", "dd", "e"];
/// Deleted inside transactions inside, and never put there.
const ASIDE: [&str; 1] = ["z"];
const VALUES: [&str; 6] = ["", "1", "2", "10", "x", "longer value"];

#[derive(Clone, Debug)]
pub(crate) enum Any {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases(LeaseLeasesRequest),
}

pub(crate) struct Generator {
    random: SmallRng,
    revision: i64,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), revision: 1 }
    }

    pub(crate) fn saw(&mut self, revision: Option<i64>) {
        self.revision = revision.unwrap_or(0).max(self.revision);
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())]
    }

    pub(crate) fn request(&mut self) -> Any {
        match self.random.random_range(0..100) {
            0..25 => Any::Range(self.range()),
            25..50 => Any::Put(self.put()),
            50..60 => Any::Delete(self.delete()),
            60..85 => {
                let depth = self.random.random_range(0..=2);
                Any::Txn(self.txn(depth, false))
            }
            85..89 => Any::Compact(CompactionRequest { revision: self.near(), physical: self.chance(50) }),
            89..93 => Any::Grant(LeaseGrantRequest {
                id: self.lease_id(),
                ttl: self.of(&[5000, 9_000_000_000, 9_000_000_001]),
            }),
            93..95 => Any::Revoke(LeaseRevokeRequest { id: self.lease_id() }),
            95..98 => Any::TimeToLive(LeaseTimeToLiveRequest { id: self.lease_id(), keys: self.chance(50) }),
            _ => Any::Leases(LeaseLeasesRequest {}),
        }
    }

    /// A revision around now: before, at, after.
    fn near(&mut self) -> i64 {
        let back = self.of(&[0, 0, 0, 1, 2, 5, 20, 60, -1, -30]);
        (self.revision - back).max(1)
    }

    /// Ids that are never 0: a generated one would differ. Leases with short lives are not among them.
    fn lease_id(&mut self) -> i64 {
        self.of(&[1, 2, 3, 7_000_000_000, -5])
    }

    fn key(&mut self) -> Bytes {
        if self.chance(2) { Bytes::new() } else { self.of(&KEYS).as_bytes().into() }
    }

    fn range_end(&mut self) -> Bytes {
        match self.random.random_range(0..10) {
            0..5 => Bytes::new(),
            5..7 => Bytes::from_static(&[0]),
            _ => self.of(&KEYS).as_bytes().into(),
        }
    }

    fn range(&mut self) -> RangeRequest {
        let mut request =
            RangeRequest { key: self.key(), range_end: self.range_end(), ..RangeRequest::default() };
        if self.chance(15) {
            (request.key, request.range_end) = (Bytes::from_static(&[0]), Bytes::from_static(&[0]));
        }
        if self.chance(30) {
            request.revision = self.near();
        }
        if self.chance(40) {
            request.limit = self.of(&[1, 2, 3, 100, -1]);
        }
        if self.chance(40) {
            request.sort_order = self.of(&[0, 1, 2, 2]);
            request.sort_target = self.of(&[0, 1, 2, 3, 4, 4]);
        }
        request.keys_only = self.chance(15);
        request.count_only = self.chance(10);
        request.serializable = self.chance(20);
        if self.chance(10) {
            request.min_mod_revision = self.near();
        }
        if self.chance(10) {
            request.max_mod_revision = self.near();
        }
        if self.chance(10) {
            request.min_create_revision = self.near();
        }
        if self.chance(10) {
            request.max_create_revision = self.near();
        }
        request
    }

    fn put(&mut self) -> PutRequest {
        PutRequest {
            key: self.key(),
            value: self.of(&VALUES).into(),
            lease: if self.chance(20) { self.lease_id() } else { 0 },
            prev_kv: self.chance(30),
            ignore_value: self.chance(8),
            ignore_lease: self.chance(8),
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        DeleteRangeRequest { key: self.key(), range_end: self.range_end(), prev_kv: self.chance(50) }
    }

    fn txn(&mut self, depth: usize, inside: bool) -> TxnRequest {
        let compares = self.random.random_range(0..3);
        let compare = (0..compares).map(|_| self.compare()).collect();
        TxnRequest { compare, success: self.ops(depth, inside), failure: self.ops(depth, inside) }
    }

    fn ops(&mut self, depth: usize, inside: bool) -> Vec<RequestOp> {
        let count = self.random.random_range(0..4);
        (0..count)
            .map(|_| {
                let request = match self.random.random_range(0..100) {
                    0..2 => None,
                    2..30 => Some(request_op::Request::RequestRange(self.range())),
                    30..40 if depth > 0 => Some(request_op::Request::RequestTxn(self.txn(depth - 1, true))),
                    30..50 if inside => {
                        let key = self.of(&ASIDE).into();
                        let delete =
                            DeleteRangeRequest { key, prev_kv: true, ..DeleteRangeRequest::default() };
                        Some(request_op::Request::RequestDeleteRange(delete))
                    }
                    30..50 => {
                        let mut delete = self.delete();
                        // etcd does not see that an open end overlaps a put; see COMPAT.md.
                        if delete.range_end == [0][..] {
                            delete.range_end = "f".into();
                        }
                        Some(request_op::Request::RequestDeleteRange(delete))
                    }
                    _ => Some(request_op::Request::RequestPut(self.put())),
                };
                RequestOp { request }
            })
            .collect()
    }

    fn compare(&mut self) -> Compare {
        let near = self.near();
        let number = self.of(&[0, 1, 2, near]);
        let (target, union) = match self.random.random_range(0..6) {
            0 => (0, TargetUnion::Version(number)),
            1 => (1, TargetUnion::CreateRevision(number)),
            2 => (2, TargetUnion::ModRevision(number)),
            3 => (3, TargetUnion::Value(self.of(&VALUES).into())),
            4 => (4, TargetUnion::Lease(self.of(&[0, 1, 2]))),
            // A target and a value that do not belong together.
            _ => (self.of(&[0, 1, 2, 3, 4]), TargetUnion::Version(1)),
        };
        Compare {
            result: self.of(&[0, 1, 2, 3]),
            target,
            key: self.key(),
            target_union: Some(union),
            range_end: if self.chance(25) { self.range_end() } else { Bytes::new() },
        }
    }

    pub(crate) fn watch(&mut self) -> WatchCreateRequest {
        WatchCreateRequest {
            key: self.key(),
            range_end: self.range_end(),
            start_revision: if self.chance(70) { self.near() } else { 0 },
            prev_kv: self.chance(50),
            filters: if self.chance(30) { vec![self.of(&[0, 1])] } else { Vec::new() },
            watch_id: self.of(&[0, 0, 7]),
            fragment: self.chance(20),
            progress_notify: false,
        }
    }
}
