//! Discovery: which groups, versions and resources there are.

use http::{HeaderMap, Response};
use orlop_api::status::Status;

use crate::{body::Body, cluster::Cluster};

/// Answers `/api…` and `/apis…`.
pub(crate) fn answer(cluster: &Cluster, segments: &[&str], headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let _ = (cluster, segments, headers);
    Err(Status::resource_unknown())
}
