//! A client of the history checker that speaks etcd's protocol.
//!
//! etcd has no index, so that filtered requests are not sent and count as unknown. Its errors carry no
//! revisions: one that the checker cannot interpret counts as unknown too. That excuses no inconsistency, since
//! writes and watches still show it.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use orlop_check::{Answer, Batch, Failure, Observed, WatchSpec, WatchStream};
use orlop_etcd::{
    Client, ClientTls,
    pb::{
        etcdserverpb::{
            self as pb, CompactionRequest, DeleteRangeRequest, HashKvRequest, PutRequest, RangeRequest,
            RequestOp, TxnRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
            compare::{CompareResult, CompareTarget, TargetUnion},
            request_op::Request,
            response_op::Response,
            watch_request::RequestUnion,
        },
        mvccpb,
    },
};
use orlop_store::{
    Comparison, Error, KeyRange, KeyValue, Op, OpResult, Read, ReadResult, Revision, Select, Target, Txn,
    TxnResult,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Delay before another attempt to reach a server that is down.
const AGAIN: Duration = Duration::from_millis(10);

pub(crate) struct Grpc(Client);

impl Grpc {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(Client::connect(url, &ClientTls::default()).await.unwrap())
    }

    /// Compacted revision that the server has reported.
    async fn expired(&self) -> Failure {
        match self.0.maintenance.clone().hash_kv(HashKvRequest { revision: 0 }).await {
            Ok(answer) => {
                Failure::Refused(Error::Expired { compacted: answer.into_inner().compact_revision })
            }
            Err(status) => unknown(&status),
        }
    }

    async fn failure(&self, status: Status) -> Failure {
        if status.message() == "etcdserver: mvcc: required revision has been compacted" {
            return self.expired().await;
        }
        unknown(&status)
    }
}

fn unknown(status: &Status) -> Failure {
    Failure::Unknown(format!("{:?}: {}", status.code(), status.message()))
}

fn unsupported<T>() -> Answer<T> {
    Err(Failure::Unknown("etcd's protocol has no filters".into()))
}

/// Retries until the request has reached a server. A request that never left this process had no effect.
macro_rules! reach {
    ($call:expr) => {
        loop {
            match $call.await {
                Err(status) if status.message().contains("tcp connect error") => {
                    tokio::time::sleep(AGAIN).await
                }
                answer => break answer,
            }
        }
    };
}

#[async_trait::async_trait]
impl orlop_check::Client for Grpc {
    async fn txn(&self, txn: Txn) -> Answer<TxnResult> {
        let Some(request) = txn_request(&txn) else { return unsupported() };
        match reach!(self.0.kv.clone().txn(request.clone())) {
            Ok(answer) => {
                let answer = answer.into_inner();
                let revision = answer.header.unwrap().revision;
                Ok(txn_result(&txn, answer, revision))
            }
            Err(status) => Err(unknown(&status)),
        }
    }

    async fn read(&self, read: Read) -> Answer<ReadResult> {
        let Some(request) = range_request(&read) else { return unsupported() };
        match reach!(self.0.kv.clone().range(request.clone())) {
            Ok(answer) => {
                let answer = answer.into_inner();
                let revision = answer.header.unwrap().revision;
                Ok(read_result(&read, answer, revision))
            }
            Err(status) => Err(self.failure(status).await),
        }
    }

    async fn compact(&self, revision: Revision) -> Answer<()> {
        match reach!(self.0.kv.clone().compact(CompactionRequest { revision, physical: false })) {
            Ok(_) => Ok(()),
            Err(status) => Err(self.failure(status).await),
        }
    }

    async fn revision(&self) -> Answer<Revision> {
        let read = RangeRequest { key: "x".into(), ..RangeRequest::default() };
        match reach!(self.0.kv.clone().range(read.clone())) {
            Ok(answer) => Ok(answer.into_inner().header.unwrap().revision),
            Err(status) => Err(unknown(&status)),
        }
    }

