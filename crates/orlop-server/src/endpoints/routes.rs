//! Where a path leads: the server's own pages, or a kind and a verb.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use orlop_api::{names, status::Status};
use serde_json::json;

use super::{
    changes, dependents, discovery,
    health::{self, Health},
    metrics, openapi,
};
use crate::{
    auth::User,
    cluster::Cluster,
    endpoints,
    http::{
        body::Body,
        negotiation::{Encoding, check_routed},
        query::Query,
        response::{self, not_found},
        warnings::Warnings,
    },
    metrics::Metrics,
    registry::{Kind, Kinds},
    request::{RequestInfo, ResourceInfo},
};

/// The endpoints of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Answers an authorized request.
pub(crate) async fn route(
    server: &Endpoints,
    parts: &Parts,
    info: RequestInfo,
    query: Query,
    body: Bytes,
    user: Arc<User>,
    warnings: Warnings,
) -> Result<Response<Body>, Status> {
    let Some(about) = info.resource else {
        let page = Box::pin(page(server, parts, &query)).await?;
        let missing = page.status() == http::StatusCode::NOT_FOUND;
        return if missing && !server.health.knows_every_route() {
            Err(health::not_installed_yet())
        } else {
            Ok(page)
        };
    };
    let cluster = server.cluster.clone();
    let kinds = cluster.objects.registry.kinds();
    let Some(kind) = kinds.get(&about.group, &about.version, &about.resource).cloned() else {
        return if !server.health.knows_every_route() {
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
    let negotiated = endpoints::negotiate_for(info.verb, &kind, &about.subresource, &parts.headers, &query)?;
    let request = endpoints::Request {
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
    if let Some(warning) = request.kind.strategy.deprecation_warning() {
        request.warn(warning);
    }
    endpoints::run(info.verb, request).await
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
async fn page(server: &Endpoints, parts: &Parts, query: &Query) -> Result<Response<Body>, Status> {
    let cluster = &server.cluster;
    let path = parts.uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let looks = matches!(parts.method, Method::GET | Method::HEAD);
    match segments.as_slice() {
        // Health may be asked in any way, and what there is not is not there in any.
        ["healthz" | "livez" | "readyz", ..] => {
            Ok(health::answer(&server.health, cluster, &segments, query).await)
        }
        known if !looks && is_page(known) => Err(Status::method_unknown()),
        ["version"] => {
            check_routed(&parts.headers, &["application/json"])?;
            Ok(json_page(&crate::version::version()))
        }
        ["metrics"] => Ok(metrics::metrics(&server.metrics, cluster, &parts.headers).await),
        ["metrics", "slis"] => Ok(metrics::service_levels(&server.health, cluster, &parts.headers).await),
        ["orlop", "v1", "dependents"] => dependents::answer(cluster, query).await,
        ["orlop", "v1", "changes"] => changes::answer(cluster, query).await,
        ["orlop", "v1", "elsewhere"] => Ok(changes::elsewhere(cluster)),
        ["openapi", rest @ ..] => openapi::answer(cluster, rest, &parts.headers, query).await,
        ["api" | "apis", ..] => discovery::answer(cluster, &segments, &parts.headers),
        [".well-known", "openid-configuration"] => {
            Ok(public(cluster.issuer().discovery(), "application/json"))
        }
        ["openid", "v1", "jwks"] => Ok(public(cluster.issuer().keys(), "application/jwk-set+json")),
        [] | ["index.html"] => Ok(json_page(&json!({"paths": paths(&cluster.objects.registry.kinds())}))),
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
    let mut response = response::bytes(200, media_type, Bytes::from(document.to_string()));
    let kept = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn json_page(value: &serde_json::Value) -> Response<Body> {
    response::bytes(200, "application/json", response::encode(Encoding::PrettyJson, value))
}
