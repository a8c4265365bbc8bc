//! Request validation: etcd's checks before it reads any data, in etcd's order and with etcd's errors.

use std::collections::HashSet;

use bytes::Bytes;
use orlop_store::KeyRange;

use crate::{
    convert::key_range,
    errors::{
        DUPLICATE_KEY, EMPTY_KEY, EtcdError, INVALID_SORT, KEY_NOT_FOUND, LEASE_PROVIDED, TOO_MANY_OPS,
        VALUE_PROVIDED,
    },
    pb::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        range_request::{SortOrder, SortTarget},
        request_op::Request,
    },
};

type Validation = Result<(), EtcdError>;

pub(crate) fn range(request: &RangeRequest) -> Validation {
    if request.key.is_empty() {
        return Err(EMPTY_KEY);
    }
    let known =
        SortOrder::try_from(request.sort_order).is_ok() && SortTarget::try_from(request.sort_target).is_ok();
    if known { Ok(()) } else { Err(INVALID_SORT) }
}

pub(crate) fn put(request: &PutRequest) -> Validation {
    if request.key.is_empty() {
        return Err(EMPTY_KEY);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(VALUE_PROVIDED);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(LEASE_PROVIDED);
    }
    Ok(())
}

pub(crate) fn delete(request: &DeleteRangeRequest) -> Validation {
    if request.key.is_empty() { Err(EMPTY_KEY) } else { Ok(()) }
}

pub(crate) fn txn(request: &TxnRequest, max_ops: usize) -> Validation {
    operations(request, max_ops)?;
    overlaps(&request.success)?;
    overlaps(&request.failure)?;
    Ok(())
}

/// Validates a transaction and those nested in it. Each level may use what the levels above left of the limit.
fn operations(request: &TxnRequest, max_ops: usize) -> Validation {
    let ops = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = max_ops.checked_sub(ops).ok_or(TOO_MANY_OPS)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(EMPTY_KEY);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::RequestRange(inner)) => range(inner)?,
            Some(Request::RequestPut(inner)) => put(inner)?,
            Some(Request::RequestDeleteRange(inner)) => delete(inner)?,
            Some(Request::RequestTxn(inner)) => operations(inner, left)?,
            None => return Err(KEY_NOT_FOUND),
        }
    }
    Ok(())
}

/// Keys put and ranges deleted by one branch.
#[derive(Default)]
struct Written<'a> {
    puts: HashSet<&'a Bytes>,
    deletes: Vec<KeyRange>,
}

impl<'a> Written<'a> {
    fn deletes(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|range| range.contains(key))
    }

    fn put(&mut self, key: &'a Bytes) -> Validation {
        if self.deletes(key) || !self.puts.insert(key) { Err(DUPLICATE_KEY) } else { Ok(()) }
    }
}

/// Rejects a key that is put twice, or put and deleted. The two branches of a nested transaction exclude each other, so
/// both may put the same key.
fn overlaps(ops: &[RequestOp]) -> Result<Written<'_>, EtcdError> {
    let mut written = Written::default();
    for op in ops {
        if let Some(Request::RequestDeleteRange(delete)) = &op.request {
            written.deletes.push(key_range(&delete.key, &delete.range_end));
        }
    }
    for op in ops {
        let Some(Request::RequestTxn(inner)) = &op.request else { continue };
        let (then, otherwise) = (overlaps(&inner.success)?, overlaps(&inner.failure)?);
        for key in &then.puts {
            written.put(key)?;
        }
        for key in otherwise.puts.difference(&then.puts) {
            written.put(key)?;
        }
        written.deletes.extend(then.deletes);
        written.deletes.extend(otherwise.deletes);
    }
    for op in ops {
        if let Some(Request::RequestPut(put)) = &op.request {
            written.put(&put.key)?;
        }
    }
    Ok(written)
}
