//! Where a path leads: the server's own pages, or a kind and a verb.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use orlop_api::{names, status::Status};
use serde_json::json;

use crate::{
    User,
    body::Body,
    chain::Chain,
    changes, dependents, discovery, health, metrics, openapi,
    query::Query,
    registry::{Kind, Kinds},
    request_info::{RequestInfo, ResourceInfo},
    verbs::{self, Warnings, answer},
};

/// Answers a request that may be answered.
pub(crate) async fn route(
    chain: &Chain,
    parts: &Parts,
    info: RequestInfo,
    query: Query,
    body: Bytes,
    user: Arc<User>,
    warnings: Warnings,
) -> Result<Response<Body>, Status> {
    let Some(about) = info.resource else {
        let page = Box::pin(page(chain, parts, &query)).await?;
        let missing = page.status() == http::StatusCode::NOT_FOUND;
        return if missing && !chain.health.knows_every_route() {
            Err(health::not_installed_yet())
        } else {
            Ok(page)
        };
    };
    let cluster = chain.cluster.clone();
    let kinds = cluster.registry.kinds();
    let Some(kind) = kinds.get(&about.group, &about.version, &about.resource).cloned() else {
        return if !chain.health.knows_every_route() {
            Err(health::not_installed_yet())
        } else if kinds.has_version(&about.group, &about.version) || kinds.has_builtin_group(&about.group) {
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
    if let Some(problem) = names::path_segment(&about.name).first().filter(|_| !about.name.is_empty()) {
        return Err(Status::bad_request(format!("Name parameter invalid: {:?}: {problem}", about.name)));
    }
    if !about.rest.is_empty() && about.subresource != "proxy" {
        return Err(Status::resource_unknown());
    }
    if !fits(info.verb, &kind, &about) {
        return Err(Status::method_unknown());
    }
    let negotiated = verbs::negotiate_for(info.verb, &kind, &about.subresource, &parts.headers, &query)?;
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
    if let Some(warning) = request.kind.hooks.deprecation() {
        request.warn(warning);
    }
    verbs::run(info.verb, request).await
}

/// Whether a path has a method at all. All namespaces together can be looked at, but nothing is created or
/// deleted in all of them at once; and only an object can be changed.
fn fits(verb: &str, kind: &Kind, about: &ResourceInfo) -> bool {
    let everywhere = kind.namespaced && about.namespace.is_empty();
    match verb {
        "list" | "watch" | "proxy" => true,
        "create" => !everywhere && (about.name.is_empty() || !about.subresource.is_empty()),
        "deletecollection" => !everywhere,
        "get" | "update" | "patch" | "delete" => !about.name.is_empty(),
        _ => false,
    }
}

/// The server's own pages.
async fn page(chain: &Chain, parts: &Parts, query: &Query) -> Result<Response<Body>, Status> {
    let cluster = &chain.cluster;
    let path = parts.uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let looks = matches!(parts.method, Method::GET | Method::HEAD);
    match segments.as_slice() {
        // Health may be asked in any way, and what there is not is not there in any.
        ["healthz" | "livez" | "readyz", ..] => {
            Ok(health::answer(&chain.health, cluster, &segments, query).await)
        }
        known if !looks && is_page(known) => Err(Status::method_unknown()),
        ["version"] => {
            crate::negotiation::check_routed(&parts.headers, &["application/json"])?;
            Ok(json_page(&crate::version::version()))
        }
        ["metrics"] => Ok(chain.metrics.answer(cluster, &parts.headers).await),
        ["metrics", "slis"] => Ok(metrics::service_levels(&chain.health, cluster, &parts.headers).await),
        ["orlop", "v1", "dependents"] => dependents::answer(cluster, query).await,
        ["orlop", "v1", "changes"] => changes::answer(cluster, query).await,
        ["orlop", "v1", "elsewhere"] => Ok(changes::elsewhere(cluster)),
        ["openapi", rest @ ..] => openapi::answer(cluster, rest, &parts.headers, query).await,
        ["api" | "apis", ..] => discovery::answer(cluster, &segments, &parts.headers),
        [".well-known", "openid-configuration"] => {
            Ok(public(cluster.issuer().discovery(), "application/json"))
        }
        ["openid", "v1", "jwks"] => Ok(public(cluster.issuer().keys(), "application/jwk-set+json")),
        [] | ["index.html"] => Ok(json_page(&json!({"paths": paths(&cluster.registry.kinds())}))),
        _ => Ok(not_found()),
    }
}

/// Whether there may be a page at a path.
fn is_page(segments: &[&str]) -> bool {
    let first = segments.first().copied().unwrap_or_default();
    let pages =
        ["", "index.html", "version", "metrics", "orlop", "openapi", "api", "apis", ".well-known", "openid"];
    pages.contains(&first)
}

/// Every path that leads somewhere, sorted.
fn paths(kinds: &Kinds) -> BTreeSet<String> {
    let pages = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    let mut paths: BTreeSet<String> = pages.map(str::to_owned).into();
    for kind in kinds.iter() {
        let (group, version) = (&kind.gvk.group, &kind.gvk.version);
        if group.is_empty() {
            paths.insert(format!("/api/{version}"));
        } else {
            paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
        }
    }
    paths
}

/// A page that may be kept by whoever passes it on.
fn public(document: serde_json::Value, media_type: &str) -> Response<Body> {
    let mut response = answer::bytes(200, media_type, Bytes::from(document.to_string()));
    let kept = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn json_page(value: &serde_json::Value) -> Response<Body> {
    answer::bytes(200, "application/json", answer::encode(crate::negotiation::Encoding::PrettyJson, value))
}

/// What Kubernetes says of paths that it does not know.
pub(crate) fn not_found() -> Response<Body> {
    let text = Bytes::from_static(b"404 page not found\n");
    let mut response = answer::bytes(404, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
