//! Another API server, through a kube-rs client.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use orlop_api::status::Status;
use orlop_server::{http::body::Body, registry::remote::Remote};

/// A cluster that stores objects of kinds that are served here.
#[derive(Clone)]
pub struct Cluster(kube::Client);

impl Cluster {
    /// Returns the cluster of a client, with the client's credentials.
    pub fn new(client: kube::Client) -> Self {
        Self(client)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

#[async_trait]
impl Remote for Cluster {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Status> {
        let request = request.map(kube::client::Body::from);
        match self.0.send(request).await {
            Ok(response) => Ok(response.map(Body::forward)),
            Err(error) => {
                Err(Status::service_unavailable(format!("error trying to reach the other cluster: {error}")))
            }
        }
    }
}
