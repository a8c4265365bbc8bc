//! Deadline filter.

use std::{future::Future, time::Duration};

use http::Response;
use orlop_api::status::Status;

use crate::http::{body::Body, query::Query};

/// Maximum time of a request that is not long-running.
const LIMIT_MAX: Duration = Duration::from_secs(60);

/// Returns the time limit of a request.
pub(crate) fn of(query: &Query) -> Result<Duration, Status> {
    match query.get("timeout").filter(|text| !text.is_empty()) {
        None => Ok(LIMIT_MAX),
        Some(text) => match orlop_duration::parse(text) {
            // Zero and less mean no timeout, as in Kubernetes.
            Ok(..=0) => Ok(LIMIT_MAX),
            Ok(asked) => Ok(Duration::from_nanos(asked.unsigned_abs()).min(LIMIT_MAX)),
            Err(error) => Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL - time: {error}"
            ))),
        },
    }
}

/// Answers Timeout if a request exceeds its limit.
pub(crate) async fn within(
    limit: Duration,
    work: impl Future<Output = Result<Response<Body>, Status>>,
) -> Result<Response<Body>, Status> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(Status::timeout("request did not complete within the allotted timeout", 0)))
}
