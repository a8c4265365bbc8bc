//! Conversions of transactions.

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

/// Converts a put. Key and value are copied: they are slices of a receive buffer many times their size, which recent
/// events would keep alive.
pub(crate) fn to_put(request: &PutRequest) -> Put {
    Put {
        lease: request.lease,
        keep_value: request.ignore_value,
        keep_lease: request.ignore_lease,
        previous: request.prev_kv,
        ..Put::new(Bytes::copy_from_slice(&request.key), Bytes::copy_from_slice(&request.value))
    }
}

/// Converts a delete.
pub(crate) fn to_delete(request: &DeleteRangeRequest) -> Delete {
    Delete { range: key_range(&request.key, &request.range_end), previous: request.prev_kv }
}

/// Converts a transaction.
pub(crate) fn to_txn(request: &TxnRequest) -> Txn {
    Txn {
        compares: request.compare.iter().filter_map(compare).collect(),
        then: request.success.iter().filter_map(to_op).collect(),
        otherwise: request.failure.iter().filter_map(to_op).collect(),
    }
}

/// Returns `true` if either branch can put a key.
pub(crate) fn contains_put(request: &TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|op| match &op.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(inner)) => contains_put(inner),
        _ => false,
    })
}

/// Converts a compare. `None` for a result that etcd does not know either: there it always holds.
fn compare(request: &pb::Compare) -> Option<Compare> {
    let comparison = match CompareResult::try_from(request.result).ok()? {
        CompareResult::Equal => Comparison::Equal,
        CompareResult::NotEqual => Comparison::NotEqual,
        CompareResult::Greater => Comparison::Greater,
        CompareResult::Less => Comparison::Less,
    };
    // A target without its own value compares with the zero value.
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

/// Converts an operation. Validation has rejected empty ones.
fn to_op(request: &RequestOp) -> Option<Op> {
    Some(match request.request.as_ref()? {
        Request::RequestRange(inner) => Op::Read(range::to_read(inner)),
        Request::RequestPut(inner) => Op::Put(to_put(inner)),
        Request::RequestDeleteRange(inner) => Op::Delete(to_delete(inner)),
        Request::RequestTxn(inner) => Op::Txn(to_txn(inner)),
    })
}

/// Converts a result. The header of each operation's response has the revision that the operation saw: the
/// transaction's own once something has has_changes, the one before until then.
pub(crate) fn to_response(
    request: &TxnRequest,
    result: TxnResult,
    header: Option<ResponseHeader>,
) -> TxnResponse {
    let mut seen_revision = result.revision - i64::from(has_changes(&result));
    let mut response = operation_responses(request, result, &mut seen_revision);
    response.header = header;
    response
}

fn has_changes(result: &TxnResult) -> bool {
    result.results.iter().any(|result| match result {
        OpResult::Put(_) => true,
        OpResult::Delete { deleted, .. } => *deleted > 0,
        OpResult::Txn(inner) => has_changes(inner),
        OpResult::Read(_) => false,
    })
}

fn operation_responses(request: &TxnRequest, result: TxnResult, seen_revision: &mut Revision) -> TxnResponse {
    let written = result.revision;
    let requests = if result.succeeded { &request.success } else { &request.failure };
    let header = |revision| Some(ResponseHeader { revision, ..ResponseHeader::default() });
    let responses = requests.iter().zip(result.results).filter_map(|(request, result)| {
        let response = match (request.request.as_ref()?, result) {
            (Request::RequestRange(inner), OpResult::Read(read)) => {
                Response::ResponseRange(range::to_response(inner, read, header(*seen_revision)))
            }
            (Request::RequestPut(_), OpResult::Put(previous)) => {
                *seen_revision = written;
                Response::ResponsePut(PutResponse {
                    header: header(*seen_revision),
                    prev_kv: previous.map(key_value),
                })
            }
            (Request::RequestDeleteRange(_), OpResult::Delete { deleted, previous }) => {
                if deleted > 0 {
                    *seen_revision = written;
                }
                Response::ResponseDeleteRange(deleted_response(header(*seen_revision), deleted, previous))
            }
            (Request::RequestTxn(inner), OpResult::Txn(result)) => {
                let mut response = operation_responses(inner, result, seen_revision);
                response.header = Some(ResponseHeader::default());
                Response::ResponseTxn(response)
            }
            // The store returns a result of the operation's own kind.
            _ => return None,
        };
        Some(ResponseOp { response: Some(response) })
    });
    TxnResponse { header: None, succeeded: result.succeeded, responses: responses.collect() }
}

/// Converts the result of a delete.
pub(crate) fn deleted_response(
    header: Option<ResponseHeader>,
    deleted: u64,
    previous: Vec<orlop_store::KeyValue>,
) -> DeleteRangeResponse {
    let prev_kvs = previous.into_iter().map(key_value).collect();
    DeleteRangeResponse { header, deleted: deleted as i64, prev_kvs }
}
