//! Endpoints of OpenAPI documents.

use std::{cmp::Reverse, collections::BTreeMap, io::Read, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use orlop_aggregator::open_api::{Spec, to_v3};
use orlop_api::{status::Status, time::Time};
use serde_json::{Map, Value, json};

use crate::{
    aggregation::{OpenApiV3, Remote},
    cluster::Cluster,
    http::{
        body::Body,
        query::Query,
        response::{self, not_found},
    },
    object::now,
    openapi::{SpecVersion, base, document},
    registry::Kind,
};

const JSON: &str = "application/json";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

/// Answers below `/openapi`.
pub(crate) async fn answer(
    cluster: &Arc<Cluster>,
    segments: &[&str],
    headers: &HeaderMap,
    query: &Query,
) -> Result<Response<Body>, Status> {
    match segments {
        ["v2"] => {
            let source = Source::of_all(cluster);
            let page = match accept(headers, V2_PROTOBUF)? {
                V2_PROTOBUF => {
                    Page { spec_version: SpecVersion::V2, media_type: V2_PROTOBUF, path: "v2+protobuf" }
                }
                json => Page { spec_version: SpecVersion::V2, media_type: json, path: "v2" },
            };
            send(cluster, page, source, headers, None).await
        }
        ["v3"] => Ok(index(cluster)),
        ["v3", path @ ..] => {
            let path = path.join("/");
            if let Some(converted) = converted(cluster, &path) {
                return Ok(response::bytes(200, accept(headers, JSON)?, converted.to_string()));
            }
            let Some(kinds) = versions(cluster).remove(&path) else { return Ok(not_found()) };
            let source = Source { kinds, ..Source::default() };
            let page =
                Page { spec_version: SpecVersion::V3, media_type: accept(headers, JSON)?, path: &path };
            send(cluster, page, source, headers, query.get("hash")).await
        }
        _ => Ok(not_found()),
    }
}

/// Returns the media type that a client accepts first: JSON, or `other`.
fn accept(headers: &HeaderMap, other: &'static str) -> Result<&'static str, Status> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(JSON);
    }
    let readable = |clause: &str| match clause.split(';').next().unwrap_or_default().trim() {
        JSON | "application/*" | "*/*" => Some(JSON),
        // An older spelling, which Go clients still use.
        media_type if media_type.replace("v2@v1.0", "v2.v1.0") == other => Some(other),
        _ => None,
    };
    let offered = if other == JSON { &[JSON][..] } else { &[JSON, other] };
    accept.split(',').find_map(readable).ok_or_else(|| Status::not_acceptable(offered))
}

/// Returns the kinds of each group version, by the path of its document: `api/v1`, `apis/apps/v1`.
fn versions(cluster: &Cluster) -> BTreeMap<String, Vec<Arc<Kind>>> {
    let mut versions: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
    for kind in local_kinds(cluster) {
        let path = base(&kind.gvk.group_version()).trim_start_matches('/').to_owned();
        versions.entry(path).or_default().push(kind);
    }
    versions
}

/// Returns the kinds of group versions that no other server serves.
fn local_kinds(cluster: &Cluster) -> Vec<Arc<Kind>> {
    let catalog = cluster.aggregator.catalog();
    let kinds = cluster.objects.registry.kinds();
    let is_local = |kind: &&Arc<Kind>| catalog.remote(&kind.gvk.group, &kind.gvk.version).is_none();
    kinds.iter().filter(is_local).cloned().collect()
}

/// Returns the version 3 document of an extension API server that has only version 2.
fn converted(cluster: &Cluster, path: &str) -> Option<Value> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let catalog = cluster.aggregator.catalog();
    let documents = catalog.remote(group, version)?.backend.documents();
    let known = documents.of(group, version).filter(|known| known.v3 == OpenApiV3::Converted)?;
    known.spec.as_ref().map(|(spec, _)| to_v3(spec))
}

/// The parts of a document.
#[derive(Clone, Default)]
struct Source {
    kinds: Vec<Arc<Kind>>,
    /// Parts of other servers' documents, and a tag that changes with them.
    remote: Vec<Arc<Spec>>,
    remote_tag: String,
}

impl Source {
    /// Returns the parts of the version 2 document.
    fn of_all(cluster: &Cluster) -> Self {
        let catalog = cluster.aggregator.catalog();
        let mut remotes: Vec<&Arc<Remote>> = catalog.remotes().collect();
        // The first definition of a name keeps it: those of the highest priority.
        remotes.sort_by_key(|remote| {
            let service = &remote.service;
            (Reverse(service.group_priority), Reverse(service.version_priority), service.name.clone())
        });
        let mut source = Self { kinds: local_kinds(cluster), ..Self::default() };
        for remote in remotes {
            let service = &remote.service;
            let documents = remote.backend.documents();
            let known = documents.of(&service.group, &service.version);
            if let Some((spec, tag)) = known.and_then(|known| known.spec.as_ref()) {
                source.remote.push(spec.clone());
                source.remote_tag.push_str(&format!("{} {tag}\n", service.name));
            }
        }
        source
    }
}

