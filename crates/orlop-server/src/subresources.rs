//! Subresources that are not the object itself: scale, binding, token…

use http::Response;
use orlop_api::status::Status;

use crate::{body::Body, verbs::Request};

/// Does what a request asks of a subresource.
pub(crate) async fn run(verb: &str, name: &str, request: &Request) -> Result<Response<Body>, Status> {
    let _ = name;
    Err(Status::method_not_allowed(&request.kind.group_resource(), verb))
}
