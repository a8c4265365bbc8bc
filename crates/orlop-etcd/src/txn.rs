//! Txn: etcd's transactions in the store's words, and back.

use bytes::Bytes;
use orlop_store::{Compare, Comparison, Delete, Op, OpResult, Put, Revision, Target, Txn, TxnResult};

use crate::{
    convert::{key_range, key_value},
    pb::etcdserverpb::{
        self as pb, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RequestOp,
        ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        request_op::Request,
        response_op::Response,
    },
    range,
};

/// The key and value are copied: as they come they are pieces of a receive buffer many times their size, and
/// recent events stay in memory for a while.
pub(crate) fn put(request: &PutRequest) -> Put {
    Put {
        lease: request.lease,
        keep_value: request.ignore_value,
        keep_lease: request.ignore_lease,
        previous: request.prev_kv,
        ..Put::new(Bytes::copy_from_slice(&request.key), Bytes::copy_from_slice(&request.value))
    }
}

pub(crate) fn delete(request: &DeleteRangeRequest) -> Delete {
    Delete { range: key_range(&request.key, &request.range_end), previous: request.prev_kv }
}

pub(crate) fn txn(request: &TxnRequest) -> Txn {
    Txn {
        compares: request.compare.iter().filter_map(compare).collect(),
        then: request.success.iter().filter_map(op).collect(),
        otherwise: request.failure.iter().filter_map(op).collect(),
    }
}

/// Whether either branch of a transaction can take space.
pub(crate) fn puts(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(inner)) => puts(inner),
        _ => false,
    })
}

/// `None` for a way to compare that etcd does not know either: there it always holds.
fn compare(request: &pb::Compare) -> Option<Compare> {
    let comparison = match CompareResult::try_from(request.result).ok()? {
        CompareResult::Equal => Comparison::Equal,
        CompareResult::NotEqual => Comparison::NotEqual,
        CompareResult::Greater => Comparison::Greater,
        CompareResult::Less => Comparison::Less,
    };
    // A target whose value is missing, or is that of another target, compares with nothing.
    let target = match (CompareTarget::try_from(request.target).ok()?, &request.target_union) {
        (CompareTarget::Version, Some(TargetUnion::Version(n))) => Target::Version(*n),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(n))) => Target::CreateRevision(*n),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(n))) => Target::Revision(*n),
        (CompareTarget::Lease, Some(TargetUnion::Lease(n))) => Target::Lease(*n),
        (CompareTarget::Value, Some(TargetUnion::Value(value))) => Target::Value(value.clone()),
        (CompareTarget::Version, _) => Target::Version(0),
        (CompareTarget::Create, _) => Target::CreateRevision(0),
        (CompareTarget::Mod, _) => Target::Revision(0),
        (CompareTarget::Lease, _) => Target::Lease(0),
        (CompareTarget::Value, _) => Target::Value(Bytes::new()),
    };
    Some(Compare::new(key_range(&request.key, &request.range_end), comparison, target))
}

/// `None` for an operation that is none; the check has refused those.
fn op(request: &RequestOp) -> Option<Op> {
    Some(match request.request.as_ref()? {
        Request::RequestRange(inner) => Op::Read(range::read(inner)),
        Request::RequestPut(inner) => Op::Put(put(inner)),
        Request::RequestDeleteRange(inner) => Op::Delete(delete(inner)),
        Request::RequestTxn(inner) => Op::Txn(txn(inner)),
    })
}

/// The answer to a transaction. The steps inside name the revision as each of them saw it: one more than
/// before once something has changed.
pub(crate) fn answer(request: &TxnRequest, result: TxnResult, header: Option<ResponseHeader>) -> TxnResponse {
    let mut seen = result.revision - i64::from(changed(&result));
    let mut response = steps(request, result, &mut seen);
    response.header = header;
    response
}

fn changed(result: &TxnResult) -> bool {
    result.results.iter().any(|result| match result {
        OpResult::Put(_) => true,
        OpResult::Delete { deleted, .. } => *deleted > 0,
        OpResult::Txn(inner) => changed(inner),
        OpResult::Read(_) => false,
    })
}

fn steps(request: &TxnRequest, result: TxnResult, seen: &mut Revision) -> TxnResponse {
    let written = result.revision;
    let requests = if result.succeeded { &request.success } else { &request.failure };
    let header = |revision| Some(ResponseHeader { revision, ..ResponseHeader::default() });
    let responses = requests.iter().zip(result.results).filter_map(|(request, result)| {
        let response = match (request.request.as_ref()?, result) {
            (Request::RequestRange(inner), OpResult::Read(read)) => {
                Response::ResponseRange(range::answer(inner, read, header(*seen)))
            }
            (Request::RequestPut(_), OpResult::Put(previous)) => {
                *seen = written;
                Response::ResponsePut(PutResponse { header: header(*seen), prev_kv: previous.map(key_value) })
            }
            (Request::RequestDeleteRange(_), OpResult::Delete { deleted, previous }) => {
                if deleted > 0 {
                    *seen = written;
                }
                Response::ResponseDeleteRange(deleted_response(header(*seen), deleted, previous))
            }
            (Request::RequestTxn(inner), OpResult::Txn(result)) => {
                let mut response = steps(inner, result, seen);
                response.header = Some(ResponseHeader::default());
                Response::ResponseTxn(response)
            }
            // The store answers each operation with its own kind.
            _ => return None,
        };
        Some(ResponseOp { response: Some(response) })
    });
    TxnResponse { header: None, succeeded: result.succeeded, responses: responses.collect() }
}

pub(crate) fn deleted_response(
    header: Option<ResponseHeader>,
    deleted: u64,
    previous: Vec<orlop_store::KeyValue>,
) -> DeleteRangeResponse {
    let prev_kvs = previous.into_iter().map(key_value).collect();
    DeleteRangeResponse { header, deleted: deleted as i64, prev_kvs }
}
