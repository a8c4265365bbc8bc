//! Panic guard: a panic fails its own request only.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use http::Response;
use orlop_api::status::Status;

use crate::http::body::Body;

/// Answers 500 if a request panics.
pub(crate) async fn guard(
    work: impl Future<Output = Result<Response<Body>, Status>>,
) -> Result<Response<Body>, Status> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        Err(Status::internal("This request caused apiserver to panic. Look in the logs for details."))
    })
}