    async fn watch(&self, spec: WatchSpec) -> Answer<Box<dyn WatchStream>> {
        if !spec.filter.is_empty() {
            return unsupported();
        }
        let (key, range_end) = bounds(&spec.range);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: spec.after.map_or(0, |after| after + 1),
            prev_kv: spec.previous,
            ..WatchCreateRequest::default()
        };
        let (requests, sent) = mpsc::channel(4);
        let _ =
            requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await;
        let responses = self.0.watch.clone().watch(ReceiverStream::new(sent)).await;
        let mut responses = responses.map_err(|status| unknown(&status))?.into_inner();
        let created = responses.message().await.map_err(|status| unknown(&status))?;
        let place = created.and_then(|created| created.header).map_or(0, |header| header.revision);
        let place = spec.after.unwrap_or(place).min(place);
        let mut stream = Stream { requests, responses, batches: VecDeque::new(), place, over: None };
        // A watch at a compacted revision is created first and then cancelled: wait for either.
        stream.progress().await?;
        Ok(Box::new(stream))
    }
}

struct Stream {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    batches: VecDeque<Batch>,
    /// Revision delivered to the caller.
    place: Revision,
    over: Option<Failure>,
}

impl Stream {
    /// Reads one response. Returns the revision of a progress notification.
    async fn take(&mut self) -> Option<Revision> {
        let response = match self.responses.message().await {
            Ok(Some(response)) => response,
            Ok(None) => {
                self.over = Some(Failure::Unknown("the stream ended".into()));
                return None;
            }
            Err(status) => {
                self.over = Some(unknown(&status));
                return None;
            }
        };
        if response.canceled {
            let compacted = response.compact_revision;
            self.over = Some(Failure::Refused(Error::Expired { compacted }));
            return None;
        }
        if response.watch_id == -1 {
            return response.header.map(|header| header.revision);
        }
        for event in response.events {
            let event = observed(event);
            match self.batches.back_mut() {
                Some(batch) if batch.revision == event.kv.revision => batch.events.push(event),
                _ => self.batches.push_back(Batch { revision: event.kv.revision, events: vec![event] }),
            }
        }
        None
    }
}

#[async_trait::async_trait]
impl WatchStream for Stream {
    async fn next(&mut self) -> Answer<Batch> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                self.place = batch.revision;
                return Ok(batch);
            }
            if let Some(over) = self.over.clone() {
                return Err(over);
            }
            self.take().await;
        }
    }

    async fn progress(&mut self) -> Answer<Revision> {
        let asked =
            WatchRequest { request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})) };
        if self.requests.send(asked).await.is_ok() {
            while self.over.is_none() {
                if let Some(revision) = self.take().await {
                    if self.batches.is_empty() {
                        self.place = self.place.max(revision);
                    }
                    return Ok(self.place);
                }
            }
        }
        match &self.over {
            Some(over) if self.batches.is_empty() => Err(over.clone()),
            _ => Ok(self.place),
        }
    }
}

fn observed(event: mvccpb::Event) -> Observed {
    let deleted = event.r#type == 1;
    let kv = key_value(event.kv.unwrap_or_default());
    let created = !deleted && kv.version == 1;
    Observed { created, deleted, kv, passes: None, previous: event.prev_kv.map(key_value) }
}

fn key_value(kv: mvccpb::KeyValue) -> KeyValue {
    KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: kv.create_revision,
        revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
        stale: false,
    }
}

fn bounds(range: &KeyRange) -> (Bytes, Bytes) {
    let start = if range.start().is_empty() { Bytes::from_static(&[0]) } else { range.start().clone() };
    match (range.single(), range.end()) {
        (Some(_), _) => (start, Bytes::new()),
        (None, Some(end)) => (start, end.clone()),
        (None, None) => (start, Bytes::from_static(&[0])),
    }
}

