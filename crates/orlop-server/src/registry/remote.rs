//! Kinds that another API server stores.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use orlop_api::status::Status;

use crate::http::body::Body;

/// Another API server.
#[async_trait]
pub trait Remote: Send + Sync {
    /// Sends a request with this server's own credentials. The URI has no host.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Status>;
}