fn index(cluster: &Cluster) -> Response<Body> {
    let mut paths = Map::new();
    for (path, kinds) in versions(cluster) {
        let hash = cluster.openapi.hash(SpecVersion::V3, &path, &kinds, "");
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
    }
    for remote in cluster.aggregator.catalog().remotes() {
        let service = &remote.service;
        let documents = remote.backend.documents();
        let Some(known) = documents.of(&service.group, &service.version) else { continue };
        let path = service.path();
        let url = match &known.v3 {
            OpenApiV3::Unknown => continue,
            OpenApiV3::Served(url) => url.to_string(),
            OpenApiV3::Converted => format!("/openapi/v3{path}"),
        };
        paths.insert(path.trim_start_matches('/').to_owned(), json!({"serverRelativeURL": url}));
    }
    response::bytes(200, "application/json", json!({"paths": paths}).to_string())
}

/// A document in one encoding.
#[derive(Clone, Copy)]
struct Page<'a> {
    spec_version: SpecVersion,
    media_type: &'static str,
    /// Its key in the cache.
    path: &'a str,
}

async fn send(
    cluster: &Arc<Cluster>,
    page: Page<'_>,
    source: Source,
    headers: &HeaderMap,
    asked: Option<&str>,
) -> Result<Response<Body>, Status> {
    let Page { spec_version, media_type, path } = page;
    let hash = cluster.openapi.hash(spec_version, path, &source.kinds, &source.remote_tag);
    if asked.is_some_and(|asked| !asked.eq_ignore_ascii_case(&hash)) {
        let mut response = response::bytes(301, "text/plain", Bytes::new());
        if let Ok(right) = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}")) {
            response.headers_mut().insert(header::LOCATION, right);
        }
        return Ok(response);
    }
    let etag = format!("\"{hash}\"");
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == etag)) {
        response::bytes(304, media_type, Body::empty())
    } else {
        let document = document(cluster, page, source).await?;
        whole(document, media_type, headers)?
    };
    let sent = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        sent.insert(header::ETAG, etag);
    }
    sent.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if asked.is_some() {
        // The URL has the hash of the content, which never changes.
        sent.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        if let Ok(expires) = HeaderValue::from_str(&http_date(now().unix_seconds + YEAR_SECONDS)) {
            sent.insert(header::EXPIRES, expires);
        }
    }
    Ok(response)
}

/// Returns a document, compressed, from the cache or newly built.
async fn document(
    cluster: &Arc<Cluster>,
    Page { spec_version, media_type, path }: Page<'_>,
    source: Source,
) -> Result<Bytes, Status> {
    if let Some(document) = cluster.openapi.document(spec_version, path) {
        return Ok(document);
    }
    let of = source.clone();
    let made = tokio::task::spawn_blocking(move || match media_type {
        V2_PROTOBUF => document::write_protobuf(&of.kinds, &of.remote),
        _ => document::write(spec_version, &of.kinds, &of.remote),
    })
    .await;
    let document = made
        .map_err(|error| Status::internal(&error.to_string()))?
        .map_err(|error| Status::internal(&error.to_string()))?;
    cluster.openapi.insert(spec_version, path, &source.kinds, document.clone());
    Ok(document)
}

/// Responds with a document, compressed if the client accepts gzip, as nearly all do.
fn whole(document: Bytes, media_type: &'static str, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let accepted =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.split(',').any(|coding| coding.trim().starts_with("gzip")) {
        let mut response = response::bytes(200, media_type, document);
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Ok(response);
    }
    let mut text = Vec::new();
    let read = flate2::read::GzDecoder::new(&document[..]).read_to_end(&mut text);
    read.map_err(|error| Status::internal(&error.to_string()))?;
    Ok(response::bytes(200, media_type, text))
}

/// Formats an HTTP date: `Sun, 15 Nov 2026 05:19:34 GMT`.
fn http_date(unix_seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = Time::from_unix(unix_seconds).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = DAYS[unix_seconds.div_euclid(86_400).rem_euclid(7) as usize];
    format!("{day}, {} {} {} {} GMT", part(8, 10), month.unwrap_or(&"Jan"), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_have_the_imf_format() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(1_794_715_200), "Sun, 15 Nov 2026 04:00:00 GMT");
    }
}
