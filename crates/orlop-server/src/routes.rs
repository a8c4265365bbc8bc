//! Where a path leads: the server's own pages, or a kind and a verb.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, request::Parts};
use orlop_api::status::Status;
use serde_json::json;

use crate::{
    User,
    body::Body,
    cluster::Cluster,
    dependents, discovery, health, openapi,
    query::Query,
    request_info::RequestInfo,
    verbs::{self, Warnings, answer},
};

/// Answers a request that may be answered.
pub(crate) async fn route(
    cluster: Arc<Cluster>,
    parts: &Parts,
    info: RequestInfo,
    query: Query,
    body: Bytes,
    user: User,
    warnings: Warnings,
) -> Result<Response<Body>, Status> {
    let Some(about) = info.resource else { return page(&cluster, parts, &query).await };
    let kinds = cluster.registry.kinds();
    let Some(kind) = kinds.get(&about.group, &about.version, &about.resource).cloned() else {
        return if kinds.has_version(&about.group, &about.version) {
            Err(Status::resource_unknown())
        } else {
            Ok(not_found())
        };
    };
    if kind.namespaced && about.namespace.is_empty() && !about.name.is_empty() {
        return Err(Status::resource_unknown());
    }
    if !kind.namespaced && !about.namespace.is_empty() {
        return Err(Status::resource_unknown());
    }
    let negotiated = verbs::negotiate_for(info.verb, &kind, &parts.headers, &query)?;
    let request = verbs::Request {
        cluster,
        kind,
        about,
        query,
        uri: parts.uri.clone(),
        headers: parts.headers.clone(),
        body,
        negotiated,
        user,
        warnings,
    };
    verbs::run(info.verb, request).await
}

/// The server's own pages.
async fn page(cluster: &Arc<Cluster>, parts: &Parts, query: &Query) -> Result<Response<Body>, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::new(
            405,
            orlop_api::status::Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        ));
    }
    let path = parts.uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["version"] => Ok(json_page(&crate::version::version())),
        ["healthz" | "livez" | "readyz", ..] => Ok(health::answer(cluster, &segments, query).await),
        ["metrics"] => Ok(crate::metrics::answer(cluster)),
        ["orlop", "v1", "dependents"] => dependents::answer(cluster, query).await,
        ["openapi", rest @ ..] => openapi::answer(cluster, rest, &parts.headers, query).await,
        ["api" | "apis", ..] => discovery::answer(cluster, &segments, &parts.headers),
        [] => Ok(json_page(
            &json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
        )),
        _ => Ok(not_found()),
    }
}

fn json_page(value: &serde_json::Value) -> Response<Body> {
    answer::bytes(200, "application/json", answer::encode(crate::negotiation::Encoding::PrettyJson, value))
}

/// What Kubernetes says of paths that it does not know.
pub(crate) fn not_found() -> Response<Body> {
    answer::bytes(404, "text/plain; charset=utf-8", Bytes::from_static(b"404 page not found\n"))
}
