//! Panic guard: a panic fails its own request only.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use http::Response;
use orlop_api::status::Status;

use crate::http::body::Body;

/// Answers 500 if a request panics. Also returns the message of the panic.
pub(crate) async fn guard(
    work: impl Future<Output = Result<Response<Body>, Status>>,
) -> (Result<Response<Body>, Status>, Option<String>) {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(answered) => (answered, None),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let answer = "This request caused apiserver to panic. Look in the logs for details.";
            (Err(Status::internal(answer)), Some(text.unwrap_or_default()))
        }
    }
}
