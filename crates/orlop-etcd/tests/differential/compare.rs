//! Sends a request to both sides and compares the responses.

use std::fmt::Debug;

use orlop_etcd::{
    Client,
    pb::etcdserverpb::{ResponseHeader, TxnResponse, response_op::Response as OpResponse},
};
use tonic::{Response, Status};

use super::generate::Any;

/// Requests shown before a difference.
const SHOWN: usize = 12;

pub(crate) struct Sides {
    pub(crate) seed: u64,
    pub(crate) etcd: Client,
    pub(crate) orlop: Client,
    pub(crate) log: Vec<String>,
}

/// A comparable response: its text without server-specific values, and its revision.
type Comparable = Result<(String, Option<i64>), (tonic::Code, String)>;

impl Sides {
    /// Sends a request to both sides and compares the responses. Returns their revision.
    pub(crate) async fn both(&mut self, request: Any) -> Option<i64> {
        let (theirs, ours) =
            tokio::join!(ask(&self.etcd, request.clone()), ask(&self.orlop, request.clone()));
        self.log.push(format!("{request:?} -> {theirs:?}"));
        let (theirs, ours) = (any_fault(&request, theirs), any_fault(&request, ours));
        self.same(&format!("{request:?}"), &theirs, &ours);
        theirs.ok().and_then(|(_, revision)| revision)
    }

    pub(crate) fn same<T: PartialEq + Debug>(&self, what: &str, theirs: &T, ours: &T) {
        let before = self.log.iter().rev().take(SHOWN).rev().cloned().collect::<Vec<_>>().join("\n  ");
        assert!(
            theirs == ours,
            "seed {}: {what}\n etcd: {theirs:#?}\norlop: {ours:#?}\nafter\n  {before}",
            self.seed
        );
    }
}

async fn ask(client: &Client, request: Any) -> Comparable {
    let mut client = client.clone();
    match request {
        Any::Range(request) => answer(client.kv.range(request).await, |r| &mut r.header),
        Any::Put(request) => answer(client.kv.put(request).await, |r| &mut r.header),
        Any::Delete(request) => answer(client.kv.delete_range(request).await, |r| &mut r.header),
        Any::Txn(request) => answer(client.kv.txn(request).await, |r| {
            inner_headers(r);
            &mut r.header
        }),
        Any::Compact(request) => answer(client.kv.compact(request).await, |r| &mut r.header),
        Any::Grant(request) => answer(client.lease.lease_grant(request).await, |r| &mut r.header),
        Any::Revoke(request) => answer(client.lease.lease_revoke(request).await, |r| &mut r.header),
        Any::TimeToLive(request) => answer(client.lease.lease_time_to_live(request).await, |r| {
            // The remaining TTL depends on how long each server took.
            r.ttl = r.ttl.signum();
            r.keys.sort();
            &mut r.header
        }),
        Any::Leases(request) => answer(client.lease.lease_leases(request).await, |r| {
            r.leases.sort_by_key(|lease| lease.id);
            &mut r.header
        }),
    }
}

fn answer<T: Debug>(
    result: Result<Response<T>, Status>,
    header: impl FnOnce(&mut T) -> &mut Option<ResponseHeader>,
) -> Comparable {
    match result {
        Ok(response) => {
            let mut response = response.into_inner();
            let header = header(&mut response);
            let revision = header.as_ref().map(|header| header.revision);
            if let Some(header) = header {
                assert!(
                    header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0,
                    "{header:?}"
                );
                *header = ResponseHeader { revision: header.revision, ..ResponseHeader::default() };
            }
            Ok((format!("{response:?}"), revision))
        }
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

/// Errors that depend on the data of a transaction. With several, etcd 3.5 reports another one first than 3.6.
const FAULTS: [&str; 4] = [
    "etcdserver: key not found",
    "etcdserver: requested lease not found",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: mvcc: required revision is a future revision",
];

/// A transaction may be refused for any of its faults.
fn any_fault(request: &Any, answer: Comparable) -> Comparable {
    match (request, answer) {
        (Any::Txn(_), Err((_, text))) if FAULTS.contains(&text.as_str()) => {
            Err((tonic::Code::Unknown, "a fault".into()))
        }
        (_, answer) => answer,
    }
}

/// Headers inside a transaction name a revision and nothing else on either side.
fn inner_headers(response: &TxnResponse) {
    for op in &response.responses {
        let header = match &op.response {
            Some(OpResponse::ResponseRange(inner)) => &inner.header,
            Some(OpResponse::ResponsePut(inner)) => &inner.header,
            Some(OpResponse::ResponseDeleteRange(inner)) => &inner.header,
            Some(OpResponse::ResponseTxn(inner)) => {
                inner_headers(inner);
                &inner.header
            }
            None => continue,
        };
        assert!(header.as_ref().is_none_or(|header| header.cluster_id == 0), "{header:?}");
    }
}
