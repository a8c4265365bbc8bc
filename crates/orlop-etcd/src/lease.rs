//! The Lease service.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, stream};
use orlop_store::Error;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    errors::{LEASE_TTL_TOO_LARGE, status},
    node::Node,
    pb::etcdserverpb::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
        LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus,
        LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, lease_server::Lease,
    },
};

/// Shortest TTL granted, in seconds: etcd's with its default election timeout.
const TTL_MIN: i64 = 2;
const TTL_MAX: i64 = 9_000_000_000;

/// Implements `etcdserverpb.Lease`.
#[derive(Clone, Debug)]
pub(crate) struct LeaseService {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let request = request.into_inner();
        if request.ttl > TTL_MAX {
            return Err(LEASE_TTL_TOO_LARGE.into());
        }
        self.node.alarms.check()?;
        let ttl = Duration::from_secs(request.ttl.max(TTL_MIN).unsigned_abs());
        let id = (request.id != 0).then_some(request.id);
        let lease = self.node.store.grant(id, ttl).await.map_err(status)?;
        let header = self.node.header_now().await?;
        Ok(Response::new(LeaseGrantResponse {
            header,
            id: lease.id,
            ttl: lease.ttl_seconds,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let revision = self.node.store.revoke(request.into_inner().id).await.map_err(status)?;
        Ok(Response::new(LeaseRevokeResponse { header: self.node.header(revision) }))
    }

    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let state = (self.node.clone(), request.into_inner());
        let responses = stream::try_unfold(state, async |(node, mut requests)| {
            let Some(request) = requests.message().await? else { return Ok(None) };
            let response = keep_alive(&node, request.id).await?;
            Ok(Some((response, (node, requests))))
        });
        Ok(Response::new(Box::pin(responses.take_until(self.node.clone().stopped()))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let request = request.into_inner();
        let store = &self.node.store;
        let lease = match store.lease(request.id).await {
            Ok(lease) if lease.remaining_ms > 0 => Some(lease),
            Ok(_) | Err(Error::LeaseNotFound { .. }) => None,
            Err(error) => return Err(status(error)),
        };
        let keys = match &lease {
            Some(lease) if request.keys => store.lease_keys(lease.id).await.map_err(status)?,
            _ => Vec::new(),
        };
        Ok(Response::new(LeaseTimeToLiveResponse {
            header: self.node.header_now().await?,
            id: request.id,
            ttl: lease.as_ref().map_or(-1, |lease| lease.remaining_ms / 1000),
            granted_ttl: lease.as_ref().map_or(0, |lease| lease.ttl_seconds),
            keys,
        }))
    }

    async fn lease_leases(
        &self,
        _: Request<LeaseLeasesRequest>,
    ) -> Result<Response<LeaseLeasesResponse>, Status> {
        let leases = self.node.store.leases().await.map_err(status)?;
        let leases = leases.into_iter().map(|lease| LeaseStatus { id: lease.id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header: self.node.header_now().await?, leases }))
    }
}

/// Renews a lease. A lease that does not exist has a TTL of 0, which ends the client's keepalive.
async fn keep_alive(node: &Node, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    // Read before the renewal: the header must not name a revision after the lease expired.
    let header = node.header(node.store.observed_revision());
    let ttl = match node.store.keep_alive(id).await {
        Ok(lease) => lease.ttl_seconds,
        Err(Error::LeaseNotFound { .. }) => 0,
        Err(error) => return Err(status(error)),
    };
    Ok(LeaseKeepAliveResponse { header, id, ttl })
}
