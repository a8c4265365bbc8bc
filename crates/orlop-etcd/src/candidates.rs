//! Candidates for a lock or an election: keys below a prefix, served in the order of their creation.
//!
//! Keys and transactions are those of etcd's `concurrency` package, so that clients that lock by themselves and clients
//! of the services queue up together.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use orlop_store::{KeyRange, Watch};
use tonic::{Code, Request, Status};

use crate::{
    errors::{STOPPED, status},
    kv::KvService,
    node::Node,
    pb::{
        etcdserverpb::{
            Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseHeader,
            TxnRequest, compare, kv_server::Kv, range_request, request_op::Request as Op, response_op,
        },
        mvccpb::KeyValue,
    },
};

/// TTL of the lease of a candidate that names none.
const LEASE_TTL: Duration = Duration::from_secs(60);

/// The candidates for one name.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    kv: KvService,
    prefix: Bytes,
}

/// A candidate's key.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: Bytes,
    /// Revision that created the key.
    pub(crate) revision: i64,
    pub(crate) header: Option<ResponseHeader>,
    /// Value of a key that was there before.
    pub(crate) existing: Option<Bytes>,
}

impl Candidates {
    pub(crate) fn of(node: &Arc<Node>, name: &[u8]) -> Self {
        let prefix = [name, b"/"].concat().into();
        Self { kv: KvService { node: node.clone() }, prefix }
    }

    /// Returns a lease to queue up with: the given one, or a new one.
    pub(crate) async fn lease(&self, given: i64) -> Result<i64, Status> {
        if given != 0 {
            return Ok(given);
        }
        Ok(self.kv.node.store.grant(None, LEASE_TTL).await.map_err(status)?.id)
    }

    /// Adds the key of a lease, unless it is there already.
    pub(crate) async fn enter(&self, lease: i64, value: Bytes) -> Result<Candidate, Status> {
        let key: Bytes = [&self.prefix[..], format!("{lease:x}").as_bytes()].concat().into();
        let put = PutRequest { key: key.clone(), value, lease, ..PutRequest::default() };
        let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let response = self
            .kv
            .txn(Request::new(TxnRequest {
                compare: vec![created_at(&key, 0)],
                success: vec![operation(Op::RequestPut(put))],
                failure: vec![operation(Op::RequestRange(get))],
            }))
            .await?
            .into_inner();
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        let existing = match response.responses.into_iter().next().and_then(|response| response.response) {
            Some(response_op::Response::ResponseRange(found)) => found.kvs.into_iter().next(),
            _ => None,
        };
        Ok(Candidate {
            key,
            revision: existing.as_ref().map_or(revision, |kv| kv.create_revision),
            header: response.header,
            existing: existing.map(|kv| kv.value),
        })
    }

    /// Waits until no earlier candidate is left. A candidate that stops waiting is withdrawn.
    pub(crate) async fn wait_for_turn(&self, candidate: &Candidate) -> Result<(), Status> {
        let mut withdrawal = Withdrawal { kv: self.kv.clone(), candidate: Some(candidate.clone()) };
        while let Some((earlier, revision)) = self.last_before(candidate.revision).await? {
            self.wait_for_deletion(earlier.key, revision).await?;
        }
        withdrawal.candidate = None;
        Ok(())
    }

    /// Returns the first candidate, if there is one, and the header of the read.
    pub(crate) async fn first(&self) -> Result<(Option<KeyValue>, Option<ResponseHeader>), Status> {
        let found = self.range(range_request::SortOrder::Ascend, 0).await?;
        Ok((found.kvs.into_iter().next(), found.header))
    }

    async fn last_before(&self, revision: i64) -> Result<Option<(KeyValue, i64)>, Status> {
        let found = self.range(range_request::SortOrder::Descend, revision - 1).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        Ok(found.kvs.into_iter().next().map(|kv| (kv, revision)))
    }

    async fn range(
        &self,
        order: range_request::SortOrder,
        max_create_revision: i64,
    ) -> Result<RangeResponse, Status> {
        let request = RangeRequest {
            key: self.prefix.clone(),
            range_end: self.range_end(),
            limit: 1,
            sort_order: order.into(),
            sort_target: range_request::SortTarget::Create.into(),
            max_create_revision,
            ..RangeRequest::default()
        };
        Ok(self.kv.range(Request::new(request)).await?.into_inner())
    }

    /// Returns the end of the prefix's range. A prefix ends in a slash.
    fn range_end(&self) -> Bytes {
        let mut end = self.prefix.to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end.into()
    }

    /// Returns the range of all candidates' keys.
    pub(crate) fn keys(&self) -> KeyRange {
        KeyRange::prefix(self.prefix.clone())
    }

    async fn wait_for_deletion(&self, key: Bytes, after: i64) -> Result<(), Status> {
        let node = &self.kv.node;
        let mut watcher =
            node.store.watch(Watch::new(KeyRange::key(key)).after(after)).await.map_err(status)?;
        let deleted = async {
            loop {
                let batch = watcher.next().await.map_err(status)?;
                if batch.events().any(|event| event.event.deleted) {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            deleted = deleted => deleted,
            () = node.clone().stopped() => Err(STOPPED.into()),
        }
    }

    /// Runs operations if a candidate's key is still the one it created. Returns the header, and true if it was.
    pub(crate) async fn while_owned(
        kv: &KvService,
        key: &Bytes,
        revision: i64,
        operation_if_owned: Op,
    ) -> Result<(Option<ResponseHeader>, bool), Status> {
        let request = TxnRequest {
            compare: vec![created_at(key, revision)],
            success: vec![operation(operation_if_owned)],
            failure: Vec::new(),
        };
        let response = kv.txn(Request::new(request)).await?.into_inner();
        Ok((response.header, response.succeeded))
    }

    /// Returns a candidate's key as it is now.
    pub(crate) async fn get(&self, key: &Bytes) -> Result<RangeResponse, Status> {
        let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        Ok(self.kv.range(Request::new(request)).await?.into_inner())
    }
}

fn operation(operation: Op) -> RequestOp {
    RequestOp { request: Some(operation) }
}

fn created_at(key: &Bytes, revision: i64) -> Compare {
    Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(compare::TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// Returns the operation that deletes a key.
pub(crate) fn deletion(key: Bytes) -> Op {
    Op::RequestDeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })
}

/// Returns an error that etcd's services do not give a code.
pub(crate) fn unknown(text: &str) -> Status {
    Status::new(Code::Unknown, text)
}

/// Deletes the key of a candidate that no longer waits: its client has gone, or an error ended the wait.
struct Withdrawal {
    kv: KvService,
    candidate: Option<Candidate>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let (Some(candidate), Ok(runtime)) = (self.candidate.take(), tokio::runtime::Handle::try_current())
        {
            let kv = self.kv.clone();
            runtime.spawn(async move {
                let Candidate { key, revision, .. } = candidate;
                // The lease deletes the key of a candidate that could not be withdrawn.
                if let Err(error) = Candidates::while_owned(&kv, &key, revision, deletion(key.clone())).await
                {
                    tracing::debug!(%error, "a candidate could not be withdrawn");
                }
            });
        }
    }
}
