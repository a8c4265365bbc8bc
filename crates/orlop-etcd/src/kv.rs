//! The KV service.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use orlop_store::{KeyValue, Op, OpResult, Read, ReadResult, Txn, TxnResult};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::{
    errors::{REQUEST_TOO_LARGE, response_too_large, status},
    node::Node,
    pb::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
        kv_server::Kv,
    },
    range, txn, validate,
};

/// Implements `etcdserverpb.KV`.
#[derive(Clone, Debug)]
pub(crate) struct KvService {
    pub(crate) node: Arc<Node>,
}

impl KvService {
    fn check_size(&self, request: &impl Message) -> Result<(), Status> {
        if request.encoded_len() > self.node.options.max_request_bytes {
            return Err(REQUEST_TOO_LARGE.into());
        }
        Ok(())
    }

    /// Reads a range into memory, up to the limit on responses.
    async fn read(&self, read: Read) -> Result<ReadResult, Status> {
        let limit = self.node.options.max_response_bytes;
        let mut pages = self.node.store.pages(read).map_err(status)?;
        let Some(mut result) = pages.next().await.map_err(status)? else { return Ok(ReadResult::default()) };
        let mut bytes = response_bytes(&result.kvs);
        while let Some(page) = pages.next().await.map_err(status)? {
            bytes += response_bytes(&page.kvs);
            if bytes > limit {
                break;
            }
            result.kvs.extend(page.kvs);
            result.more = page.more;
        }
        if bytes > limit { Err(response_too_large(bytes as u64, limit as u64)) } else { Ok(result) }
    }

    /// Runs a transaction. One with a put fails while the NOSPACE alarm is raised.
    async fn write(&self, txn: Txn, puts: bool) -> Result<TxnResult, Status> {
        let Node { store, alarms, options, .. } = &*self.node;
        if puts {
            alarms.check()?;
        }
        match store.txn(txn).await {
            Ok(result) => Ok(result),
            Err(error) => Err(alarms.status_from_write_error(store, error, options.quota_bytes > 0).await),
        }
    }
}

fn response_bytes(kvs: &[KeyValue]) -> usize {
    kvs.iter().map(|kv| size_of::<KeyValue>() + kv.key.len() + kv.value.len()).sum()
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        let request = request.into_inner();
        validate::range(&request)?;
        let result = self.read(range::to_read(&request)).await?;
        let header = self.node.header(result.revision);
        Ok(Response::new(range::to_response(&request, result, header)))
    }

    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let request = request.into_inner();
        validate::range(&request)?;
        if !range::is_key_ordered(&request) {
            return Err(Status::unimplemented(
                "orlop: RangeStream supports neither sort orders nor revision filters",
            ));
        }
        let pages = self.node.store.pages(range::to_read(&request)).map_err(status)?;
        let chunks = range::RangeChunks::new(pages, self.node.identity);
        let stream = stream::try_unfold(chunks, async |mut chunks| {
            let chunk = chunks.next().await.map_err(status)?;
            Ok(chunk.map(|chunk| (RangeStreamResponse { range_response: Some(chunk) }, chunks)))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        validate::put(&request)?;
        self.check_size(&request)?;
        let result = self.write(Txn::of([Op::Put(txn::to_put(&request))]), true).await?;
        let header = self.node.header(result.revision);
        let prev_kv = match result.results.into_iter().next() {
            Some(OpResult::Put(previous)) => previous.map(crate::convert::key_value),
            _ => None,
        };
        Ok(Response::new(PutResponse { header, prev_kv }))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        validate::delete(&request)?;
        self.check_size(&request)?;
        let result = self.write(Txn::of([Op::Delete(txn::to_delete(&request))]), false).await?;
        let header = self.node.header(result.revision);
        let (deleted, previous) = match result.results.into_iter().next() {
            Some(OpResult::Delete { deleted, previous }) => (deleted, previous),
            _ => Default::default(),
        };
        Ok(Response::new(txn::deleted_response(header, deleted, previous)))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        validate::txn(&request, self.node.options.max_txn_ops)?;
        self.check_size(&request)?;
        let result = self.write(txn::to_txn(&request), txn::contains_put(&request)).await?;
        let header = self.node.header(result.revision);
        Ok(Response::new(txn::to_response(&request, result, header)))
    }

    async fn compact(
        &self,
        request: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        let request = request.into_inner();
        let store = &self.node.store;
        store.compact(request.revision).await.map_err(status)?;
        if request.physical {
            store.wait_for_compaction().await.map_err(status)?;
        }
        Ok(Response::new(CompactionResponse { header: self.node.header_now().await? }))
    }
}
