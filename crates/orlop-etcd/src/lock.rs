//! The Lock service.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status};

use crate::{
    candidates::{Candidates, unknown},
    kv::KvService,
    node::Node,
    pb::{
        etcdserverpb::{DeleteRangeRequest, kv_server::Kv},
        v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse, lock_server::Lock},
    },
};

/// Implements `v3lockpb.Lock`.
#[derive(Clone, Debug)]
pub(crate) struct LockService {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        let request = request.into_inner();
        let candidates = Candidates::of(&self.node, &request.name);
        let lease = candidates.lease(request.lease).await?;
        let candidate = candidates.enter(lease, Bytes::new()).await?;
        candidates.wait_for_turn(&candidate).await?;
        // The lease may have expired while it waited.
        let held = candidates.get(&candidate.key).await?;
        if held.kvs.is_empty() {
            return Err(unknown("mutex: session is expired"));
        }
        Ok(Response::new(LockResponse { header: held.header, key: candidate.key }))
    }

    async fn unlock(&self, request: Request<UnlockRequest>) -> Result<Response<UnlockResponse>, Status> {
        let kv = KvService { node: self.node.clone() };
        let request = DeleteRangeRequest { key: request.into_inner().key, ..DeleteRangeRequest::default() };
        let deleted = kv.delete_range(Request::new(request)).await?.into_inner();
        Ok(Response::new(UnlockResponse { header: deleted.header }))
    }
}
