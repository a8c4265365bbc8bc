//! Subresources that are not the object itself: scale, binding, eviction, token, and those that a node
//! would answer.

mod eviction;
mod pods;
mod scale;
mod token;

use bytes::Bytes;
use http::Response;
use orlop_api::status::Status;

use crate::{
    body::Body,
    verbs::{Request, answer},
};

/// Does what a request asks of a subresource.
pub(crate) async fn run(verb: &str, name: &str, request: &Request) -> Result<Response<Body>, Status> {
    match (verb, name) {
        ("get", "scale") => scale::get(request).await,
        ("update", "scale") => scale::update(request).await,
        ("patch", "scale") => scale::patch(request).await,
        ("create", "binding") => pods::bind(request).await,
        ("create", "eviction") => eviction::evict(request).await,
        ("create", "token") => token::create(request).await,
        ("get", "log") => pods::log(request).await,
        (_, "exec" | "attach" | "portforward") => Err(pods::without_a_node(request).await),
        (_, "proxy") => Err(Status::service_unavailable("no node can be reached from this server")),
        _ => Err(Status::method_unknown()),
    }
}

/// An answer of plain text.
fn text(body: &'static str) -> Response<Body> {
    answer::bytes(200, "text/plain", Bytes::from_static(body.as_bytes()))
}
