//! Routes: the server's own pages, or a kind and a verb.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use orlop_api::{names, status::Status};
use serde_json::json;

use super::{
    Request, changes, dependents, discovery, flow_control,
    health::{self, Health},
    metrics, negotiate_for,
    offload::Offload,
    openapi, run,
};
use crate::{
    auth::Access,
    cluster::Cluster,
    http::{
        body::Body,
        negotiation::{Encoding, check_routed},
        query::Query,
        response::{self, not_found},
        warnings::Warnings,
    },
    metrics::Metrics,
    registry::Kind,
    request::{Attributes, Deadline, Subresource, Verb},
};

/// The endpoints of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) access: Arc<Access>,
    pub(crate) offload: Offload,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Answers an authorized request.
pub(crate) async fn route(
    server: &Endpoints,
    parts: &Parts,
    mut attributes: Arc<Attributes>,
    query: Query,
    body: Bytes,
    warnings: Warnings,
    audit: Option<Arc<orlop_audit::Context>>,
) -> Result<Response<Body>, Status> {
    if !attributes.is_resource_request {
        let page = Box::pin(page(server, parts, &query)).await?;
        let missing = page.status() == http::StatusCode::NOT_FOUND;
        return if missing && !server.health.knows_every_route() {
            Err(health::not_installed_yet())
        } else {
            Ok(page)
        };
    }
    if attributes.resource == "namespaces" && attributes.name == attributes.namespace {
        // To authorizers a namespace is in itself; as an object it is in none.
        Arc::make_mut(&mut attributes).namespace.clear();
    }
    let Attributes { group, version, resource, namespace, name, .. } = &*attributes;
    let cluster = server.cluster.clone();
    let kinds = cluster.objects.registry.kinds();
    let Some(kind) = kinds.get(group, version, resource).cloned() else {
        return if !server.health.knows_every_route() {
            Err(health::not_installed_yet())
        } else if kinds.has_version(group, version) || kinds.has_builtin_group(group) {
            Err(Status::resource_unknown())
        } else {
            Ok(not_found())
        };
    };
    if kind.namespaced && namespace.is_empty() && !name.is_empty() {
        return Err(Status::resource_unknown());
    }
    if !kind.namespaced && !namespace.is_empty() {
        return Err(Status::resource_unknown());
    }
    if let Some(problem) = names::path_segment(name).first().filter(|_| !name.is_empty()) {
        return Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {problem}")));
    }
    if !attributes.rest.is_empty() && attributes.subresource != Some(Subresource::Proxy) {
        return Err(Status::resource_unknown());
    }
    let subresource = attributes.subresource.as_ref().map(Subresource::as_str);
    if subresource.is_some_and(|subresource| kind.subresource(subresource).is_none()) {
        return Err(Status::resource_unknown());
    }
    if !has_method(&kind, &attributes, &parts.method) {
        // Kubernetes' handler of custom resources has no routes: it passes on what it does not serve.
        let is_passed_on = kind.flags.custom && kind.namespaced && namespace.is_empty();
        return if is_passed_on { Ok(not_found()) } else { Err(Status::method_unknown()) };
    }
    let negotiated = negotiate_for(&attributes, &kind, &parts.headers, &query)?;
    let request = Request {
        cluster,
        kind,
        attributes,
        query,
        method: parts.method.clone(),
        uri: parts.uri.clone(),
        headers: parts.headers.clone(),
        body,
        negotiated,
        warnings,
        audit,
        deadline: parts.extensions.get::<Deadline>().map(|deadline| deadline.0),
        upgrade: parts.extensions.get::<OnUpgrade>().cloned(),
    };
    if let Some(warning) = request.kind.strategy.deprecation_warning() {
        if let Some(audit) = &request.audit {
            audit.annotate("k8s.io/deprecated", "true");
        }
        request.warn(warning);
    }
    run(&server.access, &server.offload, request).await
}

/// Returns true if a path has a method for the verb. All namespaces together can be read, but not created in
/// or deleted; only an object can be changed.
fn has_method(kind: &Kind, attributes: &Attributes, method: &Method) -> bool {
    let Attributes { name, namespace, subresource, .. } = attributes;
    let all_namespaces = kind.namespaced && namespace.is_empty();
    match attributes.verb {
        Verb::List | Verb::Watch | Verb::Proxy => true,
        Verb::Create => !all_namespaces && (name.is_empty() || subresource.is_some()),
        Verb::DeleteCollection => !all_namespaces,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => !name.is_empty(),
        Verb::Other(_) => {
            *method == Method::OPTIONS && *subresource == Some(Subresource::Proxy) && !name.is_empty()
        }
    }
}

