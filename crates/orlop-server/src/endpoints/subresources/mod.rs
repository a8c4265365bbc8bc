//! Subresources with objects of another kind: scale, binding, eviction, token, and those that a node answers.

mod eviction;
mod log;
mod nodes;
mod pods;
mod proxy;
mod scale;
mod streams;
mod token;

use http::Response;
use orlop_api::{object_meta, options::FieldValidation, status::Status};

use super::{Request, admission, decoder, verb_access};
use crate::{
    http::body::Body,
    registry::Kind,
    request::{Attributes, Subresource, Verb},
};

/// Runs the verb of a request for a subresource.
pub(super) async fn run(request: &Request) -> Result<Response<Body>, Status> {
    let Some(subresource) = &request.attributes.subresource else { return Err(Status::method_unknown()) };
    match (&request.attributes.verb, subresource) {
        (Verb::Get, Subresource::Scale) => scale::get(request).await,
        (Verb::Update, Subresource::Scale) => scale::update(request).await,
        (Verb::Patch, Subresource::Scale) => scale::patch(request).await,
        (Verb::Create, Subresource::Binding) => pods::bind(request, request).await,
        (Verb::Create, Subresource::Eviction) => eviction::evict(request).await,
        (Verb::Create, Subresource::Token) => token::create(request).await,
        (Verb::Get, Subresource::Log) => log::get(request).await,
        (_, subresource) if subresource.is_connect() => {
            admission::connect(request).await?;
            verb_access::check_connect(request).await?;
            match subresource {
                Subresource::Proxy => proxy::connect(request).await,
                _ => streams::connect(request).await,
            }
        }
        _ => Err(Status::method_unknown()),
    }
}

/// Returns true for Binding, which is never stored.
pub(crate) fn is_binding(kind: &Kind) -> bool {
    (kind.gvk.group.as_str(), kind.resource.as_str()) == ("", "bindings")
}

/// Binds a pod by the legacy endpoint, where the Binding names the pod. Admission sees the Binding that it is.
pub(crate) async fn bind(request: &Request) -> Result<Response<Body>, Status> {
    let binding = decoder::object(request, FieldValidation::Ignore)?;
    let name = object_meta::text(object_meta::of(&binding), "name").to_owned();
    let pods = request.cluster.objects.registry.kinds().get("", "v1", "pods").cloned();
    let pods = pods.ok_or_else(Status::resource_unknown)?;
    if name.is_empty() {
        return Err(Status::bad_request("name is required"));
    }
    let attributes = Attributes {
        verb: Verb::Create,
        subresource: Some(Subresource::Binding),
        ..request.attributes.for_object(pods.group_resource(), "v1", &request.attributes.namespace, &name)
    };
    pods::bind(request, &request.nested(pods, attributes)).await
}
