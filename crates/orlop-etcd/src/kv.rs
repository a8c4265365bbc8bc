//! The KV service.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use orlop_store::{Op, OpResult, Txn, TxnResult};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::{
    check,
    errors::{REQUEST_TOO_LARGE, status},
    node::Node,
    pb::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
        kv_server::Kv,
    },
    range, txn,
};

/// Reads and writes of keys.
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

    /// Runs a transaction; one that puts is refused while the database is full.
    async fn write(&self, txn: Txn, puts: bool) -> Result<TxnResult, Status> {
        let Node { store, alarms, options, .. } = &*self.node;
        if puts {
            alarms.check()?;
        }
        match store.txn(txn).await {
            Ok(result) => Ok(result),
            Err(error) => Err(alarms.refused(store, error, options.quota_bytes > 0).await),
        }
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        let request = request.into_inner();
        check::range(&request)?;
        let result = self.node.store.read(range::read(&request)).await.map_err(status)?;
        let header = self.node.header(result.revision);
        Ok(Response::new(range::answer(&request, result, header)))
    }

    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let request = request.into_inner();
        check::range(&request)?;
        if !range::in_key_order(&request) {
            return Err(Status::unimplemented("RangeStream has neither orders nor filters on revisions"));
        }
        let pages = self.node.store.pages(range::read(&request)).map_err(status)?;
        let chunks = range::Chunks::new(pages, self.node.identity);
        let stream = stream::try_unfold(chunks, async |mut chunks| {
            let chunk = chunks.next().await.map_err(status)?;
            Ok(chunk.map(|chunk| (RangeStreamResponse { range_response: Some(chunk) }, chunks)))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        check::put(&request)?;
        self.check_size(&request)?;
        let result = self.write(Txn::of([Op::Put(txn::put(&request))]), true).await?;
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
        check::delete(&request)?;
        self.check_size(&request)?;
        let result = self.write(Txn::of([Op::Delete(txn::delete(&request))]), false).await?;
        let header = self.node.header(result.revision);
        let (deleted, previous) = match result.results.into_iter().next() {
            Some(OpResult::Delete { deleted, previous }) => (deleted, previous),
            _ => Default::default(),
        };
        Ok(Response::new(txn::deleted_response(header, deleted, previous)))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let request = request.into_inner();
        check::txn(&request, self.node.options.max_txn_ops)?;
        self.check_size(&request)?;
        let result = self.write(txn::txn(&request), txn::puts(&request)).await?;
        let header = self.node.header(result.revision);
        Ok(Response::new(txn::answer(&request, result, header)))
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