/// Answers a path that is not a resource.
async fn page(server: &Endpoints, parts: &Parts, query: &Query) -> Result<Response<Body>, Status> {
    let cluster = &server.cluster;
    let path = parts.uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_as_authorized(path) {
        return Ok(not_found());
    }
    match segments.as_slice() {
        // Health answers any method, also for checks that do not exist.
        ["healthz" | "livez" | "readyz", ..] => {
            Ok(health::answer(&server.health, cluster, &segments, query).await)
        }
        ["version", _, ..] => Err(Status::resource_unknown()),
        // The aggregator answers any method there.
        ["apis"] | ["apis", _] => discovery::answer(cluster, &segments, &parts.headers),
        ["api" | "apis", ..] if !reads => {
            let page = discovery::answer(cluster, &segments, &parts.headers)?;
            if page.status().is_success() { Err(Status::method_unknown()) } else { Ok(page) }
        }
        known if !reads && is_page(known) => Err(Status::method_unknown()),
        ["version"] => {
            check_routed(&parts.headers, &["application/json"])?;
            Ok(json_page(&cluster.version.to_json()))
        }
        ["metrics"] => Ok(metrics::metrics(&server.metrics, cluster, &parts.headers).await),
        ["metrics", "slis"] => Ok(metrics::service_levels(&server.health, cluster, &parts.headers).await),
        ["debug", "api_priority_and_fairness", dump] => Ok(flow_control::dump(cluster, dump, query)),
        ["orlop", "v1", "dependents"] => dependents::answer(cluster, query).await,
        ["orlop", "v1", "changes"] => changes::answer(cluster, query).await,
        ["orlop", "v1", "elsewhere"] => Ok(changes::remote_kinds(cluster)),
        ["openapi", rest @ ..] => openapi::answer(cluster, rest, &parts.headers, query).await,
        ["api" | "apis", ..] => discovery::answer(cluster, &segments, &parts.headers),
        [".well-known", "openid-configuration"] => {
            let document = cluster.issuer().discovery();
            Ok(document.map_or_else(not_found, |document| cacheable(document, "application/json")))
        }
        ["openid", "v1", "jwks"] => Ok(cacheable(cluster.issuer().key_set(), "application/jwk-set+json")),
        [] | ["index.html"] => Ok(json_page(&json!({"paths": paths(cluster)}))),
        _ => Ok(not_found()),
    }
}

/// Returns true unless a path is another spelling of that of a page: an authorizer may have denied only the usual one. Only
/// discovery is also found with a slash at the end, as in Kubernetes.
fn is_as_authorized(path: &str) -> bool {
    let is_discovery = ["/api/", "/apis/", "/version/"].iter().any(|page| path.starts_with(page));
    !path.contains("//") && (path == "/" || is_discovery || !path.ends_with('/'))
}

/// Returns true if there may be a page at a path.
fn is_page(segments: &[&str]) -> bool {
    let first = segments.first().copied().unwrap_or_default();
    let pages = [
        "",
        "index.html",
        "version",
        "metrics",
        "debug",
        "orlop",
        "openapi",
        "api",
        "apis",
        ".well-known",
        "openid",
    ];
    pages.contains(&first)
}

/// Returns all paths, sorted.
fn paths(cluster: &Cluster) -> BTreeSet<String> {
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
    let mut add = |group: &str, version: &str| {
        if group.is_empty() {
            paths.insert(format!("/api/{version}"));
        } else {
            paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
        }
    };
    for kind in cluster.objects.registry.kinds().iter() {
        add(&kind.gvk.group, &kind.gvk.version);
    }
    for remote in cluster.aggregator.catalog().remotes() {
        add(&remote.service.group, &remote.service.version);
    }
    paths
}

/// Returns a page that proxies may cache.
fn cacheable(document: serde_json::Value, media_type: &str) -> Response<Body> {
    let mut response = response::bytes(200, media_type, Bytes::from(document.to_string()));
    let cached = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    response
}

fn json_page(value: &serde_json::Value) -> Response<Body> {
    response::bytes(200, "application/json", response::encode(Encoding::PrettyJson, value))
}
