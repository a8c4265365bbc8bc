//! Subresources that are not the object itself: scale, binding, eviction, token, and those that a node
//! would answer.

mod eviction;
mod log;
mod pods;
mod proxy;
mod scale;
mod token;

use bytes::Bytes;
use http::Response;
use orlop_api::{object_meta, options::FieldValidation, status::Status};

use super::{Request, decoder};
use crate::{
    http::{body::Body, response},
    registry::Kind,
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
        ("get", "log") => log::get(request).await,
        (_, "exec" | "attach" | "portforward") => Err(pods::without_a_node(request).await),
        (_, "proxy") => Err(proxy::refusal(request).await),
        _ => Err(Status::method_unknown()),
    }
}

/// Whether a kind is the one that pods are put on nodes with: nothing of it is kept.
pub(crate) fn is_binding(kind: &Kind) -> bool {
    (kind.gvk.group.as_str(), kind.resource.as_str()) == ("", "bindings")
}

/// The old way to put a pod on a node: the binding says which pod, not the path.
pub(crate) async fn bind(mut request: Request) -> Result<Response<Body>, Status> {
    let binding = decoder::object(&request, FieldValidation::Ignore)?;
    let name = object_meta::text(object_meta::of(&binding), "name").to_owned();
    let pods = request.cluster.objects.registry.kinds().get("", "v1", "pods").cloned();
    let pods = pods.ok_or_else(Status::resource_unknown)?;
    if name.is_empty() {
        return Err(Status::bad_request("name is required"));
    }
    request.kind = pods;
    (request.about.name, request.about.subresource) = (name, "binding".into());
    pods::bind(&request).await
}

/// An answer of plain text.
fn text(body: &'static str) -> Response<Body> {
    response::bytes(200, "text/plain", Bytes::from_static(body.as_bytes()))
}
