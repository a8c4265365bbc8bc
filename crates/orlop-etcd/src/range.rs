//! Range requests.
//!
//! The store reads in key order. Every other order, and the filters on revisions, read the whole range first, as in
//! etcd, and then apply the limit. Keys that compare equal stay in key order.

use orlop_store::{Read, ReadResult, Revision, Select};

use crate::{
    convert::{key_range, key_value},
    header::Identity,
    pb::{
        etcdserverpb::{
            RangeRequest, RangeResponse, ResponseHeader,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
};

/// Returns `true` if the store's read, cut at the limit, is the response.
pub(crate) fn is_key_ordered(request: &RangeRequest) -> bool {
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    filters == [0; 4]
        && (request.sort_order() == SortOrder::None
            || (request.sort_order() == SortOrder::Ascend && request.sort_target() == SortTarget::Key))
}

/// Converts a request to a read of the store.
pub(crate) fn to_read(request: &RangeRequest) -> Read {
    let range = key_range(&request.key, &request.range_end);
    let limit = if is_key_ordered(request) { usize::try_from(request.limit).unwrap_or(0) } else { 0 };
    // With a sort target but no order, etcd reads one key more to decide on `more`.
    let limit = limit + usize::from(limit > 0 && request.sort_target() != SortTarget::Key);
    let by_value = request.sort_target() == SortTarget::Value;
    let select = match request {
        _ if request.count_only => Select::Nothing,
        _ if request.keys_only && !by_value => Select::Keys,
        _ => Select::Values,
    };
    // Without a limit every key is returned, and counted here.
    let count = request.count_only || (limit > 0 && range.single().is_none());
    let revision = (request.revision > 0).then_some(request.revision);
    Read { revision, limit, select, count, ..Read::new(range) }
}

/// Converts the store's result to a response.
pub(crate) fn to_response(
    request: &RangeRequest,
    result: ReadResult,
    header: Option<ResponseHeader>,
) -> RangeResponse {
    let count = result.count.map_or(result.kvs.len() as i64, |count| count as i64);
    if request.count_only {
        return RangeResponse { header, count, ..RangeResponse::default() };
    }
    let mut kvs: Vec<KeyValue> = result.kvs.into_iter().map(key_value).collect();
    filter(request, &mut kvs);
    sort(request, &mut kvs);
    let mut more = result.more;
    if let Ok(limit @ 1..) = usize::try_from(request.limit)
        && kvs.len() > limit
    {
        kvs.truncate(limit);
        more = true;
    }
    if request.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = bytes::Bytes::new());
    }
    RangeResponse { header, kvs, more, count }
}

fn filter(request: &RangeRequest, kvs: &mut Vec<KeyValue>) {
    let within =
        |at: Revision, min: Revision, max: Revision| (min == 0 || at >= min) && (max == 0 || at <= max);
    kvs.retain(|kv| {
        within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
            && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
    });
}

fn sort(request: &RangeRequest, kvs: &mut [KeyValue]) {
    match request.sort_target() {
        SortTarget::Key if request.sort_order() == SortOrder::Descend => {
            kvs.sort_by(|a, b| b.key.cmp(&a.key));
        }
        SortTarget::Key => {}
        SortTarget::Value if request.sort_order() == SortOrder::Descend => {
            kvs.sort_by(|a, b| b.value.cmp(&a.value));
        }
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
        SortTarget::Version => sort_by_number(request, kvs, |kv| kv.version),
        SortTarget::Create => sort_by_number(request, kvs, |kv| kv.create_revision),
        SortTarget::Mod => sort_by_number(request, kvs, |kv| kv.mod_revision),
    }
}

fn sort_by_number(request: &RangeRequest, kvs: &mut [KeyValue], number: impl Fn(&KeyValue) -> i64) {
    if request.sort_order() == SortOrder::Descend {
        kvs.sort_by_key(|kv| std::cmp::Reverse(number(kv)));
    } else {
        kvs.sort_by_key(number);
    }
}

/// The responses of a streamed range. Only the last carries the header, the count and `more`.
pub(crate) struct RangeChunks {
    pages: orlop_store::Pages,
    identity: Identity,
    /// The page after the next one to send, which decides if that is the last.
    lookahead: Option<ReadResult>,
    revision: Revision,
    count: Option<u64>,
    sent: u64,
}

impl RangeChunks {
    pub(crate) fn new(pages: orlop_store::Pages, identity: Identity) -> Self {
        Self { pages, identity, lookahead: None, revision: 0, count: None, sent: 0 }
    }

    pub(crate) async fn next(&mut self) -> orlop_store::Result<Option<RangeResponse>> {
        let first = self.revision == 0;
        let page = match self.lookahead.take() {
            Some(page) => page,
            None if first => match self.pages.next().await? {
                Some(page) => page,
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        if first {
            (self.revision, self.count) = (page.revision, page.count);
        }
        self.lookahead = self.pages.next().await?;
        self.sent += page.kvs.len() as u64;
        let mut response =
            RangeResponse { kvs: page.kvs.into_iter().map(key_value).collect(), ..RangeResponse::default() };
        if self.lookahead.is_none() {
            response.header = self.identity.header(self.revision);
            response.count = self.count.unwrap_or(self.sent) as i64;
            response.more = page.more;
        }
        Ok(Some(response))
    }
}