fn range_request(read: &Read) -> Option<RangeRequest> {
    if !read.filter.is_empty() {
        return None;
    }
    let (key, range_end) = bounds(&read.range);
    Some(RangeRequest {
        key,
        range_end,
        revision: read.revision.unwrap_or(0),
        limit: read.limit as i64,
        keys_only: read.select == Select::Keys,
        count_only: read.select == Select::Nothing,
        ..RangeRequest::default()
    })
}

fn read_result(read: &Read, answer: pb::RangeResponse, revision: Revision) -> ReadResult {
    ReadResult {
        revision,
        kvs: answer.kvs.into_iter().map(key_value).collect(),
        more: answer.more,
        count: read.count.then_some(answer.count as u64),
    }
}

fn txn_request(txn: &Txn) -> Option<TxnRequest> {
    let compare = txn.compares.iter().map(|compare| {
        let (key, range_end) = bounds(&compare.range);
        let result = match compare.comparison {
            Comparison::Equal => CompareResult::Equal,
            Comparison::NotEqual => CompareResult::NotEqual,
            Comparison::Greater => CompareResult::Greater,
            Comparison::Less => CompareResult::Less,
        };
        let (target, union) = match &compare.target {
            Target::Value(value) => (CompareTarget::Value, TargetUnion::Value(value.clone())),
            Target::Version(n) => (CompareTarget::Version, TargetUnion::Version(*n)),
            Target::CreateRevision(n) => (CompareTarget::Create, TargetUnion::CreateRevision(*n)),
            Target::Revision(n) => (CompareTarget::Mod, TargetUnion::ModRevision(*n)),
            Target::Lease(n) => (CompareTarget::Lease, TargetUnion::Lease(*n)),
        };
        pb::Compare {
            result: result as i32,
            target: target as i32,
            key,
            range_end,
            target_union: Some(union),
        }
    });
    let ops = |ops: &[Op]| ops.iter().map(op).collect::<Option<Vec<_>>>();
    Some(TxnRequest { compare: compare.collect(), success: ops(&txn.then)?, failure: ops(&txn.otherwise)? })
}

fn op(op: &Op) -> Option<RequestOp> {
    let request = match op {
        Op::Put(put) => Request::RequestPut(PutRequest {
            key: put.key.clone(),
            value: put.value.clone(),
            lease: put.lease,
            prev_kv: put.previous,
            ignore_value: put.keep_value,
            ignore_lease: put.keep_lease,
        }),
        Op::Delete(delete) => {
            let (key, range_end) = bounds(&delete.range);
            Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: delete.previous })
        }
        Op::Read(read) => Request::RequestRange(range_request(read)?),
        Op::Txn(txn) => Request::RequestTxn(txn_request(txn)?),
    };
    Some(RequestOp { request: Some(request) })
}

/// Converts a response to the store's type: every part carries the revision of the whole.
fn txn_result(txn: &Txn, answer: pb::TxnResponse, revision: Revision) -> TxnResult {
    let ops = if answer.succeeded { &txn.then } else { &txn.otherwise };
    let results =
        ops.iter().zip(answer.responses).map(|(op, response)| match (op, response.response.unwrap()) {
            (Op::Put(_), Response::ResponsePut(put)) => OpResult::Put(put.prev_kv.map(key_value)),
            (Op::Delete(_), Response::ResponseDeleteRange(delete)) => OpResult::Delete {
                deleted: delete.deleted as u64,
                previous: delete.prev_kvs.into_iter().map(key_value).collect(),
            },
            (Op::Read(read), Response::ResponseRange(range)) => {
                OpResult::Read(read_result(read, range, revision))
            }
            (Op::Txn(txn), Response::ResponseTxn(inner)) => OpResult::Txn(txn_result(txn, inner, revision)),
            (op, response) => panic!("{op:?} was answered {response:?}"),
        });
    TxnResult { revision, succeeded: answer.succeeded, results: results.collect() }
}
